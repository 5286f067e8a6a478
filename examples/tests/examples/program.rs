//! An example as a process. Servers do not outlive the test; clients are bounded by `timeout`.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Time-out of a client in seconds, to fail instead of hang.
const HANG: &str = "100";

/// An executable.
#[derive(Clone)]
pub(crate) struct Program {
    path: PathBuf,
    /// Directory of the shared library that it needs.
    library: Option<PathBuf>,
    /// Its first arguments.
    first: &'static [&'static str],
}

/// Exit status and output of a client.
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn rust(path: &str) -> Self {
        Self { path: path.into(), library: None, first: &[] }
    }

    pub(crate) fn c(path: PathBuf, library: PathBuf) -> Self {
        Self { path, library: Some(library), first: &[] }
    }

    /// The same by the RoCE adapter.
    pub(crate) fn on_roce(&self) -> Self {
        Self { first: &["--ia", "vp_roce"], ..self.clone() }
    }

    fn equip(&self, mut command: Command) -> Command {
        if let Some(library) = &self.library {
            command.env("LD_LIBRARY_PATH", library);
        }
        command
    }

    /// Runs it until it exits.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.equip(Command::new("timeout"));
        let output =
            command.arg(HANG).arg(&self.path).args(self.first).args(arguments).output().unwrap();
        Outcome {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs it until it exits with success; returns its output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        let Outcome { success, stdout, stderr } = outcome;
        assert!(success, "{} {arguments:?}: {stdout}{stderr}", self.path.display());
        stdout
    }

    /// Starts it as a server, whose first line ends with its address.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let mut command = self.equip(Command::new(&self.path));
        let streams =
            command.args(self.first).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = streams.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        Server { process, output, address }
    }
}

/// A process that serves.
pub(crate) struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Server {
    /// The next line that it prints, waiting for it.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// The rest of its output until it exits with success.
    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.process.wait().unwrap().success(), "{text}");
        text
    }

    /// Kills it; asserts that it reported no error.
    pub(crate) fn stop(mut self) {
        self.process.kill().unwrap();
        let mut complaints = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!(complaints, "");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
