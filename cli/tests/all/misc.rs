//! Tests of help, version, completions, devices, exit statuses, closed pipes and configuration.

use std::process::Stdio;

use serde_json::Value;

use crate::support::{Running, TempFile, line_with, rest, run, text, warpline};

#[test]
fn help_says_what_the_exit_status_means() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let out = text(&output.stdout);
    for word in ["demo", "devices", "ping", "decode", "completions", "Exit status", "RUST_LOG"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(!out.contains("demo-peer"), "{out}");
    for command in ["demo", "devices", "ping", "decode", "completions"] {
        assert_eq!(run(&[command, "--help"]).status.code(), Some(0), "{command}");
    }
}

#[test]
fn version() {
    let output = run(&["--version"]);
    assert_eq!(text(&output.stdout), format!("warpline {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("warpline"), "{shell}");
    }
}

#[test]
fn bad_arguments() {
    for arguments in [
        &[][..],
        &["fly"],
        &["demo", "a", "b"],
        &["demo", "--chunk", "0"],
        &["demo", "--crc", "maybe"],
        &["ping"],
        &["ping", "h", "--size", "1"],
        &["ping", "h", "--size", "65536"],
        &["ping", "h", "--mpa", "3"],
        &["ping", "h", "--interval", "-1"],
        &["decode"],
        &["decode", "--hex", "00", "--pcap", "x"],
        &["completions", "tcsh"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn devices_for_people_and_programs() {
    let output = run(&["devices"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    // The CRC32c implementation in use and its speed are listed, too.
    for word in
        ["vp_softrdma", "port 0", "127.0.0.1", "capabilities", "max qp", "CRC32c by ", " GB/s"]
    {
        assert!(out.contains(word), "{word}: {out}");
    }
    let output = run(&["devices", "--json"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &all["providers"][0]["devices"][0];
    assert!(device["limits"]["max_qp"].as_u64().unwrap() > 0, "{all}");
    assert!(!device["ports"].as_array().unwrap().is_empty(), "{all}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut command = warpline();
    command.args(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Running::new(command.spawn().unwrap());
    drop(process.stdout());
    assert_eq!(rest(process.stderr()), "");
    process.code();
}

#[test]
fn a_wrong_configuration_is_located() {
    let file = TempFile::new("wrong.toml", b"[policy]\ncrc = \"require\"\nfnord = 1\n");
    let mut command = warpline();
    command.args(["devices"]).env("WARPLINE_CONFIG", file.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let err = text(&output.stderr);
    assert!(err.contains("wrong.toml:3:1") && err.contains("fnord"), "{err}");
}

#[test]
fn what_is_no_file_is_no_configuration() {
    for (path, why) in [("/dev/zero", "it is no regular file"), ("/", "it is a directory")] {
        let output = warpline().arg("devices").env("WARPLINE_CONFIG", path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{path}");
        let error = text(&output.stderr);
        assert!(error.contains(path) && error.contains(why), "{error}");
    }
}

#[test]
fn variables_without_effect_are_named() {
    use std::os::unix::ffi::OsStrExt;
    let octets = std::ffi::OsStr::from_bytes(b"\xff");
    let mut command = warpline();
    command.arg("devices").env("WARPLINE_LOACL", "off").env("WARPLINE_CLASS", octets);
    let output = command.env("RUST_LOG", octets).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    for part in ["$WARPLINE_LOCAL meant", "$WARPLINE_CLASS has no effect", "RUST_LOG is ignored"] {
        // Once, although the command has second processes.
        assert_eq!(error.matches(part).count(), 1, "{part}: {error}");
    }
}

/// Standard error of a client that connects and disconnects, with a log of connections.
fn log_of_a_connection(format: &str) -> String {
    let file = TempFile::new(
        &format!("{format}-log.toml"),
        format!("[log]\nfilter = \"info\"\nformat = \"{format}\"\n").as_bytes(),
    );
    let mut command = warpline();
    command.args(["ping", "--serve", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut server = Running::new(command.spawn().unwrap());
    let mut out = server.stdout();
    let line = line_with(&mut out, |line| line.starts_with("serving"));
    let mut client = warpline();
    client.args(["ping", line.rsplit(' ').next().unwrap(), "-c", "1"]);
    let output = client.env("WARPLINE_CONFIG", file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    text(&output.stderr)
}

#[test]
fn a_log_has_one_line_per_connection_made_and_ended() {
    let log = log_of_a_connection("text");
    let lines = |part| log.lines().filter(|line| line.contains(part)).collect::<Vec<_>>();
    let (made, ended) = (lines(" connected: "), lines(" disconnected: "));
    assert_eq!((made.len(), ended.len()), (1, 1), "{log}");
    for part in [
        "127.0.0.1:",
        " <-> ",
        "initiator",
        "IRD",
        "ORD",
        "MPA revision 2",
        "CRC",
        "markers",
        "FPDUs of up to",
    ] {
        assert!(made[0].contains(part), "{part}: {log}");
    }
    assert!(ended[0].contains("127.0.0.1:") && !log.contains('\x1b'), "{log}");
    let log = log_of_a_connection("json");
    assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");
    assert!(log.contains("MPA revision 2"), "{log}");
}

#[test]
fn logs_follow_rust_log() {
    let mut command = warpline();
    let output = command.args(["devices"]).env("RUST_LOG", "==").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("RUST_LOG is ignored"));
    let file = TempFile::new("log.toml", b"[log]\nfilter = \"==\"\n");
    let output = warpline().args(["devices"]).env("WARPLINE_CONFIG", file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("log.filter is ignored"));
}

#[test]
fn errors_have_one_shape() {
    for (arguments, place) in [
        (&["ping", "127.0.0.1:1"][..], "where  ping"),
        (&["ping", "none-such.invalid"], "where  ping"),
        (&["demo", "--chunk", "x"], "--help"),
        (&["demo", "--crcc"], "where  warpline demo"),
        (&["perf", "fly"], "where  warpline perf"),
        (&["demo", "/no/such/file"], "where  demo"),
        (&["decode", "--hex", "zz"], "where  decode"),
        (&["provider", "check", "/no/such/file"], "where  provider"),
    ] {
        let printed = text(&run(arguments).stderr);
        assert!(
            printed.starts_with("warpline: ") && printed.contains(place),
            "{arguments:?}: {printed}"
        );
        let facts = ["  where  ", "  cause  ", "  try    "];
        let fact = |line: &str| facts.iter().any(|name| line.starts_with(name));
        assert!(printed.lines().skip(1).all(fact), "{arguments:?}: {printed}");
    }
    let printed = text(&run(&["ping", "127.0.0.1:1"]).stderr);
    assert!(
        printed.contains("  cause  cm-refused: ") && printed.contains("  try    start the "),
        "{printed}"
    );
}

#[test]
fn manual_pages_say_what_help_says() {
    let directory = std::env::temp_dir().join(format!("warpline-man-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let output = run(&["man", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    assert!(page("warpline.1").contains("Exit status"));
    assert!(page("warpline-ping.1").contains("round trip"));
    let file = page("warpline.toml.5");
    assert!(file.contains("connect_timeout_ms = 10000") && file.contains("[softrdma]"), "{file}");
    assert!(!directory.join("warpline-demo-peer.1").exists());
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(run(&["man", "/no/such/directory"]).status.code(), Some(1));
}
