//! Local streams when a resource is short: descriptors, permits, memory of a cgroup; and children that outlive it.
//!
//! Tests that change their process run in one of their own: this test program again.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use ual_cm::{AcceptParams, ConnEvent, ConnectParams, Disconnect, NotLocal, Policy};

use crate::common::{as_connectee, next, runs};
use crate::local::{Side, established, is_local, pair_of};
use crate::rendezvous::disconnect_and_reset;

const ROLE: &str = "WARPLINE_SHORTAGE_ROLE";

fn is_the_other() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// This test alone, in a process of its own.
fn other(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("shortage::{test}"), "--nocapture"]).env(ROLE, "1");
    command
}

fn is_fine(mut other: Command) {
    let out = other.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {}{text}", out.status, String::from_utf8_lossy(&out.stdout));
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// With any number of descriptors left the result is a connection, through memory or TCP, or an error; and no
/// descriptor leaks.
#[test]
fn without_descriptors_the_stream_stays_on_tcp_or_fails() {
    if !is_the_other() {
        return is_fine(other("without_descriptors_the_stream_stays_on_tcp_or_fails"));
    }
    let soon = Policy {
        connect_timeout: Duration::from_millis(300),
        request_timeout: Duration::from_millis(300),
        ..Policy::default()
    };
    let (near, far) = (Side::new(soon.clone()), Side::new(soon));
    let listening = far.machine.listener();
    let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
    is_local(&near, &far, &pair, (active, passive));
    let (before, limit) = (descriptors(), getrlimit(Resource::Nofile));
    let (mut by_memory, mut by_tcp, mut none) = (0, 0, 0);
    for spare in (0..24).cycle().take(runs().max(24)) {
        let (active, events) = near.machine.endpoint();
        let (passive, passive_events) = far.machine.endpoint();
        let current = Some((descriptors() + spare) as u64);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
        let params = ConnectParams::new(listening.address);
        if near.machine.cm.connect(&as_connectee(&active), params).is_err() {
            none += 1;
        } else {
            // The listener pauses while there is no descriptor; then the other end gives up.
            let ended = loop {
                if let Ok(request) = listening.requests.try_recv() {
                    let accept = AcceptParams::default();
                    let accepted =
                        far.machine.cm.accept(&as_connectee(&passive), request.request, accept);
                    if accepted.is_ok() {
                        next(&passive_events, "event of the passive end");
                    }
                }
                if let Ok(event) = events.recv_timeout(Duration::from_millis(1)) {
                    break event;
                }
            };
            match ended {
                ConnEvent::Established(made) if made.local.is_ok() => by_memory += 1,
                ConnEvent::Established(_) => by_tcp += 1,
                _ => none += 1,
            }
        }
        setrlimit(Resource::Nofile, limit).unwrap();
        for (side, endpoint) in [(&near, &active), (&far, &passive)] {
            side.machine.cm.forget(endpoint.qp.id());
            side.machine.rnic.destroy_qp(endpoint.qp.id()).unwrap();
            side.forget(endpoint.qp.id());
        }
        while let Ok(request) = listening.requests.try_recv() {
            let _ = ual_cm::reject(request.request, &[]);
        }
    }
    assert!(by_memory > 0 && by_tcp > 0 && none > 0, "{by_memory} {by_tcp} {none}");
    warpline_patience::until("all descriptors to be closed", || descriptors() <= before);
    let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
    is_local(&near, &far, &pair, (active, passive));
}

/// The name of a start-up belongs to this process: a child that it forks or starts meanwhile does not keep it.
#[test]
fn children_keep_no_name() {
    if !is_the_other() {
        return is_fine(other("children_keep_no_name"));
    }
    let side = Side::new(Policy::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    for how in ["fork", "exec"].into_iter().cycle().take(2 * runs().max(1)) {
        let (endpoint, events) = side.machine.endpoint();
        side.machine.cm.connect(&as_connectee(&endpoint), ConnectParams::new(at)).unwrap();
        let (mut tcp, from) = listener.accept().unwrap();
        let name = format!("warpline/2/mpa/{from}-{}", at.port());
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let is_free = || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            bind(&socket, &name).is_ok()
        };
        // With the request the name is bound.
        std::io::Read::read_exact(&mut tcp, &mut [0; 20]).unwrap();
        assert!(!is_free());
        let child = match how {
            "fork" => Lives::Forked(forked()),
            _ => Lives::Started(
                Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap(),
            ),
        };
        side.machine.cm.disconnect(&as_connectee(&endpoint), Disconnect::Abrupt).unwrap();
        next(&events, "end of the attempt");
        // The kernel closes close-on-exec descriptors a moment after the parent continues.
        warpline_patience::until(&format!("the name, after {how}"), is_free);
        child.ends();
    }
    std::io::stdout().flush().unwrap();
}

enum Lives {
    Forked(libc::pid_t),
    Started(Child),
}

impl Lives {
    fn ends(self) {
        match self {
            Self::Forked(pid) => {
                // SAFETY: a child of this process, which was not waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                // SAFETY: the same; nothing is written.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            }
            Self::Started(mut child) => {
                drop(child.stdin.take());
                child.wait().unwrap();
            }
        }
    }
}

/// A child that does nothing.
fn forked() -> libc::pid_t {
    // SAFETY: the child only waits for a signal.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        loop {
            // SAFETY: it is safe after fork(2).
            unsafe { libc::pause() };
        }
    }
    assert!(pid > 0);
    pid
}

