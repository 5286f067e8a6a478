//! Tests of `warpline ping` against `warpline ping --serve`, and against other peers.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{ChildStdout, Stdio};

use crate::support::{Running, line_with, rest, run, text, warpline};

/// A server and its address.
struct Server {
    process: Running,
    output: BufReader<ChildStdout>,
    address: String,
}

fn serve(arguments: &[&str]) -> Server {
    let mut command = warpline();
    command.args(["ping", "--serve"]).args(arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut process = Running::new(child);
    let mut output = process.stdout();
    let line = line_with(&mut output, |line| line.starts_with("serving"));
    let address = line.rsplit(' ').next().unwrap().to_owned();
    Server { process, output, address }
}

#[test]
fn round_trips_of_every_kind() {
    let server = serve(&["127.0.0.1:0"]);
    for options in [
        &["-c", "100", "-i", "0"][..],
        &["-c", "20", "-i", "0", "--size", "65535"],
        &["-c", "20", "-i", "0", "--size", "26", "--crc", "off"],
        &["-c", "20", "-i", "0", "--mpa", "1"],
        &["-c", "20", "-i", "0", "--peer-to-peer"],
        &["-c", "20", "-i", "0", "--device", "vp_softrdma"],
    ] {
        let output = run(&[&["ping", &server.address, "--verify"], options].concat());
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{options:?}: {out}{}", text(&output.stderr));
        assert!(out.contains(", 0 % lost") && out.contains("rtt min/avg/max/mdev"), "{out}");
        assert!(out.contains("ping=19 "), "{out}");
    }
}

#[test]
fn one_server_serves_many_clients_at_once() {
    let server = serve(&["[::1]:0", "-6"]);
    let address = server.address.clone();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || {
                run(&["ping", &address, "-c", "50", "-i", "0", "-q", "--verify"])
            })
        })
        .collect();
    for client in clients {
        let output = client.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn a_server_for_one_connection_ends_with_it() {
    let mut server = serve(&["127.0.0.1:0", "--once"]);
    let output = run(&["ping", &server.address, "-c", "3", "-i", "0", "-q"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(server.process.code(), Some(0));
    assert!(rest(server.output).contains("3 round trips"));
}

#[test]
fn a_server_that_dies_is_a_loss() {
    let mut server = serve(&["127.0.0.1:0"]);
    let mut command = warpline();
    command.args(["ping", &server.address, "-c", "0", "-i", "0"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = Running::new(child);
    let (mut out, err) = (client.stdout(), client.stderr());
    line_with(&mut out, |line| line.contains("ping=10 "));
    server.process.kill();
    let summary = line_with(&mut out, |line| line.contains("round trips started"));
    // Killed between two round trips: all that were started have completed.
    assert!(summary.contains("completed"), "{summary}");
    assert_eq!(client.code(), Some(1));
    let message = rest(err);
    assert!(message.contains(&server.address) && message.contains("lost"), "{message}");
}

#[test]
fn a_client_that_dies_ends_its_connection_only() {
    let server = serve(&["127.0.0.1:0"]);
    let mut command = warpline();
    command.args(["ping", &server.address, "-c", "0", "-i", "0"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = Running::new(child);
    line_with(&mut client.stdout(), |line| line.contains("ping=10 "));
    client.kill();
    let output = run(&["ping", &server.address, "-c", "3", "-i", "0", "-q"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A live client whose stream is damaged is not reported as dead.
#[test]
fn a_wrong_crc_is_reported_as_the_cause() {
    use std::io::{Read, Write};
    let mut server = serve(&["127.0.0.1:0"]);
    let mut client = std::net::TcpStream::connect(&server.address).unwrap();
    // MPA revision 1, CRC; RFC 5044 7.1.1.
    client.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
    client.read_exact(&mut [0; 20]).unwrap();
    // An empty Send whose CRC is 0.
    let mut fpdu = [0; 24];
    fpdu[..4].copy_from_slice(&[0, 18, 0x41, 0x43]);
    fpdu[15] = 1;
    client.write_all(&fpdu).unwrap();
    let mut err = server.process.stderr();
    line_with(&mut err, |line| line.contains("ping --serve"));
    line_with(&mut err, |line| line.contains("the CRC of an FPDU is wrong"));
    server.process.kill();
    let more = rest(err);
    assert!(!more.contains("died") && !more.contains("rping"), "{more}");
}

#[test]
fn an_interrupt_ends_with_the_statistics() {
    let server = serve(&["127.0.0.1:0"]);
    let mut command = warpline();
    command.args(["ping", &server.address, "-c", "0", "-i", "0.01"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let mut client = Running::new(child);
    let mut out = client.stdout();
    line_with(&mut out, |line| line.contains("ping=3 "));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    line_with(&mut out, |line| line.contains(", 0 % lost"));
    assert_eq!(client.code(), Some(0));
}

#[test]
fn a_peer_that_does_not_listen_is_reported() {
    // Bound, not listening: connections are refused as long as it lives.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run(&["ping", &closed.to_string()]);
    assert_eq!(output.status.code(), Some(4));
    let err = text(&output.stderr);
    assert!(err.contains("refused") && err.contains(&closed.to_string()), "{err}");
}

#[test]
fn a_peer_that_does_not_speak_mpa_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 20];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let output = run(&["ping", &address]);
    warpline_patience::within("the server to be asked", || other.join().unwrap());
    assert_eq!(output.status.code(), Some(4));
    let err = text(&output.stderr);
    assert!(err.contains("MPA") && err.contains(&address), "{err}");
}

#[test]
fn an_unknown_device_is_named() {
    for words in [&["ping", "127.0.0.1:1"][..], &["ping", "--serve", "127.0.0.1:0"]] {
        let output = run(&[words, &["--device", "nowhere0"]].concat());
        let err = text(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code > 0), "{words:?}");
        assert!(err.contains("nowhere0") && !err.contains("panic"), "{err}");
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let server = serve(&["127.0.0.1:0"]);
    let output = run(&["ping", "--serve", &server.address]);
    assert_eq!(output.status.code(), Some(4));
    let err = text(&output.stderr);
    assert!(err.contains(&server.address) && err.contains("try"), "{err}");
}

#[test]
fn families() {
    let output = run(&["ping", "-6", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("no IPv6 address"));
    let output = run(&["ping", "127.0.0.1:x"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn the_output_can_be_json() {
    let mut command = warpline();
    command.args(["ping", "--serve", "127.0.0.1:0", "--once", "--json"]);
    let mut server = Running::new(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut printed = server.stdout();
    let mut line = || {
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let address = line()["serving"].as_str().unwrap().to_owned();
    let output = run(&["ping", &address, "-c", "3", "-i", "0", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&all["sent"], &all["returned"], &all["peer"]),
        (&3.into(), &3.into(), &address.into())
    );
    assert!(all["rtt_us"]["min"].as_f64().unwrap() > 0.0, "{all}");
    assert_eq!(line()["round_trips"], 3);
    assert_eq!(server.code(), Some(0));
}
