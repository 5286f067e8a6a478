//! A pseudo-terminal with the command as its only process, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use warpline_patience::{Bound, until, within};

use crate::support::Running;

/// The kind of terminal.
const TERM: &str = "xterm-256color";

pub(crate) struct Terminal {
    pub(crate) process: Running,
    /// The side of the terminal; `None` when it has hung up.
    master: Option<File>,
    /// The side of the process, to see its modes.
    slave: Option<OwnedFd>,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
    hangs_up: Arc<AtomicBool>,
}

/// The side of the terminal, and that of a process.
pub(crate) fn both_sides() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
    (master, slave)
}

impl Terminal {
    /// Runs the command as the leader of a session whose terminal this is; its standard error is a pipe.
    pub(crate) fn start(columns: u16, lines: u16, arguments: &[&str], runtime: &Path) -> Self {
        Self::start_as(TERM, columns, lines, arguments, runtime)
    }

    /// The same, for a terminal of this kind.
    pub(crate) fn start_as(
        term: &str,
        columns: u16,
        lines: u16,
        arguments: &[&str],
        runtime: &Path,
    ) -> Self {
        Self::start_with(term, columns, lines, arguments, runtime, |_| Stdio::piped())
    }

    /// The same, with standard error on the terminal, too.
    pub(crate) fn start_all(columns: u16, lines: u16, arguments: &[&str], runtime: &Path) -> Self {
        Self::start_with(TERM, columns, lines, arguments, runtime, |end| end())
    }

    fn start_with(
        term: &str,
        columns: u16,
        lines: u16,
        arguments: &[&str],
        runtime: &Path,
        error: impl FnOnce(&dyn Fn() -> Stdio) -> Stdio,
    ) -> Self {
        let (master, slave) = both_sides();
        tcsetwinsize(&master, size(columns, lines)).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_warpline")).args(arguments);
        command.env("XDG_RUNTIME_DIR", runtime).env("TERM", term);
        command.env_remove("RUST_LOG").env_remove("WARPLINE_CONFIG");
        let before = tcgetattr(&slave).unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(error(&end)).spawn().unwrap();
        // It holds copies of the slave's descriptor.
        drop(command);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(lines.max(1), columns.max(1), 0)));
        let mut output = File::from(master.try_clone().unwrap());
        let hangs_up = Arc::new(AtomicBool::new(false));
        let (shown, stop) = (Arc::clone(&screen), Arc::clone(&hangs_up));
        let reader = std::thread::spawn(move || {
            let mut octets = [0; 4096];
            // An error: the process has ended and nobody has the slave open.
            while let Ok(read @ 1..) = output.read(&mut octets) {
                shown.lock().unwrap().process(&octets[..read]);
                if stop.load(Relaxed) {
                    return;
                }
            }
        });
        let process = Running::new(child);
        let (master, slave, reader) = (Some(master.into()), Some(slave), Some(reader));
        Self { process, master, slave, before, screen, reader, hangs_up }
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&mut self, columns: u16, lines: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(lines, columns);
        tcsetwinsize(self.master.as_ref().unwrap(), size(columns, lines)).unwrap();
    }

    /// Waits until the screen shows what is `wanted`.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let bound = std::panic::AssertUnwindSafe(|| {
            until(what, || {
                last = self.screen.lock().unwrap().screen().contents();
                wanted(&last)
            });
        });
        if let Err(missing) = std::panic::catch_unwind(bound) {
            eprintln!("the screen is:\n{}", self.screen.lock().unwrap().screen().contents());
            std::panic::resume_unwind(missing);
        }
    }

    /// Waits for the end of the process, and checks that the terminal is as it was before.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let status = within("warpline top to end", || self.process.status());
        let now = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        assert_eq!(format!("{now:?}"), format!("{:?}", self.before));
        let bound = Bound::new("the screen before");
        while self.screen.lock().unwrap().screen().alternate_screen() {
            bound.check();
        }
        assert!(!self.screen.lock().unwrap().screen().hide_cursor());
        status
    }

    /// Closes the terminal, and waits for the end of the process.
    pub(crate) fn hang_up(&mut self) -> ExitStatus {
        self.hangs_up.store(true, Relaxed);
        // Its output ends the thread that reads, which has a copy of the master.
        self.type_keys("s");
        within("the output to end", || self.reader.take().unwrap().join().unwrap());
        drop(self.slave.take());
        drop(self.master.take());
        within("warpline top to end", || self.process.status())
    }
}

fn size(columns: u16, lines: u16) -> Winsize {
    Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
