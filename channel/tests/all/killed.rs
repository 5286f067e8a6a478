//! Two processes, one of which is killed at any point of a conversation. The other gets an error with the cause,
//! and all messages that it received whole are correct.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use warpline_channel::{Channel, Error, Event, Listener, Options, Server};

use crate::pair::{HANG, TIGHT, message, open};

/// With memory enough for longer receives: they grow while messages come and the peer is killed.
const GROWING: Options = Options { large: 3, ..TIGHT };

/// Set for a process that is started as the server.
const SERVER: &str = "WARPLINE_CHANNEL_TEST_SERVER";
/// For a process that is started as a client: the server's address.
const CLIENT: &str = "WARPLINE_CHANNEL_TEST_CLIENT";

/// Message `n`: every fourth is large.
fn nth(n: u64) -> Vec<u8> {
    message(n, if n % 4 == 3 { 3000 } else { 30 })
}

/// Sends messages of both lengths without end, and receives as many.
fn talk(channel: &Channel) -> Result<u64, Error> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if channel.send(nth(n)).is_err() {
                    return;
                }
            }
        });
        for n in 0.. {
            match channel.recv()? {
                Some(got) => assert!(got[..] == nth(n), "message {n}"),
                None => return Ok(n),
            }
        }
        Ok(0)
    })
}

/// Not a test by itself: the other process, which accepts one channel, sends and receives.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(SERVER) else { return };
    let resume = (role == "resume").then_some(HANG);
    let options = Options { resume, ..GROWING };
    let listener = Listener::bind_with(&open(), "127.0.0.1:0", options).unwrap();
    println!("\nlistening at {}", listener.address());
    loop {
        let channel = listener.accept().unwrap();
        let error = talk(&channel).unwrap_err();
        println!("\nended: {error}");
    }
}

/// Sends a message and receives it back.
pub(crate) fn call(channel: &Channel, n: u64) {
    channel.send(nth(n)).unwrap();
    assert!(channel.recv().unwrap().unwrap()[..] == nth(n), "message {n}");
}

/// Not a test by itself: the other process, which connects, and calls without end.
#[test]
fn other_client() {
    let Ok(server) = std::env::var(CLIENT) else { return };
    let channel = Channel::connect_with(&open(), &server, TIGHT).unwrap();
    for n in 0.. {
        call(&channel, n);
        if n == 0 {
            // The server has accepted it: it has replied.
            println!("\nconnected from {}", channel.ends().unwrap().local);
        }
    }
}

pub(crate) struct Other(Child, BufReader<std::process::ChildStdout>);

impl Other {
    fn server() -> Self {
        Self::start("killed::other_process", SERVER, "1")
    }

    /// One that accepts channels that may be resumed.
    pub(crate) fn resuming() -> Self {
        Self::start("killed::other_process", SERVER, "resume")
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    fn start(role: &str, variable: &str, value: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--nocapture"]).env(variable, value);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    /// The rest of the next line that begins with this text.
    pub(crate) fn line(&mut self, begin: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "it ended before {begin:?}");
            if let Some(rest) = line.trim().strip_prefix(begin) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The test may have killed it already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_peers_process_is_killed_at_any_point() {
    let ia = open();
    for round in 0..8u64 {
        let mut other = Other::server();
        let address = other.line("listening at ");
        let options = if round % 2 == 0 { TIGHT } else { GROWING };
        let channel = Channel::connect_with(&ia, &address, options).unwrap();
        let error = std::thread::scope(|scope| {
            let killer = scope.spawn(move || {
                // Its progress at that moment is random.
                let until = std::time::Instant::now() + Duration::from_micros(round * round * 700);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
                other.0.kill().unwrap();
                other
            });
            let error = talk(&channel).unwrap_err();
            drop(killer.join().unwrap());
            error
        });
        assert!(matches!(error, Error::Lost(Some(_))), "{error}");
        assert!(error.to_string().contains(&address), "{error}");
        drop(channel);
    }
}

#[test]
fn a_client_may_disconnect_at_any_point_and_the_listener_accepts_the_next() {
    let mut other = Other::server();
    let address = other.line("listening at ");
    let ia = open();
    for round in 0..8u64 {
        let channel = Channel::connect_with(&ia, &address, TIGHT).unwrap();
        for n in 0..round * 5 {
            call(&channel, n);
        }
        drop(channel);
        let printed = other.line("ended: ");
        assert!(printed.contains("127.0.0.1"), "{printed}");
    }
}

#[test]
fn a_client_is_killed_at_any_point_and_the_other_is_served() {
    let ia = open();
    // There is room for the next client only once the killed one is gone.
    let server = Server::bind_with(&ia, "127.0.0.1:0", TIGHT, 2).unwrap();
    let address = server.address();
    let (gone, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                match server.next_timeout(HANG).unwrap().expect("an event") {
                    Event::Message(peer, message) => match peer.send(&message) {
                        Ok(()) | Err(Error::Lost(_)) => {}
                        Err(error) => panic!("{error}"),
                    },
                    Event::Gone(_, Err(error)) => gone.send(error).unwrap(),
                    Event::Gone(_, Ok(())) => return,
                    _ => {}
                }
            }
        });
        let good = Channel::connect_with(&ia, address, TIGHT).unwrap();
        for round in 0..8u64 {
            let mut other = Other::start("killed::other_client", CLIENT, &address.to_string());
            let killed = other.line("connected from ");
            // Its progress meanwhile is random.
            (0..round * round).for_each(|n| call(&good, n));
            other.0.kill().unwrap();
            (0..20).for_each(|n| call(&good, n));
            let error = ends.recv_timeout(HANG);
            let error = error.unwrap_or_else(|_| panic!("round {round}: {killed} is not reported"));
            assert!(matches!(error, Error::Lost(Some(_))), "{error}");
            assert!(error.to_string().contains(&killed), "{error}: not {killed}");
        }
        good.close().unwrap();
    });
}

#[test]
fn a_killed_peer_ends_a_session_that_could_be_resumed() {
    let ia = open();
    for round in 0..4u64 {
        let mut other = Other::resuming();
        let address = other.line("listening at ");
        // For longer than the test waits: the error comes because nobody listens any more.
        let resume = Some(HANG * 100);
        let channel = Channel::connect_with(&ia, &address, Options { resume, ..TIGHT }).unwrap();
        for n in 0..round * 5 {
            call(&channel, n);
        }
        assert!(channel.resumption().is_some());
        other.0.kill().unwrap();
        let error = loop {
            match channel.recv() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Lost(Some(_))), "{error}");
        assert!(error.to_string().contains("the session was not resumed"), "{error}");
    }
}
