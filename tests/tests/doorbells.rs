//! A peer of another user that has each call on the doorbells of its local stream wait that can wait: the counter of an
//! eventfd at its maximum, and no O_NONBLOCK. Others of the server are served meanwhile.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use itapi::{Ep, Evd, Ia, LocalStreams, Result, Work};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use warpline_patience::{HANG, within};

const TEST: &str = "a_peer_of_another_user_that_spoils_its_doorbells_delays_nobody";
/// In the other process: the server's address.
const PEER_OF: &str = "WARPLINE_TEST_PEER_OF";
/// Messages of the peer, each with its reply.
const MESSAGES: u32 = 200;

fn open() -> Ia {
    Ia::builder().policy(|policy| policy.local = LocalStreams::Require).open().expect("an adapter")
}

/// An end with so many receives.
fn end(ia: &Ia, receives: u32) -> Result<(Evd, Ep)> {
    let (pz, evd) = (ia.pz()?, ia.evd(16 + receives)?);
    let ep = pz.ep(&evd).depth(16, receives).build()?;
    for buffer in pz.buffers(receives as usize, 8)? {
        ep.post_recv(buffer)?;
    }
    Ok((evd, ep))
}

/// Sends a message.
fn send(ep: &Ep, octets: &[u8]) -> Result<()> {
    ep.post(Work::send(octets)).map(drop)
}

/// Waits for a message, and posts its receive again.
fn receive(evd: &Evd, ep: &Ep) -> Result<()> {
    loop {
        if let Some(buffer) = evd.wait_success(HANG)?.into_buffer() {
            return ep.post_recv(buffer).map(drop);
        }
    }
}

/// Adds 1 to an eventfd where write(2) would wait: a read of asynchronous IO that reports its end there (linux/aio_abi.h).
fn add_by_aio(eventfd: &OwnedFd) {
    const IOCB_FLAG_RESFD: u64 = 1;
    let (zeros, mut octet, mut context) =
        (File::open("/dev/zero").expect("it is there"), [0u8], 0u64);
    let at = (&raw mut octet).expose_provenance() as u64;
    // Data, key, operation and file, buffer, octets, offset, reserved, flags and eventfd.
    let (file, told) = (zeros.as_raw_fd() as u64, eventfd.as_raw_fd() as u64);
    let mut request = [0, 0, file << 32, at, 1, 0, 0, IOCB_FLAG_RESFD | told << 32];
    let requests = [&raw mut request];
    // SAFETY: there is room for the context.
    assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) }, 0);
    // SAFETY: one request, whose buffer lives until the context is destroyed.
    let sent = unsafe { libc::syscall(libc::SYS_io_submit, context, 1, requests.as_ptr()) };
    assert_eq!(sent, 1);
    // SAFETY: waits for the request; nobody uses the context.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
}

/// Spoils the doorbells of this process: the eventfds whose counters are near their maximum. Returns how many.
fn spoil_doorbells() -> usize {
    let mut found = 0;
    let all = std::fs::read_dir("/proc/self/fdinfo").expect("this process");
    for number in all.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()) {
        let info =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
        if !count.is_some_and(|count| count.trim().starts_with("fffffff")) {
            continue;
        }
        // SAFETY: it is open: nobody in this process closes doorbells now.
        let bell = unsafe { BorrowedFd::borrow_raw(number) };
        let bell = bell.try_clone_to_owned().expect("room for one");
        let flags = fcntl_getfl(&bell).expect("an eventfd");
        fcntl_setfl(&bell, flags | OFlags::NONBLOCK).expect("an eventfd");
        for power in (0..64).rev() {
            let _ = rustix::io::write(&bell, &(1u64 << power).to_ne_bytes());
        }
        add_by_aio(&bell);
        fcntl_setfl(&bell, flags - OFlags::NONBLOCK).expect("an eventfd");
        found += 1;
    }
    found
}

/// The peer: sends, and waits for replies without polling, so that the server rings.
fn attack(server: &str) -> Result<()> {
    let ia = open();
    let (evd, ep) = end(&ia, MESSAGES)?;
    ep.connect(server, b"")?;
    assert_eq!(spoil_doorbells(), 2, "one for each direction");
    println!("spoiled");
    for _ in 0..MESSAGES {
        send(&ep, b"attack")?;
        // It sleeps in the library, and the reply would wake it.
        while evd.wait(Duration::from_millis(1))?.is_some() {}
    }
    println!("sent");
    // Its doorbells stay as they are until the test has ended.
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(())
}

/// The median of the round trips between two ends of one adapter until `over`.
fn bystanders(ia: &Ia, over: &AtomicBool) -> Result<Duration> {
    let (near, far) = (end(ia, 1)?, end(ia, 1)?);
    let listen = ia.listen("127.0.0.1:0")?;
    let address = listen.address();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listen.request()?.accept(&far.1, b""));
        near.1.connect(address, b"")?;
        accepted.join().expect("no panic").map(drop)
    })?;
    let mut trips = Vec::new();
    while !over.load(Ordering::Acquire) || trips.len() < 100 {
        let begun = Instant::now();
        send(&near.1, b"ping")?;
        receive(&far.0, &far.1)?;
        send(&far.1, b"pong")?;
        receive(&near.0, &near.1)?;
        trips.push(begun.elapsed());
    }
    trips.sort();
    Ok(trips[trips.len() / 2])
}

#[test]
fn a_peer_of_another_user_that_spoils_its_doorbells_delays_nobody() {
    if let Ok(server) = std::env::var(PEER_OF) {
        return attack(&server).expect("the attack");
    }
    if !rustix::process::geteuid().is_root() {
        return warpline_skip::skip(TEST, warpline_skip::NOT_ROOT);
    }
    let ia = open();
    let listen = ia.listen("127.0.0.1:0").expect("a listener");
    // The other user may have no access to the build directory.
    let program = std::env::temp_dir().join(format!("warpline-doorbells-{}", std::process::id()));
    warpline_patience::copy_program(std::env::current_exe().expect("this program"), &program);
    let mut command = Command::new(&program);
    command.args(["--exact", TEST, "--nocapture"]).uid(4321).current_dir("/");
    command.env(PEER_OF, listen.address().to_string()).stdin(Stdio::piped());
    let mut peer = command.stdout(Stdio::piped()).spawn().expect("the peer");
    std::fs::remove_file(&program).expect("the copy");
    let mut said =
        BufReader::new(peer.stdout.take().expect("piped")).lines().map_while(|line| line.ok());
    let (evd, ep) = end(&ia, MESSAGES).expect("an endpoint");
    listen.request().and_then(|request| request.accept(&ep, b"")).expect("the peer's connection");
    assert!(said.any(|line| line == "spoiled"), "the peer ended");
    let over = AtomicBool::new(false);
    let served = || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..MESSAGES {
                    receive(&evd, &ep).expect("a message");
                    send(&ep, b"reply").expect("a reply");
                }
                over.store(true, Ordering::Release);
            });
            bystanders(&ia, &over).expect("bystanders")
        })
    };
    let median = within("the replies and the bystanders", served);
    assert!(said.any(|line| line == "sent"), "the peer ended");
    assert!(median < Duration::from_millis(100), "bystanders waited {median:?}");
    peer.kill().expect("it runs");
    peer.wait().expect("it ran");
}
