//! The program `target` as a child process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running `target`; killed when dropped.
#[derive(Debug)]
pub struct Target {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Result of `check`.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    /// Number of its connections.
    pub connections: u64,
    /// Resident octets.
    pub rss: u64,
}

impl Target {
    /// Starts it by `command` (the program, and the namespace to run it in) and waits until it listens.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("target starts");
        let stdin = child.stdin.take().expect("piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let line = read_line(&mut stdout);
        let address = line.strip_prefix("listening ").and_then(|a| a.parse().ok());
        let address = address.unwrap_or_else(|| panic!("target said {line:?}"));
        Self { child, stdin, stdout, address }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Checks its guard regions; panics if a peer has changed one, or if it has ended.
    pub fn check(&mut self) -> Health {
        writeln!(self.stdin, "check").expect("target is alive");
        let line = read_line(&mut self.stdout);
        let fields = line.strip_prefix("ok ").unwrap_or_else(|| panic!("target: {line:?}"));
        let field = |name: &str| {
            let value = fields.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("target: {line:?}"))
        };
        Health { connections: field("connections"), rss: field("rss") }
    }
}

fn read_line(from: &mut impl BufRead) -> String {
    let _guard = warpline_patience::Guard::new("a line of the target");
    let mut line = String::new();
    from.read_line(&mut line).expect("target speaks");
    line.trim_end().into()
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
