//! Shows the progress of a long operation on standard error: a bar that is redrawn on a terminal, lines for
//! scripts, or nothing. Used by one thread. Never on standard output, which is for results.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use clap::ValueEnum;

/// Shortest time between redraws of a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Columns of a bar.
const BAR: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A bar if standard error is a terminal
    Auto,
    /// One line per chunk on standard error, for scripts
    Lines,
    /// Nothing
    Never,
}

/// A progress display.
pub(crate) struct Progress {
    style: Style,
    drawn: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Moving,
    Lines,
    Silent,
}

impl Progress {
    pub(crate) fn new(mode: ProgressMode) -> Self {
        let style = match mode {
            ProgressMode::Lines => Style::Lines,
            ProgressMode::Auto if stderr().is_terminal() => Style::Moving,
            ProgressMode::Auto | ProgressMode::Never => Style::Silent,
        };
        Self { style, drawn: None }
    }

    /// Prints a line for scripts.
    pub(crate) fn note(&mut self, fact: &str) {
        if self.style == Style::Lines {
            // Ignored: a closed standard error must not stop the work.
            let _ = writeln!(stderr(), "{fact}");
        }
    }

    /// Shows that `done` of `total` chunks of the named step are done.
    pub(crate) fn step(&mut self, name: &str, done: u64, total: u64) {
        match self.style {
            Style::Silent => {}
            Style::Lines => self.note(&format!("{name} {done}/{total}")),
            Style::Moving => {
                let due = self.drawn.is_none_or(|at| at.elapsed() >= REDRAW);
                if due || done == total {
                    let _ = write!(stderr(), "\r\x1b[K{name:<12} {}", bar(done, total));
                    self.drawn = Some(Instant::now());
                }
            }
        }
    }

    /// Leaves the moving line where it is.
    pub(crate) fn keep(&mut self) {
        if self.style == Style::Moving && self.drawn.take().is_some() {
            let _ = writeln!(stderr());
        }
    }

    /// Wipes the moving line before anything else is printed.
    pub(crate) fn clear(&mut self) {
        if self.style == Style::Moving && self.drawn.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// `[#####-----]  50 %  7/14`
fn bar(done: u64, total: u64) -> String {
    let part = |whole: usize| (done * whole as u64).checked_div(total).unwrap_or(whole as u64);
    let full = part(BAR) as usize;
    format!("[{}{}] {:>3} %  {done}/{total}", "#".repeat(full), "-".repeat(BAR - full), part(100))
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_of_one_width() {
        assert_eq!(bar(7, 14), "[###############---------------]  50 %  7/14");
        assert_eq!(bar(0, 0), format!("[{}] 100 %  0/0", "#".repeat(BAR)));
        assert!(bar(0, 9).starts_with(&format!("[{}]   0 %", "-".repeat(BAR))));
    }
}
