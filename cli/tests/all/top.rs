//! Tests of `warpline top` on a pseudo-terminal, with processes of two connections.

pub(crate) mod terminal;

use std::io::Read;

use rustix::process::{Pid, Signal, kill_process};

use crate::explain::load::{Load, Manner, Role, STREAM, Serve};
use crate::published::ends;
use crate::signals::disturb;
use crate::stat::Runtime;
use crate::support::{Running, line_with, run, text};
use terminal::Terminal;

const ENTER: &str = "\r";
const ESC: &str = "\x1b";
const DOWN: &str = "\x1b[B";
const HOME: &str = "\x1b[H";

/// A server process and a client process with two connections: one of few large Writes, one of many small ones.
struct Processes {
    runtime: Runtime,
    server: Running,
    client: Running,
    /// Addresses of the peers: of the large Writes, of the small ones.
    large: String,
    small: String,
}

impl Processes {
    fn start() -> Self {
        let runtime = Runtime::new();
        let with = Serve { receives: 0, manner: Manner::Park };
        let serve = || Role::Serve { address: "127.0.0.1:0".into(), with };
        let mut server = ends(&runtime, &[serve(), serve()]);
        let mut out = server.stdout();
        let [large, small] = [(); 2].map(|()| {
            let line = line_with(&mut out, |line| line.starts_with("listening"));
            line.rsplit(' ').next().unwrap().to_owned()
        });
        let rests = Load { wait: true, rest_us: 20_000, ..STREAM };
        let bursts = Load { size: 8, depth: 64, at_once: 64, ..rests };
        let writes = Load { at_once: 1, ..rests };
        let connect = |address: &String, with| Role::Connect { address: address.clone(), with };
        let mut client = ends(&runtime, &[connect(&large, writes), connect(&small, bursts)]);
        let mut out = client.stdout();
        for _ in 0..2 {
            line_with(&mut out, |line| line.starts_with("connected"));
        }
        Self { runtime, server, client, large, small }
    }

    /// `warpline top` in a terminal of this size.
    fn top(&self, columns: u16, lines: u16, arguments: &[&str]) -> Terminal {
        let arguments = [&["top", "--interval", "0.1"], arguments].concat();
        Terminal::start(columns, lines, &arguments, &self.runtime.0)
    }

    /// Whether the client's connection of the large Writes is above that of the small ones.
    fn large_first(&self, screen: &str) -> Option<bool> {
        let at = |address: &String| screen.find(&format!("  {address} "));
        Some(at(&self.large)? < at(&self.small)?)
    }
}

fn signal(process: &Running, signal: Signal) {
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), signal).unwrap();
}

