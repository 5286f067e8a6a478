//! The terminal: its modes while `warpline top` runs, and threads that read keys and wait for signals. However the
//! command ends, the terminal gets its modes back: by a key, an error, a signal that can be caught, or a panic.

use std::io::{self, IsTerminal, Stdout, Write, stdin, stdout};
use std::sync::mpsc::Sender;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Happening;
use crate::error::{CliError, CliResult, Exit};

/// Refuses what is no terminal, and a terminal that cannot show a screen.
pub(super) fn check() -> CliResult<()> {
    let is_dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // Such as a serial line, or a terminal that a program made.
    let has_size = || tcgetwinsize(stdout()).map_or(true, |of| of.ws_col > 0 && of.ws_row > 0);
    let elsewhere =
        "`warpline stat --watch 1` writes to files and pipes, with `--json` for programs";
    let (what, remedy) = match (stdin().is_terminal(), stdout().is_terminal()) {
        (_, false) => ("standard output is no terminal", elsewhere),
        (false, true) => ("standard input is no terminal", elsewhere),
        _ if is_dumb() => ("this terminal only writes lines: TERM is dumb", elsewhere),
        _ if !has_size() => ("this terminal has no size", "tell it: `stty columns 80 rows 24`"),
        _ => return Ok(()),
    };
    Err(CliError::new(Exit::Failed, what).hint(remedy))
}

/// The terminal in raw mode, on its alternate screen.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal, and starts the threads.
    pub(super) fn open(to: &Sender<Happening>) -> io::Result<Self> {
        let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
        restore_at_a_panic();
        enable_raw_mode()?;
        // From here on dropping it restores the modes.
        let opened = Terminal::new(CrosstermBackend::new(stdout()));
        let screen = opened.map(|terminal| Self { terminal }).inspect_err(|_| restore())?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        wait_for_signals(signals, to.clone());
        read_keys(to.clone());
        Ok(screen)
    }

    /// After a change of the size. crossterm learns once, edge-triggered, that there are keys, and forgets it if
    /// the size changed at the same time. The kernel says it again when modes are set, though they are as before.
    pub(super) fn announce_keys(&self) {
        // Without the modes the keys are read with the next one.
        if let Ok(modes) = tcgetattr(stdin()) {
            let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Ignores errors: a terminal that is gone needs nothing.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// The hook of `main` prints, and ends the process without dropping anything.
fn restore_at_a_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        hook(info);
    }));
}

fn wait_for_signals(mut signals: Signals, to: Sender<Happening>) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if to.send(Happening::Signal(signal)).is_err() {
                return;
            }
        }
    });
}

fn read_keys(to: Sender<Happening>) {
    std::thread::spawn(move || {
        loop {
            let (happening, is_last) = match event::read() {
                Ok(Event::Key(key)) => (Happening::Key(key), false),
                Ok(Event::Resize(..)) => (Happening::Resized, false),
                Ok(_) => continue,
                Err(error) => (Happening::Lost(error), true),
            };
            if to.send(happening).is_err() || is_last {
                return;
            }
        }
    });
}
