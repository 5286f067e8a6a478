//! Every command of the README and of the site's pages runs here, and prints what its page shows, in form: numbers,
//! addresses and paths may differ. One that cannot run in a test names the test that stands for it, or is skipped.

mod form;
mod pages;
mod table;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use verbs_programs::{Libraries, process::free_port};
use warpline_patience::until;
use warpline_skip::{Reason, skip};

use crate::stat::Runtime;
use crate::support::{Running, line_with, rest, text};
use crate::top::terminal::Terminal;
use form::matches;
use pages::{Shown, every_command};
use table::{How, RUNS, Run};

/// The tree's root.
fn root() -> PathBuf {
    warpline_artifacts::root().to_owned()
}

/// What runs the commands one after the other.
struct Session {
    runtime: Runtime,
    servers: Vec<Running>,
    /// Where the last server listens, and its process; the port of one that does not say it.
    address: String,
    pid: u32,
    port: u16,
}

impl Session {
    fn new() -> Self {
        let (address, pid, port) = (String::new(), 0, 0);
        Self { runtime: Runtime::new(), servers: Vec::new(), address, pid, port }
    }

    /// What the shell gets.
    fn line(&self, run: &Run) -> String {
        let line = if run.here.is_empty() { run.page } else { run.here };
        let directory = self.runtime.0.to_str().unwrap();
        line.replace("{address}", &self.address)
            .replace("{pid}", &self.pid.to_string())
            .replace("{dir}", directory)
            .replace("{root}", root().to_str().unwrap())
            .replace("{libraries}", warpline_artifacts::directory().to_str().unwrap())
            .replace("{port}", &self.port.to_string())
            .replace("{moment}", "--seconds 0.1 --rounds 1")
    }

    fn command(&self, line: &str) -> Command {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_warpline"));
        let mut paths = vec![program.parent().unwrap().to_owned()];
        paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.runtime.0).stdin(Stdio::null());
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.env("XDG_RUNTIME_DIR", &self.runtime.0);
        command.env_remove("RUST_LOG").env_remove("WARPLINE_CONFIG");
        command
    }

    /// Starts a server; returns its first line.
    fn serve(&mut self, run: &Run) -> String {
        let silent = matches!(run.how, How::ServesWith(..));
        if silent {
            self.port = free_port();
        }
        let mut command = self.command(&format!("exec {}", self.line(run)));
        let mut server = Running::new(command.stdout(Stdio::piped()).spawn().unwrap());
        let (mut output, mut first) = (server.stdout(), String::new());
        self.pid = server.id();
        if silent {
            until("the server to listen", || listens(self.port));
        } else {
            first = line_with(&mut output, |line| !line.is_empty());
            let inside = |c: char| c.is_ascii_digit() || ".:".contains(c);
            let mut words = first.split(|c| !inside(c)).filter(|word| word.contains(':'));
            let word = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            self.address = word.unwrap_or(&first).replace("0.0.0.0", "127.0.0.1");
        }
        // It writes on until it is killed.
        std::thread::spawn(move || rest(output));
        self.servers.push(server);
        first
    }

    /// Standard output and error of a command, which ends with success.
    fn printed(&self, run: &Run) -> String {
        let line = self.line(run);
        let mut command = self.command(&line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut child = Running::new(child);
        let mut error = child.stderr();
        let errors = std::thread::spawn(move || rest(&mut error));
        let printed = rest(child.stdout()) + &errors.join().unwrap();
        assert_eq!(child.code(), Some(0), "{line}\n{printed}");
        printed
    }

    /// The screen of a program on a terminal.
    fn screen(&self, run: &Run) {
        let words: Vec<_> = run.page.split(' ').skip(1).collect();
        let mut terminal = Terminal::start(80, 24, &words, &self.runtime.0);
        terminal.until(run.page, |screen| run.shows.iter().all(|part| screen.contains(part)));
        terminal.type_keys("q");
        assert_eq!(terminal.ended().code(), Some(0));
    }

    /// Runs a command, and compares what it prints with the pages.
    fn run(&mut self, run: &Run, pages: &[Shown]) {
        match run.how {
            How::Test(file, test) => {
                let source = std::fs::read_to_string(root().join(file)).unwrap();
                return assert!(source.contains(&format!("fn {test}(")), "{file}: no test {test}");
            }
            How::OnTerminal => return self.screen(run),
            How::With(..) | How::ServesWith(..) => drop(Libraries::build()),
            How::Ends | How::Serves | How::Never(_) => {}
        }
        let serves = matches!(run.how, How::Serves | How::ServesWith(..));
        let printed = if serves { self.serve(run) } else { self.printed(run) };
        let mut left = &printed[..];
        for part in run.shows {
            let at = left.find(part);
            let at = at.unwrap_or_else(|| panic!("{}: no {part:?} in\n{printed}", run.page));
            left = &left[at + part.len()..];
        }
        let shown = pages.iter().filter(|shown| shown.command == run.page);
        // Two pages may show different moments of a command that has an own check.
        for shown in shown.filter(|shown| !shown.output.is_empty() && run.shows.is_empty()) {
            let lines: Vec<_> = printed.lines().collect();
            if let Err(what) = matches(&shown.output, &lines) {
                panic!("{}:{}: {}: {what}\n{printed}", shown.page, shown.line, run.page);
            }
        }
    }
}

