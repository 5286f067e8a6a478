//! Connections between two processes: connect, accept, Send, RDMA Write, disconnect; and what one side gets
//! when the other is killed.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{LOCALHOST, Side, policy};
use ual::vp_api::{Remote, SendOp, Stag, WcStatus};
use ual::{AcceptParams, BrokenCause, ConnEvent, ConnectParams, Disconnect, EpState, Policy};

const ROLE: &str = "UAL_TEST_ROLE";

/// A child that does not outlive its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this test binary again, as the server with this role. The first line that it prints is its address.
fn spawn(role: &str) -> (Server, SocketAddr, impl BufRead) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "two_processes::server_process", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let _guard = warpline_patience::Guard::new("the server to print its address");
    let address = loop {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the server printed no address");
        if let Some((_, address)) = line.split_once("address ") {
            break address.trim().parse().unwrap();
        }
    };
    (Server(child), address, out)
}

/// Loads the configuration with these variables, in a process of its own.
fn load_with(variables: &[(&str, &std::path::Path)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "two_processes::loading_process", "--nocapture"]);
    command.env(LOADS, "1").env_remove("WARPLINE_CONFIG").env_remove("HOME");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Set for [`loading_process`].
const LOADS: &str = "UAL_TEST_LOADS";

/// Not a test: loads the configuration and prints the result.
#[test]
fn loading_process() {
    if std::env::var_os(LOADS).is_some() {
        match ual::Config::load() {
            Ok(config) => println!("half_open {}", config.policy.half_open),
            Err(error) => println!("error {error}"),
        }
    }
}

#[test]
fn the_environment_names_the_configuration() {
    let dir = std::env::temp_dir().join(format!("warpline-config-{}", std::process::id()));
    let user = dir.join(".config/warpline/warpline.toml");
    std::fs::create_dir_all(user.parent().unwrap()).unwrap();
    std::fs::write(&user, "[policy]\nhalf_open = 7\n").unwrap();
    let named = dir.join("named.toml");
    std::fs::write(&named, "[policy]\nhalf_open = 8\n").unwrap();
    let (home, nothing) = (("HOME", &*dir), std::path::Path::new(""));
    assert!(load_with(&[home]).contains("half_open 7"));
    assert!(load_with(&[home, ("WARPLINE_CONFIG", &named)]).contains("half_open 8"));
    // An empty variable names no file.
    assert!(load_with(&[home, ("WARPLINE_CONFIG", nothing)]).contains("half_open 7"));
    let missing = load_with(&[home, ("WARPLINE_CONFIG", &dir.join("missing.toml"))]);
    assert!(missing.contains("error ") && missing.contains("missing.toml"), "{missing}");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Not a test: the server's side of those below, in its own process.
#[test]
fn server_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let side = Side::new(policy());
    let listen = side.listen(LOCALHOST);
    println!("address {}", listen.addresses()[0]);
    std::io::stdout().flush().unwrap();
    let ep = side.ep();
    side.post_recv(&ep, 1, 0, 1000);
    side.post_recv(&ep, 2, 1000, 1000);
    let request = side.request();
    assert_eq!(request.private_data, b"hello");
    // The memory that the client may write: STag and TO.
    let mut place = side.lmr.stag().0.to_be_bytes().to_vec();
    place.extend((side.region.addr() + 4096).to_be_bytes());
    let params = AcceptParams { private_data: place, ..AcceptParams::default() };
    ep.accept(request.request, params).unwrap();
    side.established();
    if role == "silent" {
        // Until the parent kills this process, or ends.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    // The Send comes after the Write, so the Write is placed.
    assert_eq!((side.success().wr_id, side.success().wr_id), (1, 2));
    let mut written = vec![0; 30000];
    side.region.read_at(4096, &mut written).unwrap();
    assert!(written.iter().all(|octet| *octet == 0xA5));
    side.send(&ep, 3, 0, 7);
    assert_eq!(side.success().wr_id, 3);
    match side.conn_event() {
        ConnEvent::Disconnected { by_peer: true, .. } => {}
        other => panic!("{other}"),
    }
}

// [CONN-21]
#[test]
fn send_and_write_cross_between_processes() {
    let (mut child, address, _out) = spawn("talk");
    let side = Side::new(policy());
    let ep = side.ep();
    let params = ConnectParams { private_data: b"hello".to_vec(), ..ConnectParams::new(address) };
    ep.connect(params).unwrap();
    let established = side.established();
    assert_eq!((established.local, established.crc), (Ok(()), false));
    let (stag, to) = established.private_data.split_at(4);
    let remote = Remote {
        stag: Stag(u32::from_be_bytes(stag.try_into().unwrap())),
        to: u64::from_be_bytes(to.try_into().unwrap()),
    };
    side.post_recv(&ep, 9, 60000, 100);
    side.region.fill(0, 30000, 0xA5).unwrap();
    side.send(&ep, 10, 0, 500);
    side.post(&ep, 11, SendOp::Write { remote }, 0, 30000);
    side.send(&ep, 12, 0, 500);
    let mut done: Vec<_> = (0..4).map(|_| side.success().wr_id).collect();
    done.sort_unstable();
    assert_eq!(done, [9, 10, 11, 12]);
    ep.disconnect(Disconnect::Graceful).unwrap();
    match side.conn_event() {
        ConnEvent::Disconnected { by_peer: false, .. } => {}
        other => panic!("{other}"),
    }
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_killed_peer_is_named_and_everything_posted_completes() {
    let (mut child, address, _out) = spawn("silent");
    let side = Side::new(policy());
    let ep = side.ep();
    for wr_id in 0..10 {
        side.post_recv(&ep, wr_id, 0, 100);
    }
    let params = ConnectParams { private_data: b"hello".to_vec(), ..ConnectParams::new(address) };
    ep.connect(params).unwrap();
    side.established();
    child.0.kill().unwrap();
    match side.conn_event() {
        ConnEvent::Broken { ends, cause, .. } => {
            assert_eq!(ends.remote.address, address);
            assert!(matches!(cause, BrokenCause::ClosedInWork | BrokenCause::Reset), "{cause}");
        }
        ConnEvent::Disconnected { by_peer: true, ends } => {
            assert_eq!(ends.remote.address, address);
        }
        other => panic!("{other}"),
    }
    for wr_id in 0..10 {
        let completion = side.completion();
        assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Flushed));
    }
}

