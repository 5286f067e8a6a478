//! Processes that fork: the child keeps no connection and no port of the parent, disturbs none, and can open
//! adapters of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::common::{LOCALHOST, Side, policy};
use ual::{AcceptParams, ConnEvent, ConnectParams, Disconnect, Ep, Listen, ListenInit};

const ROLE: &str = "UAL_TEST_FORK_ROLE";
const ADDRESS: &str = "UAL_TEST_FORK_ADDRESS";

/// Messages of the parent, which forks meanwhile.
const MESSAGES: u64 = 60;
/// How often it forks.
const FORKS: u64 = 20;

/// A process that forks, and its standard input: its children live until the input ends.
struct Forking {
    process: Child,
    stdin: Option<ChildStdin>,
    out: Box<dyn BufRead>,
}

impl Forking {
    /// This test binary again.
    fn start(role: &str, address: SocketAddr) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "forks::forking_process", "--nocapture"])
            .envs([(ROLE, role), (ADDRESS, &address.to_string())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, out) = (process.stdin.take(), process.stdout.take().unwrap());
        Self { process, stdin, out: Box::new(BufReader::new(out)) }
    }

    /// The line that it prints about this topic.
    fn says(&mut self, of: &str) -> String {
        let _guard = warpline_patience::Guard::new("the process that forks to print a line");
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.out.read_line(&mut line).unwrap(),
                0,
                "it ended and printed nothing about {of}"
            );
            if let Some((_, printed)) = line.split_once(of) {
                return printed.trim().to_owned();
            }
        }
    }

    /// Its children may end.
    fn let_go(&mut self) {
        self.stdin = None;
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        self.let_go();
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say(what: &str) {
    println!("{what}");
    std::io::stdout().flush().unwrap();
}

/// A child that does `work`; its id.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the C library's own state is consistent in the child (fork(2)); that of this library is what
    // these tests check.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        -1 => panic!("{}", std::io::Error::last_os_error()),
        child => child,
    }
}

/// Lives until the standard input ends.
fn live() {
    let mut octet = [0; 1];
    while std::io::Read::read(&mut std::io::stdin(), &mut octet).is_ok_and(|read| read != 0) {}
}

fn is_alive(process: i32) -> bool {
    // SAFETY: signal 0 only checks that the process exists.
    unsafe { libc::kill(process, 0) == 0 }
}

fn status_of(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process, and a number that may be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Not a test: the side that forks.
#[test]
fn forking_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let address: SocketAddr = std::env::var(ADDRESS).unwrap().parse().unwrap();
    let side = Side::new(policy());
    match role.as_str() {
        "leaves" => {
            let _ep = connect(&side, address);
            say(&format!("child {}", fork(live)));
            std::process::exit(0);
        }
        "destroys" => {
            let ep = connect(&side, address);
            say(&format!("child {}", fork(live)));
            ep.close().unwrap();
            live();
        }
        "listens" => listens_again(&side),
        "sends" => sends(&side, address),
        "anew" => anew(&side, address),
        other => panic!("{other}"),
    }
}

fn connect(side: &Side, address: SocketAddr) -> std::sync::Arc<Ep> {
    let ep = side.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    side.established();
    ep
}

fn listens_again(side: &Side) {
    let listen = side.listen(LOCALHOST);
    let address = listen.addresses()[0];
    let child = fork(live);
    listen.close().unwrap();
    let again = || side.ia.listen(ListenInit::new(address, &side.requests));
    // The connection manager's thread closes the socket.
    warpline_patience::until("the port to be free", || again().is_ok());
    assert!(is_alive(child));
    say("listens again");
    live();
}

fn sends(side: &Side, address: SocketAddr) {
    let ep = connect(side, address);
    for n in 0..MESSAGES {
        side.region.write_at(0, &n.to_be_bytes()).unwrap();
        side.send(&ep, n, 0, 8);
        if n % (MESSAGES / FORKS) == 0 {
            fork(live);
        }
        assert_eq!(side.success().wr_id, n);
    }
    say("sent");
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { .. }));
    live();
}

fn anew(side: &Side, address: SocketAddr) {
    let ep = connect(side, address);
    let generation = kal_shim::fork::generation();
    let child = fork(|| {
        assert_ne!(kal_shim::fork::generation(), generation);
        let side = Side::new(policy());
        // The ports of the parent's listeners are not its own.
        let listen = side.listen(LOCALHOST);
        let ep = connect(&side, address);
        side.region.write_at(0, b"child").unwrap();
        side.send(&ep, 1, 0, 5);
        assert_eq!(side.success().wr_id, 1);
        ep.disconnect(Disconnect::Graceful).unwrap();
        assert!(matches!(side.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
        listen.close().unwrap();
    });
    say(&format!("status {}", status_of(child)));
    assert_eq!(kal_shim::fork::generation(), generation);
    side.region.write_at(0, b"mother").unwrap();
    side.send(&ep, 2, 0, 6);
    assert_eq!(side.success().wr_id, 2);
    live();
}

/// A side that accepts connections.
struct Taker {
    side: Side,
    listen: std::sync::Arc<Listen>,
}

impl Taker {
    fn new() -> Self {
        let side = Side::new(policy());
        let listen = side.listen(LOCALHOST);
        Self { side, listen }
    }

    fn start(&self, role: &str) -> Forking {
        Forking::start(role, self.listen.addresses()[0])
    }

    /// The next connection, with these receives of 8 octets, each at a place of its own.
    fn take(&self, receives: Range<u64>) -> std::sync::Arc<Ep> {
        let (ep, request) = (self.side.ep(), self.side.request());
        for wr_id in receives {
            self.side.post_recv(&ep, wr_id, wr_id * 8, 8);
        }
        ep.accept(request.request, AcceptParams::default()).unwrap();
        self.side.established();
        ep
    }

    fn ends(&self) {
        match self.side.conn_event() {
            ConnEvent::Disconnected { by_peer: true, .. } => {}
            other => panic!("{other}"),
        }
    }

    fn received(&self, octets: &[u8]) {
        let completion = self.side.success();
        let mut found = vec![0; completion.octets as usize];
        self.side.region.read_at(completion.wr_id as usize * 8, &mut found).unwrap();
        assert_eq!(found, octets);
    }
}

#[test]
fn a_peer_that_ends_is_seen_to_end_though_its_child_lives() {
    for role in ["leaves", "destroys"] {
        let taker = Taker::new();
        let mut forking = taker.start(role);
        let _ep = taker.take(0..0);
        let child = forking.says("child ").parse().unwrap();
        taker.ends();
        assert!(is_alive(child), "{role}");
        forking.let_go();
    }
}

#[test]
fn a_port_is_free_again_though_a_child_lives() {
    let mut forking = Taker::new().start("listens");
    forking.says("listens again");
}

#[test]
fn forks_disturb_no_connection() {
    let taker = Taker::new();
    let mut forking = taker.start("sends");
    let _ep = taker.take(0..MESSAGES);
    (0..MESSAGES).for_each(|n| taker.received(&n.to_be_bytes()));
    forking.says("sent");
    taker.ends();
}

#[test]
fn a_child_opens_adapters_of_its_own() {
    let taker = Taker::new();
    let mut forking = taker.start("anew");
    let _mothers = taker.take(0..1);
    let _childs = taker.take(1..2);
    taker.received(b"child");
    taker.ends();
    assert_eq!(forking.says("status "), "0");
    taker.received(b"mother");
}
