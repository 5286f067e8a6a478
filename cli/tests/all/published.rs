//! Tests of what processes publish, as `warpline stat` shows it: exact counts, programs in C and with verbs, programs
//! that must not publish, and pages that are damaged.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbs_programs::process::{free_port, waits_for_a_client};
use verbs_programs::{Libraries, libraries};
use warpline_skip::skip;
use warpline_tests::c::{Kit, Language};

use crate::explain::load::{Load, Manner, Op, ROLES, Role, STREAM, Serve, TEST};
use crate::stat::Runtime;
use crate::support::{Running, line_with, warpline};

/// A user without rights.
const NOBODY: u32 = 65_534;

fn start(runtime: &Runtime, mut command: Command) -> Running {
    command.env("XDG_RUNTIME_DIR", &runtime.0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Running::new(command.spawn().unwrap())
}

pub(crate) fn ends(runtime: &Runtime, roles: &[Role]) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]);
    command.env(ROLES, serde_json::to_string(roles).unwrap());
    start(runtime, command)
}

/// The connections of a process.
fn connections(runtime: &Runtime, pid: u32) -> Vec<Value> {
    let all = runtime.json(&["stat", &pid.to_string(), "--json"]);
    all["processes"][0]["connections"].as_array().unwrap().clone()
}

#[test]
fn counts_of_each_connection_are_those_of_its_program() {
    let runtime = Runtime::new();
    let loads = [
        Load { messages: 1000, size: 8, list: 7, at_once: 14, ..STREAM },
        Load { messages: 321, size: 10_000, depth: 4, at_once: 8, ..STREAM },
        Load { messages: 45, op: Op::Send, size: 64, ..STREAM },
    ];
    let with = Serve { receives: 64, manner: Manner::Poll };
    let server = |address: &str| Role::Serve { address: address.into(), with };
    let mut servers = Vec::new();
    let roles = loads.map(|with| {
        let mut server = ends(&runtime, &[server("127.0.0.1:0")]);
        let line = line_with(&mut server.stdout(), |line| line.starts_with("listening"));
        servers.push(server);
        Role::Connect { address: line.rsplit(' ').next().unwrap().into(), with }
    });
    let mut client = ends(&runtime, &roles);
    let mut out = client.stdout();
    let mut is_refused = false;
    for _ in loads {
        let line = line_with(&mut out, |line| line.starts_with("done"));
        let words: Vec<_> = line.split(' ').collect();
        let [_, local, messages, _, octets, _, refused, _] = words[..] else { panic!("{line}") };
        let all = connections(&runtime, client.id());
        let found = all.iter().find(|of| of["local"] == local);
        let of = found.unwrap_or_else(|| panic!("{local} is not in {all:?}"));
        let counted =
            ["messages_sent", "octets_sent", "posts_refused"].map(|key| of[key].to_string());
        assert_eq!(counted, [messages, octets, refused], "{of:#}");
        is_refused |= refused != "0";
    }
    assert!(is_refused, "one load is larger than its queue");
}