/// Connections beyond `local_streams` use TCP, with the reason at the end that has no permit.
/// `WARPLINE_LOCAL_CONNECTIONS` is the number of connections.
#[test]
fn many_connections_are_local_up_to_the_limit() {
    if !is_the_other() {
        return is_fine(other("many_connections_are_local_up_to_the_limit"));
    }
    let many = std::env::var("WARPLINE_LOCAL_CONNECTIONS");
    let many: usize = many.map_or(60, |many| many.parse().expect("a number"));
    let limit = many as u32 / 2 + 10;
    let small = Policy { local_streams: limit, local_ring: 64 << 10, ..Policy::default() };
    let (near, far) = (Side::new(small.clone()), Side::new(small));
    let (mut open, mut local) = (Vec::new(), 0);
    for _ in 0..many {
        let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
        match (established(active).local, established(passive).local) {
            (Ok(()), Ok(())) => local += 1,
            (Err(NotLocal::Limit), Err(NotLocal::PeerPlain | NotLocal::Limit))
            | (Err(NotLocal::PeerPlain), Err(NotLocal::Limit)) => {}
            // Only on a machine that is busy for so long.
            (Err(NotLocal::PeerLeft | NotLocal::TimedOut), Err(NotLocal::TimedOut)) => {}
            other => panic!("{other:?}"),
        }
        // Its memory is the provider's, which is this test.
        near.local(&pair.active.0);
        far.local(&pair.passive.0);
        open.push(pair);
    }
    // Each connection has both its ends here.
    assert_eq!(local, limit as usize / 2);
    println!("{local} of {many} local");
}

/// A cgroup whose memory is used up: the connection uses TCP, and the process survives.
#[test]
fn at_the_limit_of_a_memory_cgroup_the_stream_stays_on_tcp() {
    let name = "at_the_limit_of_a_memory_cgroup_the_stream_stays_on_tcp";
    if let Some(group) = std::env::var_os(ROLE) {
        let group = std::path::Path::new(&group);
        let v1 = group.join("memory.limit_in_bytes").exists();
        let (near, far) = (Side::new(Policy::default()), Side::new(Policy::default()));
        let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
        is_local(&near, &far, &pair, (active, passive));
        // A reading of the groups is valid for 100 ms.
        let begin = std::time::Instant::now();
        warpline_patience::until("the reading to expire", || {
            begin.elapsed() > Duration::from_millis(101)
        });
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        let (used, most) = match v1 {
            true => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
            false => ("memory.current", "memory.max"),
        };
        let mut refused = 0;
        for _ in 0..runs() {
            // Less than a ring needs.
            let used = std::fs::read_to_string(group.join(used)).unwrap();
            let used: u64 = used.trim().parse().unwrap();
            std::fs::write(group.join(most), (used + (800 << 10)).to_string()).unwrap();
            let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
            // Memory that other threads free meanwhile may suffice for a ring.
            refused += usize::from(established(passive).local == Err(NotLocal::NoMemory));
            established(active);
            disconnect_and_reset(&near, &pair.active.0);
            disconnect_and_reset(&far, &pair.passive.0);
        }
        assert!(refused > runs() / 2, "{refused} refused");
        return;
    }
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    let made = roots.iter().find_map(|root| {
        let group = std::path::Path::new(root).join(format!("warpline-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        let has = ["memory.limit_in_bytes", "memory.max"].iter().any(|f| group.join(f).exists());
        if !has {
            std::fs::remove_dir(&group).unwrap();
        }
        has.then_some(group)
    });
    let Some(group) = made else {
        return warpline_skip::skip(name, "no memory cgroup can be made");
    };
    let mut other = other(name);
    other.env(ROLE, &group);
    let out = other.stdin(Stdio::null()).output().unwrap();
    warpline_patience::until("the cgroup to be empty", || std::fs::remove_dir(&group).is_ok());
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}
