//! Tests of the example of a verbs program that goes on after it has lost its connection, as its page runs it: on SoftRDMA
//! and on RoCE.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use verbs_programs::process::Process;
use verbs_programs::{Libraries, libraries, run, skip};
use warpline_patience::{HANG, until};

/// The compiled example, or which package is missing.
fn program() -> Result<&'static Path, &'static str> {
    static PROGRAM: OnceLock<Result<PathBuf, &'static str>> = OnceLock::new();
    let compiled = PROGRAM.get_or_init(|| {
        let links = ["-lrdmacm".to_owned(), "-libverbs".to_owned()];
        if libraries::find("cc").is_none() {
            return Err("package gcc is not installed");
        }
        match run::compile("cc", "../../../examples/verbs/resume_by_hand.c", &links) {
            Ok(program) => Ok(program),
            Err(why) if why.contains("rdma_cma.h") => Err("package librdmacm-dev is not installed"),
            Err(why) => panic!("{why}"),
        }
    });
    compiled.as_deref().map_err(|why| *why)
}

/// How a side is started.
struct Kit {
    libraries: Libraries,
    program: &'static Path,
    /// `--iwarp` or `--roce`.
    device: &'static str,
}

impl Kit {
    /// On both devices; `None`, after reporting it, if something is missing.
    fn both(test: &str) -> Option<[Self; 2]> {
        let program = program().map_err(|why| skip(test, why)).ok()?;
        let libraries = Libraries::build();
        let kit = |device| Self { libraries: libraries.clone(), program, device };
        Some([kit("--iwarp"), kit("--roce")])
    }

    fn start(&self, words: &[&str]) -> Process {
        let mut command = self.libraries.run(Some(self.device));
        command.arg(self.program).args(words);
        Process::start(command).unwrap()
    }

    /// A server, and its port.
    fn serve(&self) -> (Process, String) {
        let server = self.start(&["serve", "127.0.0.1", "0"]);
        let port = || {
            let printed = server.printed();
            let (_, rest) = printed.split_once("listening at port ")?;
            rest.split_once('\n').map(|(port, _)| port.to_owned())
        };
        until("the server to listen", || port().is_some());
        let port = port().unwrap();
        (server, port)
    }

    fn connect(&self, port: &str, losses: &str) -> Process {
        self.start(&["connect", "127.0.0.1", port, losses])
    }

    /// Somebody without the session's token: he must be refused.
    fn intrude(&self, port: &str) {
        let mut stranger = self.start(&["stranger", "127.0.0.1", port]);
        let printed = ended(&mut stranger, true);
        assert!(
            printed.contains("the server refused: it knows no session by this token"),
            "{printed}"
        );
    }
}

/// What a process printed, which ends with success, or with an error.
fn ended(process: &mut Process, well: bool) -> String {
    let status = process.wait(HANG);
    let printed = process.printed();
    assert!(status.is_some_and(|status| status.success() == well), "{status:?}: {printed}");
    printed
}

#[test]
fn records_arrive_once_although_connections_are_lost() {
    let Some(kits) = Kit::both("a verbs program that resumes by hand") else { return };
    for kit in kits {
        let (mut server, port) = kit.serve();
        let printed = ended(&mut kit.connect(&port, "4"), true);
        assert!(printed.contains("written by 5 connections\n"), "{printed}");
        // It has compared the records.
        let printed = ended(&mut server, true);
        assert!(printed.contains("1000 records arrived, by 5 connections\n"), "{printed}");
    }
}

#[test]
fn a_stranger_gets_nothing_and_who_does_not_come_back_is_given_up() {
    let Some(kits) = Kit::both("strangers at a verbs program that resumes by hand") else { return };
    for kit in kits {
        let (mut server, port) = kit.serve();
        kit.intrude(&port);
        // It loses its connection more often than the test waits.
        let mut client = kit.connect(&port, "90");
        until("the third connection", || server.printed().contains("connection 3: "));
        client.kill();
        kit.intrude(&port);
        let printed = ended(&mut kit.connect(&port, "0"), false);
        assert!(printed.contains("the server refused: it serves another session"), "{printed}");
        let printed = ended(&mut server, false);
        assert!(printed.contains("nobody came back within"), "{printed}");
    }
}

#[test]
fn attempts_are_bounded_and_each_cause_is_printed() {
    let Some(kits) = Kit::both("a verbs program without a server") else { return };
    for kit in kits {
        let printed = ended(&mut kit.connect("1", "4"), false);
        assert!(printed.contains("in place of RDMA_CM_EVENT_ESTABLISHED"), "{printed}");
        assert!(printed.contains("attempt 8 of 8 ended after 0 records"), "{printed}");
        assert!(
            printed.ends_with("given up after 0 connections: 0 of 1000 records are there\n"),
            "{printed}"
        );
    }
}