#[test]
fn rows_are_sorted_filtered_and_folded() {
    let all = Processes::start();
    let mut top = all.top(80, 24, &[]);
    let (client, server) = (all.client.id().to_string(), all.server.id().to_string());
    top.until("both processes with their connections", |screen| {
        screen.contains("2 processes, 4 connections")
            && screen.contains(&format!("{server} "))
            && screen.matches("RTS").count() == 4
            && screen.contains("process, peer")
            && screen.contains("q quit")
    });
    top.type_keys(&format!("/{client}"));
    top.until("what the filter lets pass", |screen| {
        screen.contains("1 process, 2 connections")
            && screen.contains(&format!("filter: {client}_"))
            && !screen.contains(&format!("{server} "))
    });
    top.type_keys(ENTER);
    top.until("the order by octets", |screen| {
        screen.contains("by traffic") && all.large_first(screen) == Some(true)
    });
    top.type_keys("sss");
    top.until("the order by messages", |screen| {
        screen.contains("by messages") && all.large_first(screen) == Some(false)
    });
    top.type_keys("r");
    top.until("the reverse order", |screen| {
        screen.contains("reversed") && all.large_first(screen) == Some(true)
    });
    // The first row is the process.
    top.type_keys(HOME);
    top.type_keys(ENTER);
    top.until("the process without its connections", |screen| {
        screen.contains("Enter open") && !screen.contains("RTS")
    });
    top.type_keys(ENTER);
    top.until("its connections again", |screen| screen.matches("RTS").count() == 2);
    top.type_keys(ESC);
    top.until("no filter", |screen| screen.contains("2 processes"));
    top.type_keys("/no such text");
    top.until("an empty list", |screen| screen.contains("nothing contains the filter"));
    top.type_keys(ESC);
    top.until("no filter", |screen| screen.contains("2 processes"));
    top.type_keys("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn a_connection_has_a_page_with_its_explanation_until_it_ends() {
    let mut all = Processes::start();
    let pid = all.client.id().to_string();
    // Its second row is the connection with the most octets.
    let mut top = all.top(80, 24, &[&pid]);
    top.until("rates", |screen| all.large_first(screen) == Some(true) && screen.contains("MB/s"));
    top.type_keys(HOME);
    top.type_keys(DOWN);
    top.type_keys(ENTER);
    let peer = format!("with {}: RTS", all.large);
    top.until("the page", |screen| {
        screen.contains(&pid) && screen.contains(&peer) && screen.contains("SQ ")
    });
    // What `explain` prints.
    top.until("the explanation", |screen| {
        screen.contains("in 2.") && screen.contains("1. nothing to send (")
    });
    signal(&all.client, Signal::STOP);
    top.until("that it is stopped", |screen| screen.contains("the process is stopped"));
    top.type_keys(ESC);
    top.until("that it is stopped, in the list", |screen| {
        screen.lines().any(|line| line.contains(&pid) && line.contains("stopped"))
    });
    top.type_keys(ENTER);
    top.until("the page again", |screen| screen.contains("the process is stopped"));
    all.client.kill();
    all.client.code();
    top.until("the end, with the last figures", |screen| {
        screen.contains("it has ended") && screen.contains(&pid)
    });
    top.type_keys(ESC);
    top.until("an empty list", |screen| screen.contains("no process publishes anything"));
    top.type_keys("\x03");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn every_size_of_the_terminal_has_its_screen() {
    let all = Processes::start();
    let mut top = all.top(132, 50, &[]);
    top.until("all columns", |screen| screen.contains("stalls/s"));
    top.resize(80, 24);
    top.until("those for 80 columns", |screen| {
        !screen.contains("stalls/s") && screen.contains("msgs/s") && screen.contains("RTS")
    });
    top.resize(30, 6);
    top.until("those for 30 columns", |screen| {
        screen.contains("process, peer") && !screen.contains("msgs/s")
    });
    // One line is left for rows; the selected one is there.
    top.resize(40, 4);
    top.type_keys(DOWN);
    top.until("the selected row", |screen| screen.contains("  127.0.0.1:"));
    for (columns, lines) in [(10, 2), (2, 1), (500, 200)] {
        top.resize(columns, lines);
    }
    top.type_keys(ENTER);
    top.until("the page on a large screen", |screen| screen.contains("SQ "));
    top.resize(20, 3);
    top.type_keys("\x1b[F");
    top.until("the page's end on a small one", |screen| {
        screen.lines().any(|line| !line.is_empty()) && !screen.contains("SQ ")
    });
    top.type_keys("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn signals_end_it_and_the_terminal_is_as_before() {
    use std::os::unix::process::ExitStatusExt;
    let runtime = Runtime::new();
    for name in [Signal::INT, Signal::TERM, Signal::QUIT, Signal::HUP] {
        let mut top = Terminal::start(80, 24, &["top"], &runtime.0);
        top.until("its screen", |screen| screen.contains("no process publishes anything"));
        signal(&top.process, name);
        assert_eq!(top.ended().signal(), Some(name.as_raw()));
    }
}

#[test]
fn the_end_of_the_terminal_ends_it() {
    use std::os::unix::process::ExitStatusExt;
    let runtime = Runtime::new();
    let mut top = Terminal::start(80, 24, &["top"], &runtime.0);
    top.until("its screen", |screen| screen.contains("no process publishes anything"));
    let status = top.hang_up();
    assert!(status.signal() == Some(Signal::HUP.as_raw()) || status.code() == Some(1), "{status}");
}

#[test]
fn a_stop_does_not_end_it() {
    let processes = Processes::start();
    let mut top = processes.top(100, 24, &[]);
    top.until("the peers", |screen| screen.contains(&processes.large));
    disturb(top.process.id());
    // Its page asks the process.
    top.type_keys(&format!("{HOME}{DOWN}{ENTER}"));
    top.until("the explanation", |screen| screen.contains("Esc back") && screen.contains(" s:"));
    top.type_keys("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn what_is_no_terminal_is_refused() {
    let output = run(&["top"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("standard output is no terminal"), "{error}");
    assert!(error.contains("warpline stat --watch 1"), "{error}");
    // A process that does not exist is reported before the screen changes.
    let runtime = Runtime::new();
    let mut top = Terminal::start(80, 24, &["top", "99999999"], &runtime.0);
    assert_eq!(top.ended().code(), Some(1));
    let mut error = String::new();
    top.process.stderr().read_to_string(&mut error).unwrap();
    assert!(error.contains("there is no process 99999999"), "{error}");
}

#[test]
fn a_terminal_that_cannot_show_a_screen_is_refused() {
    let runtime = Runtime::new();
    let says = |mut top: Terminal, wanted: &str| {
        assert_eq!(top.ended().code(), Some(1));
        let mut error = String::new();
        top.process.stderr().read_to_string(&mut error).unwrap();
        assert!(error.contains(wanted), "{error}");
    };
    let dumb = Terminal::start_as("dumb", 80, 24, &["top"], &runtime.0);
    says(dumb, "TERM is dumb");
    let unsized_one = Terminal::start(0, 0, &["top"], &runtime.0);
    says(unsized_one, "stty columns 80 rows 24");
}
