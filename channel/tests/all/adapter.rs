//! Sessions over an adapter's device, the test double of rdma-core's libraries, with SoftRDMA as the second way: the adapter's
//! connections are cut, the adapter fails.
//!
//! The loader uses the environment of the process's start, so each test runs itself again, with the test double under the
//! names of rdma-core.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use fake_verbs::orders;
use itapi::Ia;
use warpline_channel::{Channel, Listener, Options};

use crate::pair::message;
use crate::resume::{RESUME, impatient};

/// Set in the child.
const CHILD: &str = "WARPLINE_CHANNEL_TEST_ADAPTER";
/// Of `connect` and others that a device of no use cannot do.
const EIO: i32 = 5;

/// Runs a test in a process that has the test double.
fn with_an_adapter(test: &str, body: fn()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let dir = program.with_file_name(format!("channel-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for soname in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink(program.with_file_name("libfake_verbs.so"), dir.join(soname)).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["--exact", &format!("adapter::{test}"), "--nocapture"]);
    let output = command.env("LD_LIBRARY_PATH", &dir).env(CHILD, "1").output().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The end that connects of a session of two ways: by the adapter, and by SoftRDMA. The other end, which listens by both, echoes.
struct Caller {
    channel: Channel,
    called: u64,
}

impl Caller {
    /// Calls once for each kind of message: the echoes come in order.
    fn call(&mut self) {
        let lengths = [0, 30, 200, 256, 257, 5000, 100_000];
        for (n, octets) in lengths.into_iter().enumerate() {
            let sent = message(self.called + n as u64, octets);
            self.channel.send(sent.clone()).unwrap();
            assert!(self.channel.recv().unwrap().unwrap()[..] == sent, "{octets} octets");
        }
        self.called += 1;
    }

    /// Calls until the session has moved so often, and then some more; it is by this way.
    fn call_until(&mut self, moves: u64, way: usize) {
        while self.channel.resumption().unwrap().moves < moves {
            self.call();
        }
        let so_far = self.channel.resumption().unwrap();
        assert_eq!((so_far.moves, so_far.way, so_far.connected), (moves, way, true));
        (0..20).for_each(|_| self.call());
    }

    fn cause(&self) -> String {
        self.channel.resumption().unwrap().cause.unwrap().to_string()
    }
}

/// Has a session call and echo until it is closed.
fn session(options: Options, calls: impl FnOnce(&mut Caller)) {
    let (adapter, soft) = (Ia::builder().device("fakeib0").open().unwrap(), impatient());
    let listeners =
        [&adapter, &soft].map(|ia| Listener::bind_with(ia, "127.0.0.1:0", options).unwrap());
    let ways = [(adapter, listeners[0].address()), (soft, listeners[1].address())];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let channel = listeners[0].accept().unwrap();
            while let Some(message) = channel.recv().unwrap() {
                channel.send(&message).unwrap();
            }
            channel.close().unwrap();
        });
        let channel = Channel::connect_any(ways, options).unwrap();
        let mut caller = Caller { channel, called: 0 };
        calls(&mut caller);
        caller.channel.close().unwrap();
    });
}

#[test]
fn a_session_leaves_an_adapter_whose_connection_is_lost_and_returns() {
    with_an_adapter("a_session_leaves_an_adapter_whose_connection_is_lost_and_returns", || {
        let returns = Some(Duration::from_millis(10));
        session(Options { returns, ..RESUME }, |caller| {
            caller.call_until(0, 0);
            let losses: [fn(); 2] = [orders::disconnect, orders::lose_the_next_send];
            for (n, lose) in losses.into_iter().enumerate() {
                let moves = 2 * n as u64;
                orders::fail("rdma_resolve_addr", EIO);
                lose();
                caller.call_until(moves + 1, 1);
                orders::fail("rdma_resolve_addr", 0);
                caller.call_until(moves + 2, 0);
                assert_eq!(caller.cause(), "a preferred way is back");
            }
        });
    });
}

#[test]
fn a_session_leaves_an_adapter_that_is_removed() {
    with_an_adapter("a_session_leaves_an_adapter_that_is_removed", || {
        session(RESUME, |caller| {
            caller.call_until(0, 0);
            orders::fail("rdma_resolve_addr", EIO);
            orders::remove();
            caller.call_until(1, 1);
            let cause = caller.cause();
            assert!(cause.contains("the device was removed"), "{cause}");
        });
    });
}
