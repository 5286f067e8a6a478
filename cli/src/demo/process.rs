//! Starts the second process of the demo from the same executable, and reads its address from a pipe. It ends
//! when the first process ends. Owned by the parent's main thread.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::args::DemoArgs;
use crate::error::{CliError, CliResult, Exit};
use crate::second;

/// How long a process whose connection ended may take to end.
const DEATH: Duration = Duration::from_millis(500);

/// How long a process may take to end after `Bye`.
const GOODBYE: Duration = Duration::from_secs(10);

/// The second process. Killed when dropped; its standard input ends when this process ends.
pub(super) struct Peer {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(args: &DemoArgs) -> CliResult<Self> {
        let refuse = |why: String| {
            CliError::new(Exit::Failed, format!("cannot start the second process: {why}"))
                .at("demo")
        };
        let crc = args.crc.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        let mut child = second::program()?
            .args(["demo-peer", "--crc", &crc, "--parent", &std::process::id().to_string()])
            .args(["--address", &args.address.to_string()])
            .args(args.device.iter().map(|device| format!("--device={device}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| second::not_started(&error))?;
        let stdout = child.stdout.take().ok_or_else(|| refuse("it has no output".into()))?;
        Ok(Self { child, stdout: BufReader::new(stdout) })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address that it listens at.
    pub(super) fn address(&mut self) -> CliResult<SocketAddr> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        let address = read.ok().and_then(|_| line.trim_end().parse().ok());
        address.ok_or_else(|| {
            CliError::new(Exit::Failed, "the second process did not report its address")
                .because("it could not start, or it was killed; nothing was sent yet")
        })
    }

    /// Waits until it ends, after `Bye`.
    pub(super) fn wait(&mut self) -> CliResult<ExitStatus> {
        match self.ended(GOODBYE) {
            Some(status) => Ok(status),
            None => Err(CliError::new(
                Exit::Failed,
                format!("the second process, {}, does not end", self.id()),
            )
            .at("demo, after everything came back; nothing was lost")),
        }
    }

    /// Adds the process's exit status to an error.
    pub(super) fn explain(&mut self, error: CliError) -> CliError {
        match self.ended(DEATH) {
            Some(status) => error
                .with_exit(Exit::Failed)
                .because(format!("the second process, {}, ended: {status}", self.id())),
            None => error,
        }
    }

    fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