/// Whichever end sees the FIN first: an end that flushes a request, posted while the connection was established,
/// is not orderly; and a disconnect after it does not make it orderly.
#[test]
fn a_peer_killed_in_the_middle_of_a_request_does_not_look_orderly() {
    for round in 0..20 {
        let (mut child, address, _out) = spawn("silent");
        let side = Side::new(policy());
        let ep = side.ep();
        let params =
            ConnectParams { private_data: b"hello".to_vec(), ..ConnectParams::new(address) };
        ep.connect(params).unwrap();
        let place = side.established().private_data;
        let remote = Remote {
            stag: Stag(u32::from_be_bytes(place[..4].try_into().unwrap())),
            to: u64::from_be_bytes(place[4..12].try_into().unwrap()),
        };
        let mut reads = 0;
        let stood = loop {
            let op = SendOp::Read { remote, invalidate_sink: false };
            side.post(&ep, reads, op, 0, 1000);
            let stood = ep.state() == EpState::Connected;
            if side.completion().status != WcStatus::Success {
                break stood;
            }
            reads += 1;
            if reads == 10 + round {
                child.0.kill().unwrap();
            }
        };
        ep.disconnect(Disconnect::Graceful).unwrap();
        match side.conn_event() {
            ConnEvent::Broken { cause: BrokenCause::ClosedInWork | BrokenCause::Reset, .. } => {}
            ConnEvent::Disconnected { by_peer: true, .. } if !stood => {}
            other => panic!("round {round}, behind {reads} reads: {other}"),
        }
    }
}

/// Stops a child, every thread of it.
fn stop(child: &Server) {
    let id = child.0.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
    let stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        status.contains("\nState:\tT")
    };
    warpline_patience::until("all threads of the process to be stopped", || {
        std::fs::read_dir(format!("/proc/{id}/task")).unwrap().all(stopped)
    });
}

// [CONN-14]: TCP alone would never notice, since a stopped process's kernel acknowledges.
#[test]
fn a_stopped_peer_is_noticed_by_the_probe() {
    let (child, address, _out) = spawn("silent");
    let soon = Some(Duration::from_millis(100));
    let side = Side::new(Policy { probe_after: soon, ..policy() });
    let ep = side.ep();
    side.post_recv(&ep, 1, 0, 100);
    let params = ConnectParams { private_data: b"hello".to_vec(), ..ConnectParams::new(address) };
    ep.connect(params).unwrap();
    side.established();
    stop(&child);
    match side.conn_event() {
        ConnEvent::Broken { cause: BrokenCause::Lost, ends, .. } => {
            assert_eq!(ends.remote.address, address);
        }
        other => panic!("{other}"),
    }
    assert_eq!(side.completion().status, WcStatus::Flushed);
}

// A stopped peer delays a graceful disconnect no longer than the close time-out.
#[test]
fn a_disconnect_from_a_stopped_peer_ends() {
    let (child, address, _out) = spawn("silent");
    let side = Side::new(Policy { close_timeout: Duration::from_millis(100), ..policy() });
    let ep = side.ep();
    side.post_recv(&ep, 1, 0, 100);
    let params = ConnectParams { private_data: b"hello".to_vec(), ..ConnectParams::new(address) };
    ep.connect(params).unwrap();
    side.established();
    stop(&child);
    ep.disconnect(Disconnect::Graceful).unwrap();
    match side.conn_event() {
        ConnEvent::Disconnected { by_peer: false, .. } => {}
        other => panic!("{other}"),
    }
    assert_eq!(side.completion().status, WcStatus::Flushed);
}

#[test]
fn a_connect_to_a_stopped_process_is_given_up() {
    let (child, address, _out) = spawn("silent");
    stop(&child);
    let side = Side::new(Policy { connect_timeout: Duration::from_millis(100), ..policy() });
    let ep = side.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    match side.conn_event() {
        ConnEvent::Failed(error) => assert_eq!(error.reason.code(), "cm-reply-timeout"),
        other => panic!("{other}"),
    }
}
