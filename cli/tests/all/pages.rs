//! Tests of state pages on file systems that are full or refuse writes, and of a page whose process id belongs to
//! another process now. Mounting needs root.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::FlockOperation;
use serde_json::Value;
use warpline_skip::skip;

use crate::stat::Runtime;
use crate::support::{Running, line_with};

/// A file system in memory at the directory of a test, unmounted at the end.
struct Mounted(Runtime);

impl Mounted {
    /// `None`: this user may not mount.
    fn new(test: &str, options: &str) -> Option<Self> {
        let runtime = Runtime::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&runtime.0).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(runtime));
        }
        skip(test, warpline_skip::NOT_ROOT);
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).status();
    }
}

/// A server of pings, with its page below the directory, and its address.
fn serve(runtime: &Runtime) -> (Running, String) {
    let mut server = runtime.start(&["ping", "--serve=127.0.0.1:0"]);
    let line = line_with(&mut server.stdout(), |line| line.contains(" at "));
    (server, line.rsplit(' ').next().unwrap().to_owned())
}

/// A client that completes a round trip, and keeps its connection.
fn ping(runtime: &Runtime, address: &str) -> Running {
    let mut client = runtime.start(&["ping", address, "-i", "3600", "-c", "2"]);
    line_with(&mut client.stdout(), |line| line.contains("time="));
    client
}

/// What the doctor finds of state pages.
fn finding(runtime: &Runtime) -> String {
    let (_, out, _) = runtime.run(&["doctor", "--json"]);
    let all: Value = serde_json::from_str(&out).unwrap();
    let found = all["findings"].as_array().unwrap().iter();
    let found: Vec<_> = found.filter(|of| of["check"] == "state pages").collect();
    serde_json::to_string(&found).unwrap()
}

#[test]
fn a_file_system_that_refuses_writes_disables_publication_only() {
    let Some(mounted) = Mounted::new("state page on a read-only file system", "ro") else { return };
    let (server, address) = serve(&mounted.0);
    let _client = ping(&mounted.0, &address);
    let (status, _, error) = mounted.0.run(&["stat", &server.id().to_string()]);
    assert!(status == Some(1) && error.contains("publishes nothing"), "{error}");
    let found = finding(&mounted.0);
    assert!(found.contains("\"fail\"") && found.contains("Read-only file system"), "{found}");
}

#[test]
fn a_full_file_system_disables_publication_only() {
    let Some(mounted) = Mounted::new("state page on a full file system", "size=4k") else { return };
    let (server, address) = serve(&mounted.0);
    let _client = ping(&mounted.0, &address);
    let (status, _, error) = mounted.0.run(&["stat", &server.id().to_string()]);
    assert!(status == Some(1) && error.contains("publishes nothing"), "{error}");
    let left: Vec<_> = std::fs::read_dir(mounted.0.0.join("warpline")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let found = finding(&mounted.0);
    assert!(found.contains("\"fail\"") && found.contains(" octets are free"), "{found}");
}

/// The page of a server has room for a few connections; when it must grow, there is none.
#[test]
fn connections_beyond_a_page_that_cannot_grow_are_served_and_counted() {
    const CLIENTS: usize = 20;
    let Some(mounted) = Mounted::new("state page that cannot grow", "size=1m") else { return };
    let (server, address) = serve(&mounted.0);
    let mut rest = std::fs::File::create(mounted.0.0.join("rest")).unwrap();
    while rest.write(&[1; 4096]).is_ok() {}
    let others = Runtime::new();
    let _clients: Vec<_> = (0..CLIENTS).map(|_| ping(&others, &address)).collect();
    let pid = server.id().to_string();
    let all = mounted.0.json(&["stat", &pid, "--json"]);
    let process = &all["processes"][0];
    let shown = process["connections"].as_array().unwrap().len();
    let without = process["unpublished"].as_u64().unwrap() as usize;
    assert!(shown > 0 && without > 0 && shown + without >= CLIENTS, "{shown}, {without}");
    let (_, table, _) = mounted.0.run(&["stat", &pid]);
    assert!(table.contains(&format!("{without} queue pair")), "{table}");
}

/// The start time of a process, in clock ticks since boot (proc(5): `starttime`).
fn start_of(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap()
}

/// A child of the dead owner still has the lock of its page, and another process has its process id.
#[test]
fn a_page_of_an_earlier_process_of_the_same_id_is_removed() {
    let runtime = Runtime::new();
    let (server, client, _) = runtime.pair();
    let page = |pid: u32| -> PathBuf { runtime.0.join("warpline").join(format!("{pid}.state")) };
    let mut octets = std::fs::read(page(server.id())).unwrap();
    let sleep = Command::new("sleep").arg("3600").spawn().unwrap();
    let now = Running::new(sleep);
    let old = server.id().to_le_bytes();
    let at = octets.windows(4).position(|window| window == old).unwrap();
    octets[at..at + 4].copy_from_slice(&now.id().to_le_bytes());
    let mut processes = |start: u64| {
        // state_page::layout: the start time is after the process and user ids.
        octets[at + 8..at + 16].copy_from_slice(&start.to_le_bytes());
        std::fs::write(page(now.id()), &octets).unwrap();
        std::fs::set_permissions(page(now.id()), PermissionsExt::from_mode(0o600)).unwrap();
        let file = std::fs::File::open(page(now.id())).unwrap();
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        let all = runtime.json(&["stat", "--json"]);
        let all = all["processes"].as_array().unwrap();
        all.iter().map(|of| of["pid"].as_u64().unwrap() as u32).collect::<Vec<_>>()
    };
    let sorted = |mut pids: Vec<u32>| {
        pids.sort();
        pids
    };
    let start = start_of(now.id());
    assert_eq!(processes(start), sorted(vec![server.id(), client.id(), now.id()]));
    assert_eq!(processes(start - 1), sorted(vec![server.id(), client.id()]));
    assert!(!page(now.id()).exists());
}
