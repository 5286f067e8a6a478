//! Scenes: two processes of an example, each in either language, and their expected output.

use std::path::{Path, PathBuf};

use crate::program::Program;

/// A directory for one test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It may be left from an earlier run.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn hello(server: &Program, client: &Program) {
    let server = server.serve(&[]);
    client.succeed(&[&server.address]);
    assert_eq!(server.rest(), "hello by RDMA Write, hello by Send\n");
}

pub(crate) fn ping_pong(server: &Program, client: &Program) {
    let server = server.serve(&["serve", "127.0.0.1:0"]);
    for size in ["1", "64", "100000"] {
        let printed =
            client.succeed(&["connect", &server.address, "--size", size, "--count", "200"]);
        assert!(printed.starts_with(&format!("200 round trips of {size} octets: ")), "{printed}");
    }
    server.stop();
}

pub(crate) fn rdma_copy(server: &Program, client: &Program, name: &str) {
    let (from, to) = (directory(&format!("{name}-from")), directory(&format!("{name}-to")));
    // A file larger than the window, one smaller than a chunk, an empty one.
    let sizes = [("large", 6_000_001), ("small", 3), ("empty", 0)];
    for (file, size) in sizes {
        let octets: Vec<u8> = (0..size).map(|n: u32| (n.wrapping_mul(40503) >> 7) as u8).collect();
        std::fs::write(from.join(file), octets).unwrap();
    }
    let paths = sizes.map(|(file, _)| from.join(file).to_str().unwrap().to_owned());
    let server = server.serve(&["serve", "127.0.0.1:0", to.to_str().unwrap()]);
    let printed = client.succeed(&["connect", &server.address, &paths[0], &paths[1], &paths[2]]);
    assert!(printed.starts_with("3 files, 6000004 octets, "), "{printed}");
    assert!(printed.ends_with(", verified\n"), "{printed}");
    for (file, _) in sizes {
        let equal =
            std::fs::read(from.join(file)).unwrap() == std::fs::read(to.join(file)).unwrap();
        assert!(equal, "{file} differs");
    }
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), sizes.len());
    server.stop();
}

pub(crate) fn kv(server: &Program, client: &Program) {
    let server = server.serve(&["serve", "127.0.0.1:0"]);
    let act = |action: &[&str]| client.run(&[&["connect", &*server.address][..], action].concat());
    let missing = act(&["get", "colour"]);
    assert!(!missing.success && missing.stderr.contains("there is no"), "{}", missing.stderr);
    assert_eq!(act(&["put", "colour", "red"]).stdout, "colour: version 1\n");
    assert_eq!(act(&["put", "colour", "blue"]).stdout, "colour: version 2\n");
    assert_eq!(act(&["get", "colour"]).stdout, "blue\n");
    // Other clients read and write meanwhile.
    std::thread::scope(|scope| {
        for key in ["one", "two"] {
            scope.spawn(move || {
                let stress = act(&["stress", key, "500"]);
                assert!(stress.success, "{}", stress.stderr);
                assert!(stress.stdout.starts_with("500 writes, "), "{}", stress.stdout);
            });
        }
    });
    assert_eq!(act(&["get", "colour"]).stdout, "blue\n");
    server.stop();
}

pub(crate) fn late_transition(server: &Program, client: &Program) {
    let server = server.serve(&["serve", "127.0.0.1:0"]);
    assert_eq!(
        client.succeed(&["connect", &server.address]),
        "RDMA: This is document /first.\nRDMA: This is document /second.\n"
    );
    server.stop();
}

pub(crate) fn declined_transition(server: &Program, client: &Program) {
    let server = server.serve(&["serve", "127.0.0.1:0", "--decline"]);
    assert_eq!(
        client.succeed(&["connect", &server.address]),
        "the server declines; going on with HTTP\n\
         plain: This is document /first.\nplain: This is document /second.\n"
    );
    server.stop();
}

/// Without a server the client fails with an error.
pub(crate) fn without_server(client: &Program, arguments: &[&str]) {
    let outcome = client.run(arguments);
    assert!(!outcome.success);
    assert!(outcome.stderr.contains("refused"), "{arguments:?}: {}", outcome.stderr);
}
