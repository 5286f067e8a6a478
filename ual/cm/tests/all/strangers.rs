//! A process of another user that binds the name of an end of the rendezvous, or dials it: it gets nothing, and
//! the connection uses TCP and reports the reason. It delays nobody either, whatever descriptors it passes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendFlags, accept, bind, connect, listen, send};
use ual_cm::{AcceptParams, ConnectParams, NotLocal, Serves};

use crate::common::{anywhere, as_connectee, next, runs};
use crate::local::{Side, established, is_local, pair_of};
use crate::rendezvous::{
    Ends, Plain, REPLY, REQUEST, asked, disconnect_and_reset, name, offer, policy, unix,
};

const ROLE: &str = "WARPLINE_STRANGER";
const NAME: &str = "strangers::another_user_at_a_name_gets_nothing";

/// A process of another user that runs the test's commands.
struct Stranger {
    process: Child,
    stdin: ChildStdin,
    out: BufReader<ChildStdout>,
    program: PathBuf,
}

impl Stranger {
    /// For the test of this name.
    fn start(test: &str) -> Self {
        // The other user may have no access to the build directory.
        let program = std::env::temp_dir().join(format!(
            "warpline-other-{}-{}",
            std::process::id(),
            test.len()
        ));
        warpline_patience::copy_program(std::env::current_exe().unwrap(), &program);
        let mut process = Command::new(&program)
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, "1")
            .uid(4321)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdin, out, program }
    }

    /// Lets it bind or dial the name of a connection, instead of what it did before.
    fn does(&mut self, what: &str, Ends(waiting, dialling): Ends) {
        writeln!(self.stdin, "{what} {waiting} {dialling}").unwrap();
        let mut line = String::new();
        while line.trim_end() != "done" {
            line.clear();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "the other user's process ended");
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.program);
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// How long the close of a descriptor waits: longer than the test may take.
const LINGERS: Duration = Duration::from_secs(60);

/// Passes a TCP socket that has no other reference then, and whose close waits.
fn pass_what_lingers(to: &OwnedFd, ends: Ends) {
    let listener = TcpListener::bind(anywhere()).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // It never reads, and lives as long as this process.
    std::mem::forget(listener.accept().unwrap());
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    set_socket_linger(&socket, Some(LINGERS)).unwrap();
    offer(to, ends, &[socket.as_fd()]);
    // If nobody has the message, or it was discarded already, this would wait.
    std::thread::spawn(|| drop(socket));
}

