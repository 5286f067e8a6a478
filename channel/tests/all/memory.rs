//! A process that gets no more memory: a channel goes on with what it has, or names what it had no memory for.

use std::process::Command;

use itapi::{RemoteRange, RmrContext};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use warpline_channel::wire::Kind;
use warpline_channel::{Channel, Error, Listener, Options};

use crate::hostile::Hostile;
use crate::pair::{HANG, message, open, uneven};

/// Set for the process with little memory.
const CHILD: &str = "WARPLINE_CHANNEL_TEST_MEMORY";

/// From now on this process gets `more` octets of addresses at most.
fn limit(more: u64) {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
    let former = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some((pages << 12) + more), ..former }).unwrap();
}

/// Runs this test again as a process of its own.
pub(crate) fn in_a_process(test: &str, run: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test]).env(CHILD, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn receives_stay_small_without_memory_for_long_ones() {
    in_a_process("memory::receives_stay_small_without_memory_for_long_ones", || {
        // Long receives would take 150 MiB.
        let many = Options { small: 4096, slots: 512, large: 64, ..Options::default() };
        let (client, server) = uneven(many, Options { patience: Some(HANG), ..many });
        limit(100 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..800).for_each(|n| client.send(message(n, 20_000)).unwrap()));
            for n in 0..800 {
                assert!(server.recv().unwrap().unwrap()[..] == message(n, 20_000));
            }
        });
    });
}

#[test]
fn a_large_message_without_memory_is_named() {
    in_a_process("memory::a_large_message_without_memory_is_named", || {
        let longest = 1 << 31;
        let ia = open();
        let options = Options { longest, patience: Some(HANG), ..Options::default() };
        let listener = Listener::bind_with(&ia, "127.0.0.1:0", options).unwrap();
        let (hostile, channel): (Hostile, Channel) = Hostile::connect_to(&ia, &listener);
        limit(512 << 20);
        let place = RemoteRange { context: RmrContext(1), addr: 0, len: longest };
        hostile.send(Kind::Large, 0, 0, &place.to_octets());
        let error = channel.recv().unwrap_err();
        assert!(matches!(error, Error::Lost(Some(_))), "{error}");
        assert!(error.to_string().contains(&longest.to_string()), "{error}");
    });
}
