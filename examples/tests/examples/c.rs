//! Tests of the C examples with each other and with those in Rust.

use std::sync::LazyLock;

use warpline_tests::c::{Kit, Language};
use warpline_tests::{Reason, skip};

use crate::program::Program;
use crate::{rust, scenes};

/// The installed library, or what is missing.
static KIT: LazyLock<Result<Kit, Reason>> = LazyLock::new(|| Kit::install("examples-in-c"));

/// Compiles an example under a unique name; `None`, after reporting it, if something is missing.
fn compile(name: &str, test: &str) -> Option<Program> {
    let kit = KIT.as_ref().map_err(|reason| skip(test, reason)).ok()?;
    let source = format!("../../examples/c/{name}.c");
    let path = kit.program(&format!("{name}-{test}"), &[&source], Language::C99, &[]);
    Some(Program::c(path, kit.home().join("lib")))
}

/// Runs a scene with the C program as both sides, and with the Rust program as either side.
fn play(name: &str, test: &str, rust: &Program, scene: impl Fn(&Program, &Program, &str)) {
    let Some(c) = compile(name, test) else { return };
    scene(&c, &c, "c-c");
    scene(&c, rust, "c-rust");
    scene(rust, &c, "rust-c");
}

/// The same, also by the RoCE adapter.
fn play_twice(name: &str, test: &str, rust: &Program, scene: impl Fn(&Program, &Program, &str)) {
    play(name, test, rust, |server, client, languages| {
        scene(server, client, languages);
        scene(&server.on_roce(), &client.on_roce(), languages);
    });
}

#[test]
fn hello_rdma_says_hello() {
    play_twice("hello_rdma", "hello", &rust::hello_rdma(), |server, client, _| {
        scenes::hello(server, client);
    });
}

#[test]
fn ping_pong_echoes() {
    play_twice("ping_pong", "echo", &rust::ping_pong(), |server, client, _| {
        scenes::ping_pong(server, client);
    });
}

#[test]
fn rdma_copy_copies() {
    play_twice("rdma_copy", "copy", &rust::rdma_copy(), scenes::rdma_copy);
}

#[test]
fn kv_serves_reads_by_rdma() {
    play_twice("kv", "serve", &rust::kv(), |server, client, _| scenes::kv(server, client));
}

#[test]
fn late_transition_switches_to_rdma() {
    play("late_transition", "convert", &rust::late_transition(), |server, client, _| {
        scenes::late_transition(server, client);
    });
}

#[test]
fn late_transition_goes_on_with_http_when_declined() {
    play("late_transition", "decline", &rust::late_transition(), |server, client, _| {
        scenes::declined_transition(server, client);
    });
}

#[test]
fn a_ping_pong_from_the_table_of_verbs_plays() {
    let Some(program) = compile("from_verbs", "table") else { return };
    let server = program.serve(&[]);
    assert_eq!(program.succeed(&[&server.address]), "1000 round trips of 64 octets\n");
    assert_eq!(server.rest(), "1000 round trips of 64 octets\n");
}

#[test]
fn a_client_without_a_server_fails_with_an_error() {
    let address = "127.0.0.1:1";
    let Some(hello) = compile("hello_rdma", "nobody") else { return };
    scenes::without_server(&hello, &[address]);
    let Some(kv) = compile("kv", "nobody") else { return };
    scenes::without_server(&kv, &["connect", address, "get", "x"]);
}
