//! Runs a test again, in a process with the library preloaded. No state.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in a process that was started to run one test.
const INSIDE: &str = "WARPLINE_SOCKETS_TEST";
/// What carries octets.
pub(crate) const CARRIER: &str = "WARPLINE_SOCKETS";
/// What the loader loads first.
const PRELOAD: &str = "LD_PRELOAD";
/// The record's path.
pub(crate) const LOG: &str = "WARPLINE_SOCKETS_LOG";

/// The library, as built for the tests.
pub(crate) fn library() -> PathBuf {
    warpline_artifacts::libraries(&["warpline-sockets"]).join("libwarpline_sockets.so")
}

/// A file that is removed when the test ends.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "warpline-sockets-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether this process was started to run one test.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether it has the library.
pub(crate) fn has_library() -> bool {
    std::env::var_os(PRELOAD).is_some()
}

/// A command that runs one test of this program with the library.
pub(crate) fn inside(test: &str, log: &TempFile) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    command.env(INSIDE, "1").env(LOG, &log.0).env(PRELOAD, library());
    // From the first octets on: tests move few.
    command.env(CARRIER, carrier()).env("WARPLINE_SOCKETS_AFTER", "1");
    command
}

/// What carries octets by default in these tests. Shared memory is for trials only: with it tests may hang, so it is asked for.
pub(crate) fn carrier() -> &'static str {
    if std::env::var_os("WARPLINE_TEST_RINGS").is_some() { "ring" } else { "tcp" }
}

/// Whether a test of shared memory is to be left out, which it then says.
pub(crate) fn without_rings(test: &str) -> bool {
    let without = carrier() == "tcp";
    if without {
        warpline_skip::skip(test, warpline_skip::RINGS);
    }
    without
}

/// Runs a test in a process with the library, which must pass; returns the record.
pub(crate) fn run_inside(test: &str) -> String {
    run_inside_with(test, carrier())
}

/// The same, with this carrier of octets: `tcp`, or `ring`.
pub(crate) fn run_inside_with(test: &str, carrier: &str) -> String {
    let log = TempFile::new();
    passes(test, inside(test, &log).env(CARRIER, carrier));
    log.text()
}

/// Runs a test in a process without the library, which must pass. It is a process of its own: programs that other
/// tests start would inherit descriptors.
pub(crate) fn run_without_library(test: &str) {
    passes(test, inside(test, &TempFile::new()).env_remove(PRELOAD));
}

fn passes(test: &str, command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
}

/// The value of a field of a line of the record.
pub(crate) fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// Two ends of a connection, and their addresses.
pub(crate) fn connection() -> ([TcpStream; 2], [String; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    let names = [peer, server.local_addr().unwrap()].map(|it| it.to_string());
    ([client, server], names)
}

/// Lines of the record of this process and its children so far about one end.
pub(crate) fn lines(local: &str, peer: &str) -> Vec<String> {
    let text = std::fs::read_to_string(std::env::var(LOG).unwrap()).unwrap();
    let of = |line: &&str| field(line, "local") == Some(local) && field(line, "peer") == Some(peer);
    text.lines().filter(of).map(str::to_owned).collect()
}
