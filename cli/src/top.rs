//! `warpline top`: processes and their connections on the terminal, sorted and filtered, and a page for one connection
//! with its explanation. It reads state pages; only the page of a connection asks its process, as `explain` does.
//!
//! The main thread owns screen and view. Threads that read keys, wait for signals and sample a connection send to its
//! channel, and end with the process. A process that ends leaves the list; its open page stays until it is closed.

mod args;
mod columns;
mod draw;
mod keys;
mod page;
mod rows;
mod screen;
mod view;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use state_page::read::QueuePair;

pub(crate) use args::TopArgs;

use crate::error::{CliError, CliResult, Exit};
use crate::explain;
use crate::stat::absent;
use crate::stat::id::Id;
use crate::stat::pages::{Seen, Snapshot};
use keys::Then;
use screen::Screen;
use view::View;

/// From the first snapshot to the second, which has rates.
const FIRST: Duration = Duration::from_millis(250);
/// How long an explanation samples its connection.
const SAMPLE: Duration = Duration::from_secs(2);

/// What a thread reports to the main thread.
enum Happening {
    Key(ratatui::crossterm::event::KeyEvent),
    /// The terminal has another size.
    Resized,
    Signal(i32),
    /// The terminal cannot be read.
    Lost(std::io::Error),
    Explained(Id, String),
}

/// Shows it until a key or a signal ends it.
pub(crate) fn run(args: &TopArgs) -> CliResult<()> {
    screen::check()?;
    let snapshot = Snapshot::take(args.pid, args.all)?;
    if let Some(pid) = args.pid.filter(|_| snapshot.processes.is_empty()) {
        return Err(absent::of(pid, &snapshot));
    }
    let mut view = View::new(snapshot, args);
    let (to, happenings) = channel();
    let mut screen = Screen::open(&to).map_err(lost)?;
    let mut due = Instant::now() + FIRST;
    loop {
        screen.terminal.draw(|frame| draw::all(frame, &mut view)).map_err(lost)?;
        if let Some((id, seen, qp)) = view.question() {
            explain_it(id, seen, qp, to.clone());
        }
        match happenings.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Happening::Key(key)) => match view.key(key) {
                Then::Continue => {}
                Then::Quit => return Ok(()),
            },
            Ok(Happening::Resized) => screen.announce_keys(),
            Ok(Happening::Explained(id, text)) => view.explained(&id, text),
            Ok(Happening::Signal(signal)) => {
                drop(screen);
                return Ok(signal_hook::low_level::emulate_default_handler(signal)?);
            }
            Ok(Happening::Lost(error)) => return Err(lost(error)),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                view.take(Snapshot::take(args.pid, args.all)?);
                due = Instant::now() + args.interval;
            }
        }
    }
}

/// Samples the connection in a thread of its own: the process may be stopped, and not respond.
fn explain_it(id: Id, seen: Seen, qp: QueuePair, to: Sender<Happening>) {
    std::thread::spawn(move || {
        let text = explain::of_connection(&seen, &qp, SAMPLE);
        // It is too late if the command ends.
        let _ = to.send(Happening::Explained(id, text));
    });
}

fn lost(error: std::io::Error) -> CliError {
    CliError::new(Exit::Failed, format!("the terminal cannot be used: {error}"))
}