/// The other user.
fn is_told() {
    let mut now: Option<OwnedFd> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let [dialling, waiting, what] = line.rsplitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!()
        };
        drop(now.take());
        let ends = Ends(at(waiting), at(dialling));
        let (socket, name) = (unix(), name(ends));
        if what.starts_with("bind") {
            bind(&socket, &name).unwrap();
            listen(&socket, 4).unwrap();
        } else {
            connect(&socket, &name).unwrap();
        }
        match what {
            "bind, linger" => {
                let socket = socket.try_clone().unwrap();
                std::thread::spawn(move || pass_what_lingers(&accept(socket).unwrap(), ends));
            }
            "dial, linger" => pass_what_lingers(&socket, ends),
            // It may have been rejected.
            "dial" => _ = send(&socket, b"hello", SendFlags::NOSIGNAL),
            _ => {}
        }
        now = Some(socket);
        println!("\ndone");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn another_user_at_a_name_gets_nothing() {
    if std::env::var_os(ROLE).is_some() {
        return is_told();
    }
    if !rustix::process::geteuid().is_root() {
        return warpline_skip::skip(NAME, warpline_skip::NOT_ROOT);
    }
    let mut stranger = Stranger::start(NAME);
    let (side, near) = (Side::new(policy()), Side::new(policy()));
    let (listening, listener) = (side.machine.listener(), TcpListener::bind(anywhere()).unwrap());
    let to = listener.local_addr().unwrap();
    for _ in 0..runs() {
        // On the name of a peer that asks for a connection.
        let mut tcp = TcpStream::connect(listening.address).unwrap();
        stranger.does("bind", Ends(tcp.local_addr().unwrap(), listening.address));
        tcp.write_all(REQUEST).unwrap();
        let request = next(&listening.requests, "request");
        let (endpoint, events) = side.machine.endpoint();
        let accept = AcceptParams::default();
        side.machine.cm.accept(&as_connectee(&endpoint), request.request, accept).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::OtherUser));
        let mut reply = [0; 20];
        tcp.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[..16], &REPLY[..16]);
        disconnect_and_reset(&side, &endpoint);

        // On this end's own name, before it asks.
        let bound = side.machine.cm.bind(&[anywhere()], Serves::Connections).unwrap();
        stranger.does("bind", Ends(bound.addresses()[0], to));
        let (endpoint, events) = side.machine.endpoint();
        let params = ConnectParams::new(to);
        side.machine.cm.connect_from(&as_connectee(&endpoint), bound, params).unwrap();
        let mut tcp = listener.accept().unwrap().0;
        tcp.write_all(REPLY).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::NameTaken));
        disconnect_and_reset(&side, &endpoint);

        // At this end's name, once it has asked.
        let Plain { mut tcp, ends, endpoint, events } = asked(&side, &listener);
        stranger.does("dial", ends);
        tcp.write_all(REPLY).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::OtherUser));
        disconnect_and_reset(&side, &endpoint);
    }
    let (pair, active, passive) = pair_of(&near, &side, "127.0.0.1:0");
    is_local(&near, &side, &pair, (active, passive));
}

/// How long some connections of others took, beside the attack.
fn others_are_served(near: &Side, side: &Side, waits: &mut Vec<Duration>) {
    for _ in 0..runs() {
        let begun = Instant::now();
        let (pair, active, passive) = pair_of(near, side, "127.0.0.1:0");
        waits.push(begun.elapsed());
        is_local(near, side, &pair, (active, passive));
    }
}

#[test]
fn another_user_that_passes_what_lingers_delays_nobody() {
    const NAME: &str = "strangers::another_user_that_passes_what_lingers_delays_nobody";
    if std::env::var_os(ROLE).is_some() {
        return is_told();
    }
    if !rustix::process::geteuid().is_root() {
        return warpline_skip::skip(NAME, "not root");
    }
    let mut stranger = Stranger::start(NAME);
    let (side, near) = (Side::new(policy()), Side::new(policy()));
    let (listening, listener) = (side.machine.listener(), TcpListener::bind(anywhere()).unwrap());
    let mut waits = Vec::new();
    for _ in 0..runs() {
        // On the name of a peer that asks for a connection.
        let begun = Instant::now();
        let mut tcp = TcpStream::connect(listening.address).unwrap();
        stranger.does("bind, linger", Ends(tcp.local_addr().unwrap(), listening.address));
        tcp.write_all(REQUEST).unwrap();
        let request = next(&listening.requests, "request");
        let (endpoint, events) = side.machine.endpoint();
        let accept = AcceptParams::default();
        side.machine.cm.accept(&as_connectee(&endpoint), request.request, accept).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::OtherUser));
        waits.push(begun.elapsed());
        others_are_served(&near, &side, &mut waits);
        disconnect_and_reset(&side, &endpoint);

        // At this end's name.
        let begun = Instant::now();
        let Plain { mut tcp, ends, endpoint, events } = asked(&side, &listener);
        stranger.does("dial, linger", ends);
        tcp.write_all(REPLY).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::OtherUser));
        waits.push(begun.elapsed());
        others_are_served(&near, &side, &mut waits);
        disconnect_and_reset(&side, &endpoint);
    }
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("waits of others: median {median:?}, longest {longest:?}");
    assert!(median < Duration::from_millis(100), "others waited {median:?}");
    assert!(longest < LINGERS / 6, "others waited {longest:?}");
}