/// Why a command does not run here.
fn absent(run: &Run) -> Option<Reason> {
    match run.how {
        How::Never(reason) => Some(reason.into()),
        How::With(program, package) | How::ServesWith(program, package) => {
            let found = verbs_programs::libraries::find(program);
            found.is_none().then(|| warpline_skip::missing(package))
        }
        _ => None,
    }
}

/// Whether a socket of TCP listens at this port.
fn listens(port: u16) -> bool {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(std::fs::read_to_string);
    let end = format!(":{port:04X}");
    tables.iter().flatten().flat_map(|table| table.lines()).any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&end)) && words.get(3) == Some(&"0A")
    })
}

#[test]
fn each_command_prints_what_its_page_shows() {
    let pages = every_command(&root());
    let mut session = Session::new();
    std::fs::write(session.runtime.0.join("file"), vec![7; 3_000_000]).unwrap();
    std::fs::write(session.runtime.0.join("rules.toml"), table::RULES).unwrap();
    let skips = session.runtime.0.join("skips");
    std::fs::create_dir(&skips).unwrap();
    std::fs::write(skips.join("1"), table::SKIPS).unwrap();
    warpline_artifacts::libraries(&["vp-softrdma-dylib"]);
    // Each has said why it failed; the others run, too.
    let mut runs = |run| catch_unwind(AssertUnwindSafe(|| session.run(run, &pages))).is_ok();
    let failed: Vec<_> =
        RUNS.iter().filter(|run| absent(run).is_none() && !runs(run)).map(|run| run.page).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Those that change the machine, and those of programs that are not installed.
#[test]
fn commands_that_do_not_run_here_are_named() {
    for run in RUNS {
        if let Some(reason) = absent(run) {
            skip(run.page, reason);
        }
    }
}

/// The table has each command of the pages, and no other.
#[test]
fn each_command_of_a_page_is_in_the_table() {
    let pages = every_command(&root());
    assert!(pages.len() > 30, "{}", pages.len());
    let known: BTreeSet<_> =
        RUNS.iter().map(|run| run.page).filter(|page| !page.is_empty()).collect();
    for shown in &pages {
        let place = format!("{}:{}", shown.page, shown.line);
        let table = "cli/tests/all/documented/table.rs";
        assert!(known.contains(&*shown.command), "{place}: {table} lacks `{}`", shown.command);
    }
    let shown: BTreeSet<_> = pages.iter().map(|shown| &*shown.command).collect();
    let stale: Vec<_> = known.difference(&shown).collect();
    assert!(stale.is_empty(), "no page has {stale:?}");
}

/// The lines of a Rust program's dependencies are as this tree has them.
#[test]
fn dependency_lines_resolve() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, after) = readme.split_once("```toml\n[dependencies]\n").unwrap();
    let lines = after.split_once("```").unwrap().0;
    let runtime = Runtime::new();
    let manifest = format!(
        "[package]\nname = \"chat\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{}",
        lines.replace("../warpline/", &format!("{}/", root().display()))
    );
    std::fs::create_dir(runtime.0.join("src")).unwrap();
    std::fs::write(runtime.0.join("src/main.rs"), "fn main() {}\n").unwrap();
    std::fs::write(runtime.0.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(root().join("Cargo.lock"), runtime.0.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--quiet", "--depth", "1"]).current_dir(&runtime.0);
    let mut printed = String::new();
    until("cargo tree to lock its cache", || {
        let output = cargo.output().unwrap();
        printed = text(&output.stdout) + &text(&output.stderr);
        output.status.success()
    });
    for name in ["warpline-channel v", "itapi v"] {
        assert!(printed.contains(name), "{printed}");
    }
}
