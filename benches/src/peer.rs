//! The second process: this program again, led by lines on its standard input.
//!
//! Owned by the first process, which kills it when dropped. When the first process dies the system
//! kills the second.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

/// The second process, as the first sees it.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this program with `arguments`.
    pub fn start(arguments: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => {
                Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
            }
            _ => Err(io::Error::other("the second process has no pipes")),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line to it.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.stdin, "{line}")
    }

    /// The next line that it says.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            let why = "the second process ended; what it printed above says why";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
        }
        Ok(line.trim_end().into())
    }

    /// [`Peer::tell`], then [`Peer::hear`], as the type that is expected.
    pub fn ask<T: std::str::FromStr>(&mut self, line: &str) -> io::Result<T> {
        self.tell(line)?;
        let answer = self.hear()?;
        answer.parse().map_err(|_| {
            io::Error::other(format!("the second process answered {line:?} with {answer:?}"))
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// To be called first by the second process: it ends with the first.
pub fn follow_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}
