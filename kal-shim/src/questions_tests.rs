//! Tests of requests, refused clients and time-outs.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

use super::*;
use crate::reactor::ready_within;

struct Asked {
    questions: Questions,
    path: PathBuf,
}

impl Asked {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir();
        let name = format!("questions-{}-{name}", std::process::id());
        let directory = std::fs::File::open(&dir).unwrap();
        let questions = Questions::listen(directory, &CString::new(&*name).unwrap()).unwrap();
        Self { questions, path: dir.join(name) }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).unwrap()
    }

    /// Serves until `done`.
    fn serve(&self, done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < end, "nothing comes");
            ready_within(
                self.questions.watched().as_fd(),
                Interest::READ,
                Duration::from_millis(20),
            );
            self.questions
                .serve(|question| format!("{}, {}", question.line, question.descriptor.is_some()));
        }
    }

    fn served(&self, mut client: UnixStream) -> String {
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut text = String::new();
                // A client that is refused may find its socket reset.
                let _ = client.read_to_string(&mut text);
                text
            });
            self.serve(|| reader.is_finished());
            reader.join().unwrap()
        })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn a_request_with_a_descriptor_gets_its_response() {
    let asked = Asked::new("line");
    let mut client = asked.connect();
    client.write_all(b"hello\nmore").unwrap();
    assert_eq!(asked.served(client), "hello, false\n");
    let client = asked.connect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let file = [client.as_fd()];
    assert!(beside.push(SendAncillaryMessage::ScmRights(&file)));
    let line = [IoSlice::new(b"take ")];
    net::sendmsg(&client, &line, &mut beside, SendFlags::empty()).unwrap();
    (&client).write_all(b"this\n").unwrap();
    assert_eq!(asked.served(client), "take this, true\n");
}

#[test]
fn silent_and_verbose_clients_are_closed() {
    let asked = Asked::new("bounds");
    let silent = asked.connect();
    assert_eq!(asked.served(silent), "");
    let mut much = asked.connect();
    much.set_nonblocking(true).unwrap();
    let text = vec![b'x'; LONGEST + 1];
    let mut sent = 0;
    while sent < text.len() {
        match much.write(&text[sent..]) {
            Ok(octets) => sent += octets,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                asked.questions.serve(|_| unreachable!("there is no end of the line"));
            }
            // Closed already.
            Err(_) => break,
        }
    }
    much.set_nonblocking(false).unwrap();
    assert_eq!(asked.served(much), "");
}

#[test]
fn a_client_beyond_the_limit_waits_until_another_is_closed() {
    let asked = Asked::new("many");
    let clients: Vec<_> = (0..CLIENTS).map(|_| asked.connect()).collect();
    asked.questions.serve(|_| unreachable!("there was no request"));
    let mut more = asked.connect();
    more.write_all(b"y\n").unwrap();
    asked.questions.serve(|_| unreachable!("there was no request of the first clients"));
    for mut client in clients {
        // Unless its second is over, on a busy machine.
        let asks = client.write_all(b"x\n").is_ok();
        let answer = asked.served(client);
        assert!(answer == "x, false\n" || answer.is_empty() || !asks, "{answer}");
    }
    assert_eq!(asked.served(more), "y, false\n");
}

/// In a process of its own, which has no descriptors for a while.
#[test]
fn a_client_waits_while_there_are_no_descriptors() {
    const ALONE: &str = "QUESTIONS_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = "questions::tests::a_client_waits_while_there_are_no_descriptors";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", test]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    let asked = Asked::new("descriptors");
    let mut client = asked.connect();
    client.write_all(b"x\n").unwrap();
    let limit = rustix::process::Resource::Nofile;
    let usual = rustix::process::getrlimit(limit);
    // Those of standard input, output and errors, so that poll(2) takes one.
    let none = rustix::process::Rlimit { current: Some(3), ..usual };
    rustix::process::setrlimit(limit, none).unwrap();
    asked.questions.serve(|_| unreachable!("there is no descriptor"));
    let watched = asked.questions.watched().as_fd();
    assert!(
        !ready_within(watched, Interest::READ, Duration::ZERO),
        "it would be served all the time"
    );
    rustix::process::setrlimit(limit, usual).unwrap();
    assert_eq!(asked.served(client), "x, false\n");
}
