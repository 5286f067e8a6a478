//! Test support: runs the executable. Every process ends with its test.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Bound of waits, to fail instead of hang.
pub(crate) const HANG: Duration = Duration::from_secs(180);

/// A command of the executable, with a clean environment.
pub(crate) fn warpline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.env_remove("RUST_LOG").env_remove("WARPLINE_CONFIG").stdin(Stdio::null());
    command
}

/// Runs it until it exits.
pub(crate) fn run(arguments: &[&str]) -> Output {
    let child = warpline().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Running::new(child.unwrap()).output()
}

/// Standard output or error as text.
pub(crate) fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// A process that is killed if the test ends before it, or if it hangs.
pub(crate) struct Running {
    child: Child,
    _hang: mpsc::Sender<()>,
}

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        let (alive, watch) = mpsc::channel::<()>();
        let pid = rustix::process::Pid::from_child(&child);
        std::thread::spawn(move || {
            if watch.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("process {} ran for {HANG:?}: killed", pid.as_raw_nonzero());
                // Not reaped: its `Running` still lives.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        Self { child, _hang: alive }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().unwrap())
    }

    pub(crate) fn stderr(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().unwrap())
    }

    /// Exit status; `None`: killed.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub(crate) fn status(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn output(mut self) -> Output {
        let mut out = self.stdout();
        let mut err = self.stderr();
        let reader = std::thread::spawn(move || {
            let mut octets = Vec::new();
            err.read_to_end(&mut octets).unwrap();
            octets
        });
        let mut stdout = Vec::new();
        out.read_to_end(&mut stdout).unwrap();
        let stderr = reader.join().unwrap();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines until one satisfies `wanted`, which is returned; panics at the end of the stream.
pub(crate) fn line_with(stream: &mut impl BufRead, wanted: impl Fn(&str) -> bool) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended: {seen}");
        if wanted(line.trim_end()) {
            return line.trim_end().to_owned();
        }
        // Keep the last lines.
        if seen.len() > 4096 {
            seen.clear();
        }
        seen += &line;
    }
}

/// The rest of a stream.
pub(crate) fn rest(mut stream: impl Read) -> String {
    let mut octets = Vec::new();
    stream.read_to_end(&mut octets).unwrap();
    text(&octets)
}

/// A file for one test, removed when dropped.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{}-{number}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    /// `octets` zero octets that take no space.
    pub(crate) fn sparse(name: &str, octets: u64) -> Self {
        let file = Self::new(name, &[]);
        std::fs::File::options().write(true).open(&file.0).unwrap().set_len(octets).unwrap();
        file
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Octets without a short period.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}
