//! Tests of programs that pass on what they read: the chat, and the stream of octets.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use warpline_patience::within;

use crate::program::Program;

/// Guests of the chat.
const GUESTS: usize = 20;
/// Octets of the stream.
const OCTETS: u64 = 300_000_000;

/// A process that ends with its test.
struct Piped(Child);

impl Piped {
    fn start(path: &str, arguments: &[&str], error: Stdio) -> Self {
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(error);
        Self(command.spawn().unwrap())
    }

    fn input(&mut self) -> ChildStdin {
        self.0.stdin.take().unwrap()
    }

    fn output(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().unwrap())
    }

    fn succeeds(&mut self) -> bool {
        within("a process to end", || self.0.wait().unwrap().success())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn a_chat_of_twenty_guests_loses_no_line() {
    let path = env!("CARGO_BIN_EXE_chat");
    let server = Program::rust(path).serve(&["serve", "127.0.0.1:0"]);
    let mut guests: Vec<_> = (0..GUESTS)
        .map(|n| {
            let name = format!("guest {n}");
            let mut guest =
                Piped::start(path, &["connect", &server.address, &name], Stdio::inherit());
            let mut output = guest.output();
            // From here on it gets every line.
            assert_eq!(line(&mut output), format!("welcome, guest {}", n + 1));
            (guest.input(), output, guest)
        })
        .collect();
    for (input, ..) in &mut guests {
        writeln!(input, "hello").unwrap();
    }
    for (n, (_, output, _)) in guests.iter_mut().enumerate() {
        let mut heard: Vec<_> = (1..GUESTS).map(|_| line(output)).collect();
        heard.sort();
        let mut others: Vec<_> =
            (0..GUESTS).filter(|m| *m != n).map(|m| format!("guest {m}: hello")).collect();
        others.sort();
        assert_eq!(heard, others);
    }
    // One dies, and one leaves; the others go on.
    let (_, _, mut killed) = guests.pop().unwrap();
    killed.0.kill().unwrap();
    let (input, _, mut leaves) = guests.pop().unwrap();
    drop(input);
    assert!(leaves.succeeds());
    writeln!(guests[0].0, "who is left?").unwrap();
    for (_, output, _) in &mut guests[1..] {
        assert_eq!(line(output), "guest 0: who is left?");
    }
    drop(guests);
    server.stop();
}

/// Octets without a short period, the same for each call.
struct Octets {
    state: u64,
    left: u64,
}

impl Octets {
    fn new() -> Self {
        Self { state: 7, left: OCTETS }
    }
}

impl Read for Octets {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let octets = (out.len() as u64 & !7).min(self.left) as usize;
        for word in out[..octets].chunks_exact_mut(8) {
            self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1);
            word.copy_from_slice(&self.state.to_le_bytes());
        }
        self.left -= octets as u64;
        Ok(octets)
    }
}

#[test]
fn a_stream_of_300_megabytes_arrives_whole() {
    let path = env!("CARGO_BIN_EXE_stream");
    let mut server = Piped::start(path, &["serve", "127.0.0.1:0"], Stdio::piped());
    let address = line(&mut BufReader::new(server.0.stderr.take().unwrap()));
    let address = address.rsplit(' ').next().unwrap();
    let mut client = Piped::start(path, &["connect", address], Stdio::inherit());
    let mut input = client.input();
    let sends = std::thread::spawn(move || std::io::copy(&mut Octets::new(), &mut input).unwrap());
    let (mut arrived, mut sent) = (server.output(), Octets::new());
    let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut total = 0;
    loop {
        let octets = sent.read(&mut ours).unwrap();
        arrived.read_exact(&mut theirs[..octets]).unwrap();
        assert!(ours[..octets] == theirs[..octets], "octets {total} to {}", total + octets as u64);
        total += octets as u64;
        if octets == 0 {
            break;
        }
    }
    assert_eq!((total, arrived.read(&mut theirs).unwrap()), (OCTETS, 0));
    assert_eq!(sends.join().unwrap(), OCTETS);
    assert!(client.succeeds() && server.succeeds());
}
