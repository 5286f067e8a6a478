//! Runs the example as two processes, as its documentation says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

const HELLO: &str = env!("CARGO_BIN_EXE_hello_rdma");

/// Does not outlive a failed test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_processes_say_hello() {
    let mut server = Server(Command::new(HELLO).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    let mut address = String::new();
    output.read_line(&mut address).unwrap();
    let client = Command::new(HELLO).arg(address.trim()).output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(server.0.wait().unwrap().success());
    assert_eq!(text, "hello by RDMA Write, hello by Send\n");
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let client = Command::new(HELLO).arg("127.0.0.1:1").output().unwrap();
    let text = String::from_utf8_lossy(&client.stderr).into_owned();
    assert!(!client.status.success());
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn it_is_under_sixty_lines() {
    let source = include_str!("../hello_rdma.rs");
    assert!(source.lines().count() < 60);
}
