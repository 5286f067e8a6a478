//! Tests of the Rust examples with each other.

use crate::program::{Program, Server};
use crate::scenes;

pub(crate) fn hello_rdma() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_hello_rdma"))
}

pub(crate) fn ping_pong() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_ping_pong"))
}

pub(crate) fn rdma_copy() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_rdma_copy"))
}

pub(crate) fn kv() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_kv"))
}

pub(crate) fn late_transition() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_late_transition"))
}

fn rpc() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_rpc"))
}

fn kv_read() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_kv_read"))
}

fn transfer() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_transfer"))
}

fn counter() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_counter"))
}

fn resume_by_hand() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_resume_by_hand"))
}

fn two_ways() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_two_ways"))
}

fn media_pull() -> Program {
    Program::rust(env!("CARGO_BIN_EXE_media_pull"))
}

#[test]
fn hello_rdma_says_hello() {
    scenes::hello(&hello_rdma(), &hello_rdma());
    scenes::hello(&hello_rdma().on_roce(), &hello_rdma().on_roce());
}

#[test]
fn ping_pong_echoes() {
    scenes::ping_pong(&ping_pong(), &ping_pong());
    scenes::ping_pong(&ping_pong().on_roce(), &ping_pong().on_roce());
}

#[test]
fn rdma_copy_copies() {
    scenes::rdma_copy(&rdma_copy(), &rdma_copy(), "rust-rust");
    scenes::rdma_copy(&rdma_copy().on_roce(), &rdma_copy().on_roce(), "rust-rust");
}

#[test]
fn rdma_copy_names_a_file_that_it_cannot_read() {
    let directory = std::env::temp_dir();
    let server = rdma_copy().serve(&["serve", "127.0.0.1:0", directory.to_str().unwrap()]);
    let outcome = rdma_copy().run(&["connect", &server.address, "/nowhere/at all"]);
    assert!(!outcome.success);
    assert!(outcome.stderr.contains("/nowhere/at all"), "{}", outcome.stderr);
}

#[test]
fn kv_serves_reads_by_rdma() {
    scenes::kv(&kv(), &kv());
    scenes::kv(&kv().on_roce(), &kv().on_roce());
}

#[test]
fn late_transition_switches_to_rdma() {
    scenes::late_transition(&late_transition(), &late_transition());
}

#[test]
fn late_transition_goes_on_with_http_when_declined() {
    scenes::declined_transition(&late_transition(), &late_transition());
}

#[test]
fn rpc_serves_a_hundred_clients_at_once() {
    let server = rpc().serve(&["serve", "127.0.0.1:0"]);
    std::thread::scope(|scope| {
        for client in 0..100 {
            let address = &server.address;
            scope.spawn(move || {
                let word = format!("client {client}");
                let printed = rpc().succeed(&["connect", address, &word, "bye"]);
                assert_eq!(printed, format!("{}\nBYE\n", word.to_uppercase()));
            });
        }
    });
    server.stop();
}

#[test]
fn kv_read_finds_keys() {
    let server = kv_read().serve(&["serve", "127.0.0.1:0", "red=7", "green=8", "blue=9 and ten"]);
    let get = |key| kv_read().run(&["connect", &server.address, key]);
    assert_eq!(get("red").stdout, "7\n");
    assert_eq!(get("blue").stdout, "9 and ten\n");
    let missing = get("pink");
    assert!(!missing.success && missing.stderr.contains("no such key"), "{}", missing.stderr);
    server.stop();
}

#[test]
fn transfer_sends_a_whole_file() {
    let path = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        path.to_str().unwrap().to_owned()
    };
    let (from, to) = (path("transfer-from"), path("transfer-to"));
    for size in [0u32, 3_000_001] {
        let octets: Vec<u8> = (0..size).map(|n| (n.wrapping_mul(40503) >> 7) as u8).collect();
        std::fs::write(&from, &octets).unwrap();
        let server = transfer().serve(&["serve", "127.0.0.1:0", &to]);
        let printed = transfer().succeed(&["connect", &server.address, &from]);
        assert!(size == 0 || printed.ends_with("100 % of 3000001 octets"), "{printed}");
        server.rest();
        assert!(std::fs::read(&to).unwrap() == octets);
    }
}

#[test]
fn records_arrive_once_although_connections_are_lost() {
    let server = resume_by_hand().serve(&["serve", "127.0.0.1:0"]);
    let printed = resume_by_hand().succeed(&["connect", &server.address, "4"]);
    assert_eq!(printed, "written\n");
    assert_eq!(server.rest(), "1000 records arrived, by 5 connections\n");
}