/// Several connections of each kind of message, from one thread and from two, while the measurement holds them: its
/// own count is that of the state page, at both ends.
#[test]
fn counts_of_perf_are_those_of_stat_at_both_ends() {
    let shapes = [
        ("write", "4k", "tcp", "1"),
        ("write", "64k", "ring", "2"),
        ("send", "100", "tcp", "2"),
        ("send", "3000", "ring", "1"),
        ("read", "5000", "tcp", "1"),
        ("read", "64k", "ring", "2"),
    ];
    for (op, size, carrier, threads) in shapes {
        let runtime = Runtime::new();
        let local = if carrier == "ring" { "on" } else { "off" };
        let mut command = warpline();
        command
            .args(["perf", "local", "--mode", "bw", "--op", op, "--size", size, "--local", local]);
        command.args(["--conns", "3", "--threads", threads, "--crc", "on", "--poll", "--no-raw"]);
        command.args(["--duration", "0.1", "--rounds", "2", "--hold", "--json"]);
        command.env("XDG_RUNTIME_DIR", &runtime.0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let held = child.stdin.take();
        let mut perf = Running::new(child);
        let mut report = serde_json::Deserializer::from_reader(perf.stdout()).into_iter::<Value>();
        let report = report.next().unwrap().unwrap();
        let own = report["connections"].as_array().unwrap();
        assert_eq!(own.len(), 3);
        // Octets sent are counted after the system call, and may arrive before.
        warpline_patience::until("stat to show what perf counted", || {
            let all = runtime.json(&["stat", "--json"]);
            let processes = all["processes"].as_array().unwrap();
            let find = |is_client: bool, key: &str, end: &Value| {
                let of = processes.iter().find(|of| (of["pid"] == perf.id()) == is_client).unwrap();
                let all = of["connections"].as_array().unwrap().iter();
                all.clone().find(|of| of[key] == *end).cloned().unwrap_or_default()
            };
            own.iter().all(|own| {
                let here = find(true, "local", &own["local"]);
                let there = find(false, "remote", &own["local"]);
                let counts =
                    ["messages_sent", "messages_received", "octets_sent", "octets_received"];
                let is_same =
                    |(at_client, at_server): (&str, &str)| here[at_client] == there[at_server];
                let is_shown = counts.iter().all(|key| here[key] == own[key])
                    && is_same(("octets_sent", "octets_received"))
                    && is_same(("octets_received", "octets_sent"))
                    && is_same(("fpdus_sent", "fpdus_received"));
                // Read Responses are no messages of the server's send queue.
                let sent = ["messages_sent", "responses_sent"].map(|key| there[key].as_u64());
                let sent = sent.into_iter().flatten().sum::<u64>();
                // Its engine's zero-length Writes begin the stream, and ask whether the peer lives.
                let received = there["messages_received"].as_u64() >= own["messages_sent"].as_u64();
                is_shown && received && own["messages_received"] == sent
            })
        });
        drop(held);
        assert_eq!(perf.code(), Some(0), "{op} {size} {carrier}");
    }
}

#[test]
fn a_verbs_program_is_shown() {
    let Some(rping) = libraries::find("rping") else {
        return skip("stat of rping", warpline_skip::missing("rdmacm-utils"));
    };
    let (runtime, libraries, port) = (Runtime::new(), Libraries::build(), free_port());
    let rping = |side: &str| {
        let mut command = libraries.command(&rping);
        command.args([side, "-a", "127.0.0.1", "-p", &port.to_string(), "-C", "0"]);
        start(&runtime, command)
    };
    let _server = rping("-s");
    warpline_patience::until("rping to listen", || waits_for_a_client(port));
    let client = rping("-c");
    let mut first = None;
    warpline_patience::until("rping to move messages", || {
        let (_, out, _) = runtime.run(&["stat", &client.id().to_string(), "--json"]);
        let all: Value = serde_json::from_str(&out).unwrap_or_default();
        let (face, of) =
            (&all["processes"][0]["devices"][0]["face"], &all["processes"][0]["connections"][0]);
        let sent = of["messages_sent"].as_u64();
        let moved = sent > first && first > Some(0);
        first = first.or(sent.filter(|sent| *sent > 0));
        moved && face == "verbs" && of["state"] == "RTS"
    });
}

#[test]
fn a_program_in_c_is_shown() {
    let kit = match Kit::install("c-published") {
        Ok(kit) => kit,
        Err(why) => return skip("stat of a C program", &why),
    };
    let runtime = Runtime::new();
    let program = kit.program("ping", &["ping.c", "check.c"], Language::C99, &[]);
    let mut command = Command::new(program);
    command.arg("serve").env("LD_LIBRARY_PATH", kit.home().join("lib"));
    let mut server = start(&runtime, command);
    let line = line_with(&mut server.stdout(), |line| line.trim().parse::<u16>().is_ok());
    // A client that connects and sends nothing.
    let ia = itapi::Ia::open().unwrap();
    let (pz, evd) = (ia.pz().unwrap(), ia.evd(16).unwrap());
    let ep = pz.ep(&evd).build().unwrap();
    ep.connect(&*format!("127.0.0.1:{line}"), b"").unwrap();
    let of = connections(&runtime, server.id());
    assert_eq!(of[0]["state"], "RTS", "{of:?}");
    let all = runtime.json(&["stat", &server.id().to_string(), "--json"]);
    let device = &all["processes"][0]["devices"][0];
    assert!(device["face"] == "IT-API" && device["regions"].as_u64() > Some(0), "{all:#}");
}

/// Whether a process publishes in a directory of this user; it serves pings, and prints its address first.
fn publishes(runtime: &Path, mut command: Command) -> bool {
    command.args(["ping", "--serve=127.0.0.1:0"]).env("XDG_RUNTIME_DIR", runtime);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Running::new(command.spawn().unwrap());
    line_with(&mut server.stdout(), |line| line.contains(" at "));
    runtime.join("warpline").join(format!("{}.state", server.id())).exists()
}

/// A directory that every user may enter, removed at the end.
struct Open(PathBuf);

impl Drop for Open {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_with_more_rights_than_its_user_does_not_publish() {
    let open = Open(std::env::temp_dir().join(format!("published-{}", std::process::id())));
    let (program, runtime) = (open.0.join("warpline"), open.0.join("runtime"));
    std::fs::create_dir_all(&runtime).unwrap();
    warpline_patience::copy_program(env!("CARGO_BIN_EXE_warpline"), &program);
    if chown(&program, Some(NOBODY), None).is_err() {
        return skip("state page of a setuid program", warpline_skip::NOT_ROOT);
    }
    chown(&runtime, Some(NOBODY), None).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // The same user, by its own right.
    mode(0o755);
    let mut plain = Command::new(&program);
    plain.uid(NOBODY).current_dir("/");
    assert!(publishes(&runtime, plain));
    mode(0o4755);
    assert!(!publishes(&runtime, Command::new(&program)));
}

/// A program that serves pings for one user, and commands of another about it.
#[test]
fn another_user_is_refused_and_root_is_not() {
    let open = Open(std::env::temp_dir().join(format!("users-{}", std::process::id())));
    let program = open.0.join("warpline");
    std::fs::create_dir_all(&open.0).unwrap();
    warpline_patience::copy_program(env!("CARGO_BIN_EXE_warpline"), &program);
    // Each publishes in its own directory there.
    if chown(&program, Some(NOBODY), None).is_err() {
        return skip("state of another user", warpline_skip::NOT_ROOT);
    }
    std::fs::set_permissions(&open.0, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let by = |user: u32, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).uid(user).current_dir("/").env("TMPDIR", &open.0);
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command
    };
    let asks = |user: u32, arguments: &[&str]| {
        let output = by(user, arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let serves = |user: u32| {
        let mut command = by(user, &["ping", "--serve=127.0.0.1:0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Running::new(command.spawn().unwrap());
        line_with(&mut server.stdout(), |line| line.contains(" at "));
        server
    };
    let server = serves(0);
    let pid = server.id().to_string();
    for command in ["stat", "explain", "capture"] {
        let (status, error) = asks(NOBODY, &[command, &pid]);
        assert!(status == Some(1) && error.contains("root"), "{command}: {error}");
    }
    // Even if the files can be reached: the process itself looks at who asks.
    let directory = open.0.join("warpline-0");
    let socket = directory.join(format!("{pid}.sock"));
    for (path, mode) in [(&directory, 0o755), (&socket, 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let ask = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
               s.sendall(b'{\"ask\": \"verbs\"}\\n'); print(len(s.recv(4096)))";
    for (user, is_told) in [(0, true), (NOBODY, false)] {
        let mut command = Command::new("python3");
        let output = command.args(["-c", ask]).arg(&socket).uid(user).current_dir("/").output();
        let octets = output.map(|output| String::from_utf8(output.stdout).unwrap());
        match octets {
            Ok(octets) => assert_eq!(octets.trim() != "0" && !octets.is_empty(), is_told),
            Err(_) => return skip("a request of another user", warpline_skip::missing("python3")),
        }
    }
    let server = serves(NOBODY);
    let (status, error) = asks(0, &["stat", &server.id().to_string()]);
    assert_eq!(status, Some(0), "{error}");
}

#[test]
fn damaged_pages_are_reported_and_the_others_shown() {
    let runtime = Runtime::new();
    let (server, client, _) = runtime.pair();
    let page = |name: &str| runtime.0.join("warpline").join(name);
    let of = |process: &Running| page(&format!("{}.state", process.id()));
    // Stopped, because its next write to a truncated page would end it.
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::STOP).unwrap();
    let whole = std::fs::read(of(&server)).unwrap();
    let damage = |what: &str, octets: &[u8], says: &str| {
        std::fs::write(of(&server), octets).unwrap();
        let all = runtime.json(&["stat", "--json"]);
        let published = all["troubles"].to_string();
        assert!(published.contains(says), "{what}: {all:#}");
        assert_eq!(all["processes"].as_array().unwrap().len(), 1, "{what}: {all:#}");
        assert_eq!(all["processes"][0]["pid"], client.id(), "{what}");
    };
    damage("truncated", &whole[..whole.len() / 2], "it was truncated");
    damage("empty", &[], "does not begin like a state page");
    damage("scribbled", &vec![0xa5; whole.len()], "does not begin like a state page");
    let mut sizes = whole.clone();
    sizes[8..40].fill(0xff);
    damage("header", &sizes, "version");
    // Its content does not matter: it belongs to a living process.
    std::fs::write(of(&server), &whole).unwrap();
    assert_eq!(runtime.json(&["stat", "--json"])["processes"].as_array().unwrap().len(), 2);
    symlink(of(&server), page("1.state")).unwrap();
    let all = runtime.json(&["stat", "--json"]);
    assert!(all["troubles"].to_string().contains("no regular file"), "{all:#}");
    assert_eq!(all["processes"].as_array().unwrap().len(), 2, "{all:#}");
}
