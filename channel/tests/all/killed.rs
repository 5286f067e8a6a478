//! Two processes, one of which is killed at any point of a conversation. The other gets an error with the cause,
//! and all messages that it received whole are correct.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use warpline_channel::{Channel, Error, Listener};

use crate::pair::{TIGHT, message, open};

/// The address at which a process that was started for it listens.
const PLAY: &str = "WARPLINE_CHANNEL_TEST_SERVER";

/// Sends messages of both lengths without end, and receives as many.
fn talk(channel: &Channel) -> Result<u64, Error> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                let len = if n % 4 == 3 { 3000 } else { 30 };
                if channel.send(message(n, len)).is_err() {
                    return;
                }
            }
        });
        for n in 0.. {
            let len = if n % 4 == 3 { 3000 } else { 30 };
            match channel.recv()? {
                Some(got) => assert!(got[..] == message(n, len), "message {n}"),
                None => return Ok(n),
            }
        }
        Ok(0)
    })
}

/// Not a test by itself: the other process, which accepts one channel, sends and receives.
#[test]
fn other_process() {
    if std::env::var_os(PLAY).is_none() {
        return;
    }
    let listener = Listener::bind_with(&open(), "127.0.0.1:0", TIGHT).unwrap();
    println!("\nlistening at {}", listener.address());
    loop {
        let channel = listener.accept().unwrap();
        let error = talk(&channel).unwrap_err();
        println!("\nended: {error}");
    }
}

struct Other(Child, BufReader<std::process::ChildStdout>);

impl Other {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::other_process", "--nocapture"]).env(PLAY, "1");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    /// The rest of the next line that begins with this text.
    fn line(&mut self, begin: &str) -> String {
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
        let mut other = Other::start();
        let address = other.line("listening at ");
        let channel = Channel::connect_with(&ia, &address, TIGHT).unwrap();
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
    let mut other = Other::start();
    let address = other.line("listening at ");
    let ia = open();
    for round in 0..8u64 {
        let channel = Channel::connect_with(&ia, &address, TIGHT).unwrap();
        for n in 0..round * 5 {
            let len = if n % 4 == 3 { 3000 } else { 30 };
            channel.send(message(n, len)).unwrap();
            assert!(channel.recv().unwrap().unwrap()[..] == message(n, len));
        }
        drop(channel);
        let printed = other.line("ended: ");
        assert!(printed.contains("127.0.0.1"), "{printed}");
    }
}