/// Its moves are tested with devices that are removed, in a virtual machine.
#[test]
fn messages_by_two_ways_arrive_once_and_in_order() {
    let server = two_ways().serve(&["serve", "vp_softrdma=127.0.0.1:0"]);
    let way = format!("vp_softrdma={}", server.address);
    let printed = two_ways().succeed(&["connect", "vp_softrdma=127.0.0.1:1", &way]);
    assert!(printed.ends_with(" messages, each once and in order\n"), "{printed}");
    let rest = server.rest();
    assert!(rest.ends_with(" messages, each once and in order\n"), "{rest}");
}

#[test]
fn a_counter_loses_no_addition() {
    let server = counter().serve(&["serve", "127.0.0.1:0"]);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| counter().succeed(&["connect", &server.address, "100"]));
        }
    });
    assert_eq!(counter().succeed(&["connect", &server.address, "0"]), "2000\n");
    server.stop();
}

/// Plays `clients` streams at `rate` Mbit/s each; returns the numbers of chunks played and of
/// under-runs. Asserts that the exit status and the error agree with them.
fn pull(server: &Server, clients: u32, rate: &str, seconds: &str) -> (u64, u64) {
    let clients = clients.to_string();
    let play = ["--clients", &clients, "--rate", rate, "--seconds", seconds];
    let outcome = media_pull().run(&[&["connect", &server.address][..], &play].concat());
    let connected = format!("{clients} streams are connected\n");
    assert!(outcome.stdout.starts_with(&connected), "{}", outcome.stderr);
    assert!(outcome.stdout.contains(" chunks in "), "{}", outcome.stderr);
    let counted = |text: &str, what: &str| -> Option<u64> {
        let before = text.split_once(what)?.0;
        before.rsplit([' ', '\n']).next()?.parse().ok()
    };
    let late = counted(&outcome.stdout, " under-runs").expect("the number of under-runs");
    let chunks = counted(&outcome.stdout, " chunks in ").expect("the number of chunks");
    assert_eq!(outcome.success, late == 0, "{}", outcome.stderr);
    let under_runs = counted(&outcome.stderr, " under-runs");
    assert_eq!(under_runs, (late != 0).then_some(late), "{}", outcome.stderr);
    (chunks, late)
}

#[test]
fn media_pull_streams() {
    let mut server = media_pull().serve(&["serve", "127.0.0.1:0"]);
    // Whether chunks arrive in time depends on the machine; whether they are the requested ones does not.
    let (chunks, late) = pull(&server, 20, "8.7", "2");
    assert!(chunks > 0 && late <= chunks, "{late} of {chunks}");
    let report = server.line();
    assert!(report.starts_with("20 clients for "), "{report}");
    assert!(report.contains("application thread"), "{report}");
    server.stop();
}

/// A chunk that is due at once is always late. A chunk that is due in a second, by the read-ahead,
/// is in time unless the machine stalls, which it does not in each of three runs.
#[test]
fn media_pull_counts_each_chunk_that_is_late() {
    let server = media_pull().serve(&["serve", "127.0.0.1:0"]);
    let (chunks, late) = pull(&server, 4, "100000", "1");
    assert!(late > 0, "no under-run among {chunks} chunks that are due at once");
    let slow = || {
        let (chunks, late) = pull(&server, 4, "4", "3");
        println!("{late} under-runs, {chunks} chunks, four a second of each stream");
        chunks > 0 && late == 0
    };
    assert!((0..3).any(|_| slow()), "chunks are late though a second is left for each");
    server.stop();
}

#[test]
fn a_client_without_a_server_fails_with_an_error() {
    let address = "127.0.0.1:1";
    scenes::without_server(&hello_rdma(), &[address]);
    scenes::without_server(&ping_pong(), &["connect", address]);
    scenes::without_server(&kv(), &["connect", address, "get", "x"]);
    scenes::without_server(&late_transition(), &["connect", address]);
    scenes::without_server(&media_pull(), &["connect", address]);
    scenes::without_server(&rpc(), &["connect", address, "x"]);
    scenes::without_server(&kv_read(), &["connect", address, "x"]);
}

#[test]
fn an_unknown_adapter_is_an_error_that_names_it() {
    let programs =
        [(ping_pong(), vec!["connect", "127.0.0.1:1"]), (hello_rdma(), vec!["127.0.0.1:1"])];
    for (program, command) in programs {
        let outcome = program.run(&[vec!["--ia", "nonesuch"], command].concat());
        assert!(!outcome.success);
        assert!(outcome.stderr.contains("nonesuch"), "{}", outcome.stderr);
    }
}
