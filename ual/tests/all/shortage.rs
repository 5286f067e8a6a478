//! A process that has no descriptors left: a call that fails gives the reason, and works again when there are
//! some.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use ual::vp_api::{AsyncEvent, Shortage};
use ual::{EvdInit, Event, Stream};

use crate::common::{HANG, LOCALHOST, Side, policy};

const ROLE: &str = "UAL_TEST_WITHOUT_DESCRIPTORS";

/// Runs the test below in a process of its own with few descriptors.
#[test]
fn a_lack_of_descriptors_is_reported_as_the_cause() {
    let run =
        format!("ulimit -n 64; {ROLE}=1 exec \"$0\" --exact shortage::in_a_process --nocapture");
    let me = std::env::current_exe().unwrap();
    let output = Command::new("sh").arg("-c").arg(run).arg(me).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Opens files until no descriptor is left.
fn hoard() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Not a test: what the one above runs.
#[test]
fn in_a_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server = Side::new(policy());
    let events = server.ia.create_evd(EvdInit::new(Stream::Unaffiliated, 16)).unwrap();
    let listen = server.listen(LOCALHOST);
    assert!(!server.ia.ports().unwrap().is_empty());
    let mut hoard = hoard();
    let error = server.ia.ports().unwrap_err().to_string();
    assert!(error.contains("list the ports") && error.contains("Too many open files"), "{error}");
    // One descriptor, for this end of a connection; there is none for the other.
    drop(hoard.pop());
    let mut stream = TcpStream::connect(listen.addresses()[0]).unwrap();
    stream.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
    let Event::Unaffiliated { port: None, event } = events.wait(Some(HANG)).unwrap() else {
        panic!()
    };
    let address = listen.addresses()[0];
    let lacks = Shortage::Descriptors;
    assert_eq!(event, AsyncEvent::ListenShortage { listener: address, lacks });
    let text = event.to_string();
    let parts = [&*address.to_string(), "no descriptors", "ulimit -n"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(server.requests.queued(), 0);
    drop(hoard);
    server.request();
    assert_eq!(events.queued(), 0);
}
