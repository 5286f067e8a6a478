//! Tests of `warpline stat` and `warpline doctor` on processes that ping each other.

use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use crate::support::{Running, line_with, text, warpline};

/// A runtime directory for one test.
pub(crate) struct Runtime(pub(crate) PathBuf);

impl Runtime {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("runtime-{}-{number}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = warpline();
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.0);
        Running::new(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Status, standard output, standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = warpline();
        let output = command.args(arguments).env("XDG_RUNTIME_DIR", &self.0).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let (status, out, error) = self.run(arguments);
        assert_eq!(status, Some(0), "{out}{error}");
        serde_json::from_str(&out).unwrap()
    }

    /// A server, and a client that has completed a round trip and waits for an hour.
    pub(crate) fn pair(&self) -> (Running, Running, String) {
        let mut server = self.start(&["ping", "--serve=127.0.0.1:0"]);
        let line = line_with(&mut server.stdout(), |line| line.contains(" at "));
        let address = line.rsplit(' ').next().unwrap().to_owned();
        let mut client = self.start(&["ping", &address, "-i", "3600", "-c", "2", "-s", "100"]);
        let mut out = client.stdout();
        line_with(&mut out, |line| line.contains("time="));
        (server, client, address)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connection(all: &Value, pid: u32) -> &Value {
    let of = all["processes"].as_array().unwrap().iter().find(|of| of["pid"] == pid);
    &of.unwrap_or_else(|| panic!("{pid} is not in {all}"))["connections"][0]
}

#[test]
fn both_ends_are_shown_and_agree_even_while_stopped() {
    let runtime = Runtime::new();
    let (server, client, address) = runtime.pair();
    let agree = || {
        let all = runtime.json(&["stat", "--json"]);
        let (passive, active) = (connection(&all, server.id()), connection(&all, client.id()));
        let pairs = [("octets_sent", "octets_received"), ("fpdus_sent", "fpdus_received")];
        let same = |(sent, received): (&str, &str)| {
            active[sent] == passive[received] && passive[sent] == active[received]
        };
        assert_eq!((&active["remote"], &active["local"]), (&passive["local"], &passive["remote"]));
        assert_eq!(active["remote"], address);
        active["octets_sent"].as_u64() > Some(0) && pairs.into_iter().all(same)
    };
    // Octets sent are counted after the system call, and may arrive before.
    warpline_patience::until("both ends to agree", agree);
    for process in [&server, &client] {
        let pid = rustix::process::Pid::from_raw(process.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
    assert!(agree());
    let (status, table, _) = runtime.run(&["stat"]);
    assert_eq!(status, Some(0));
    assert!(table.contains(&address) && table.contains("RTS"), "{table}");
    let one = runtime.json(&["stat", &client.id().to_string(), "--json"]);
    assert_eq!(one["processes"].as_array().unwrap().len(), 1);

    let (status, metrics, _) = runtime.run(&["stat", "--openmetrics"]);
    assert_eq!(status, Some(0));
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let wanted = format!("warpline_payload_bytes_total{{pid=\"{}\"", client.id());
    assert!(metrics.lines().any(|line| line.starts_with(&wanted)), "{metrics}");
}

/// Also when its socket is full of requests whose clients are gone.
#[test]
fn a_server_is_told_from_its_client_by_arguments() {
    let runtime = Runtime::new();
    let (server, client, address) = runtime.pair();
    let (_, out, _) = runtime.run(&["stat"]);
    let has = |pid: u32, arguments: &str| {
        out.lines().any(|line| line.starts_with(&format!("{pid} /")) && line.ends_with(arguments))
    };
    assert!(has(server.id(), "warpline ping --serve=127.0.0.1:0"), "{out}");
    assert!(has(client.id(), &format!("warpline ping {address} -i 3600 -c 2 -s 100")), "{out}");
    let all = runtime.json(&["stat", "--json"]);
    let of = |pid| {
        let processes = all["processes"].as_array().unwrap();
        processes.iter().find(|process| process["pid"] == pid).unwrap()["arguments"].clone()
    };
    assert_eq!(of(server.id()), json!(["ping", "--serve=127.0.0.1:0"]));
    assert_eq!(of(client.id())[1], json!(address));
}

#[test]
fn a_server_is_told_from_its_client_by_its_role() {
    let runtime = Runtime::new();
    for (device, address) in [("vp_softrdma", "127.0.0.1:0"), ("vp_roce", "127.0.0.77:0")] {
        let serving = format!("--serve={address}");
        let mut server = runtime.start(&["ping", &serving, "--device", device]);
        let line = line_with(&mut server.stdout(), |line| line.contains(" at "));
        let address = line.rsplit(' ').next().unwrap();
        let mut client =
            runtime.start(&["ping", address, "-i", "3600", "-c", "2", "--device", device]);
        line_with(&mut client.stdout(), |line| line.contains("time="));
        let all = runtime.json(&["stat", "--json"]);
        let initiator = |pid| &connection(&all, pid)["initiator"];
        assert_eq!((initiator(client.id()), initiator(server.id())), (&json!(true), &json!(false)));
        for (pid, role) in [(client.id(), "client"), (server.id(), "server")] {
            let (_, out, _) = runtime.run(&["stat", &pid.to_string()]);
            let row = out.lines().last().unwrap();
            assert!(row.contains("RTS") && row.ends_with(role), "{out}");
        }
    }
}

#[test]
fn the_doctor_names_stopped_processes_and_what_continues_them() {
    let runtime = Runtime::new();
    let (server, _client, address) = runtime.pair();
    let finding = || {
        let (_, out, _) = runtime.run(&["doctor", "--json"]);
        let all: Value = serde_json::from_str(&out).unwrap();
        let found = all["findings"].as_array().unwrap().iter();
        found.filter(|of| of["check"] == "processes").cloned().collect::<Vec<_>>()
    };
    assert_eq!(finding()[0]["state"], "ok");
    let pid = rustix::process::Pid::from_raw(server.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let found = finding();
    assert_eq!((found.len(), &found[0]["state"]), (1, &json!("warn")), "{found:?}");
    assert_eq!(found[0]["remedy"], format!("kill -CONT {}", server.id()));
    // Its system accepts connections.
    let (status, out, _) = runtime.run(&["doctor", &address, "--limit", "0.2"]);
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("fail  peer") && out.contains("kill -CONT"), "{out}");
    assert!(!out.contains("ok ") && !out.contains("avoid it"), "{out}");
}

#[test]
fn a_stopped_process_that_is_asked_is_named() {
    let runtime = Runtime::new();
    let (server, _client, _) = runtime.pair();
    let pid = rustix::process::Pid::from_raw(server.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // The name of a socket may have 108 octets only.
    let directory = std::fs::File::open(runtime.0.join("warpline")).unwrap();
    let socket = format!("/proc/self/fd/{}/{}.sock", directory.as_raw_fd(), server.id());
    let socket = SocketAddrUnix::new(socket).unwrap();
    let asks = || {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::NONBLOCK);
        let asking = net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        net::connect(&asking, &socket)
    };
    let is_named = |cause: &str| {
        let pid = server.id().to_string();
        let (status, _, error) = runtime.run(&["capture", &pid, "--output", "/dev/null"]);
        assert_eq!(status, Some(1));
        // Lines are broken between words.
        let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            error.contains("the process does not respond: ") && error.contains(cause),
            "{error}"
        );
    };
    is_named(&format!("it is stopped; `kill -CONT {}` continues it", server.id()));
    while asks().is_ok() {}
    assert_eq!(asks(), Err(rustix::io::Errno::AGAIN));
    is_named("its socket is full of earlier requests");
}

#[test]
fn the_page_of_a_killed_process_is_removed() {
    let runtime = Runtime::new();
    let (mut server, mut client, _) = runtime.pair();
    client.kill();
    client.code();
    let all = runtime.json(&["stat", "--json"]);
    assert_eq!(all["processes"].as_array().unwrap().len(), 1);
    server.kill();
    server.code();
    let (status, _, error) = runtime.run(&["stat"]);
    assert_eq!(status, Some(1));
    assert!(error.contains("no process publishes anything") && error.contains("  try"), "{error}");
    let none = json!({ "processes": [], "troubles": [] });
    assert_eq!(runtime.json(&["stat", "--json"]), none);
    let (status, metrics, error) = runtime.run(&["stat", "--openmetrics"]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    assert!(metrics.lines().all(|line| line.starts_with('#')), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let left: Vec<_> = std::fs::read_dir(runtime.0.join("warpline")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_doctor_reports_faults_and_remedies() {
    use std::os::unix::fs::PermissionsExt;
    let runtime = Runtime::new();
    let directory = runtime.0.join("warpline");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (status, out, _) = runtime.run(&["doctor", "--json"]);
    assert_eq!(status, Some(1));
    let all: Value = serde_json::from_str(&out).unwrap();
    let find = |check: &str| {
        let found = all["findings"].as_array().unwrap().iter().find(|of| of["check"] == check);
        found.unwrap_or_else(|| panic!("{check} is not in {all}"))
    };
    assert_eq!(find("state pages")["state"], "fail");
    assert!(find("state pages")["remedy"].as_str().unwrap().contains("chmod 700"));
    assert_eq!(find("configuration")["state"], "ok");
    assert_eq!(find("provider vp_softrdma")["state"], "ok");
    assert_eq!(find("ping 127.0.0.1")["state"], "ok", "{all}");
}

#[test]
fn the_doctor_reports_the_startups_of_a_peer() {
    let runtime = Runtime::new();
    let (_server, _client, address) = runtime.pair();
    let (status, out, error) = runtime.run(&["doctor", &address]);
    assert_eq!(status, Some(0), "{out}{error}");
    assert!(out.contains("ok    reach") && out.contains("accepted: revision 2"), "{out}");
    let mut nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (status, out, _) = runtime.run(&["doctor", &nobody.to_string()]);
    assert_eq!(status, Some(1));
    assert!(out.contains("fail  reach") && out.contains("try"), "{out}");
    nobody.set_port(0);
    let (status, ..) = runtime.run(&["doctor", "nobody"]);
    assert_eq!(status, Some(2));
}

/// RoCE's UDP port (InfiniBand annex A17).
const ROCE_PORT: u16 = 4791;

/// Sends datagrams that are shorter than any packet, one to each of the 16 slots that processes may have: other tests have
/// slots, too. The slot is the begin of the queue pair number, octet 5 (InfiniBand volume 1, 9.2).
fn send_scraps(socket: &std::net::UdpSocket, host: &str) {
    for slot in 0..16 {
        let scrap = [0, 0, 0, 0, 0, slot << 4, 0xff, 0xff];
        socket.send_to(&scrap, (host, ROCE_PORT)).unwrap();
    }
}

/// The same, 32 to each slot in one call.
fn send_joined_scraps(socket: &std::net::UdpSocket, host: &str) {
    let to = std::net::SocketAddr::new(host.parse().unwrap(), ROCE_PORT);
    for slot in 0..16 {
        let scraps = [0, 0, 0, 0, 0, slot << 4, 0xff, 0xff].repeat(32);
        kal_os::udp::segments::send(socket, to, &scraps, 8, 0).unwrap();
    }
}

#[test]
fn packets_that_roce_drops_are_counted() {
    let runtime = Runtime::new();
    // Another process may have the port at 127.0.0.1.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let host = format!("127.77.{high}.{low}");
    let serve = format!("--serve={host}:0");
    let mut server = runtime.start(&["ping", &serve, "--device", "vp_roce"]);
    line_with(&mut server.stdout(), |line| line.contains(" at "));
    let drops = || {
        let all = runtime.json(&["stat", "--json"]);
        all["processes"][0]["devices"][0]["dropped"].clone()
    };
    assert_eq!(drops(), json!({"stray": 0, "damaged": 0, "unready": 0, "overrun": 0}));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    send_scraps(&socket, &host);
    warpline_patience::until("the drop", || drops()["stray"] == 1);
    assert_eq!(drops(), json!({"stray": 1, "damaged": 0, "unready": 0, "overrun": 0}));
    // More than its socket has room for, while it is stopped.
    let pid = rustix::process::Pid::from_raw(server.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    const BURST: u64 = 5000;
    for _ in 0..BURST {
        send_scraps(&socket, &host);
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let sum = || ["stray", "overrun"].map(|reason| drops()[reason].as_u64().unwrap());
    warpline_patience::until("all of them", || sum().iter().sum::<u64>() == BURST + 1);
    assert!(sum()[1] > 0, "{:?}", sum());
    // The same where many arrive in one system call.
    let before = sum()[1];
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    (0..BURST).for_each(|_| send_joined_scraps(&socket, &host));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    warpline_patience::until("those without room", || sum()[1] > before);
}

#[test]
fn connections_on_roce_are_shown_as_such() {
    let runtime = Runtime::new();
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let serve = format!("--serve=127.78.{high}.{low}:0");
    let mut server = runtime.start(&["ping", &serve, "--device", "vp_roce"]);
    let line = line_with(&mut server.stdout(), |line| line.contains(" at "));
    let address = line.rsplit(' ').next().unwrap();
    let seldom = ["-i", "3600", "-c", "2", "-s", "100"];
    let ping = [["ping", address].as_slice(), &["--device", "vp_roce"], &seldom].concat();
    let mut client = runtime.start(&ping);
    let mut out = client.stdout();
    line_with(&mut out, |line| line.contains("time="));
    warpline_patience::until("both ends to agree", || {
        let all = runtime.json(&["stat", "--json"]);
        let (passive, active) = (connection(&all, server.id()), connection(&all, client.id()));
        let same =
            |key, of_peer| active[key] == passive[of_peer] && passive[key] == active[of_peer];
        active["transport"] == "RoCE"
            && active["published"] == true
            && active["state"] == "RTS"
            && active["messages_sent"].as_u64() > Some(0)
            && same("messages_sent", "messages_received")
            && same("qpn", "remote_qpn")
            && same("octets_sent", "octets_received")
    });
    let (_, table, _) = runtime.run(&["stat"]);
    assert!(table.contains("RTS") && !table.contains('?'), "{table}");
    let (_, metrics, _) = runtime.run(&["stat", "--openmetrics"]);
    assert!(metrics.contains("warpline_repeats_total{"), "{metrics}");
    let (_, text, error) = runtime.run(&["explain", &client.id().to_string(), "--seconds", "1"]);
    assert!(text.contains("nothing to send") || text.contains("no cause"), "{text}{error}");
    assert!(
        text.contains("on RoCE these causes are not judged") && !text.contains("TCP"),
        "{text}"
    );
}

#[test]
fn metrics_are_served_over_http() {
    use std::io::{Read, Write};
    let runtime = Runtime::new();
    let (_server, client, _) = runtime.pair();
    let mut serving = runtime.start(&["stat", "--listen", "127.0.0.1:0"]);
    let mut out = serving.stdout();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address =
        line.trim().trim_start_matches("listening on http://").trim_end_matches("/metrics");
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    assert!(answer.contains(&format!("pid=\"{}\"", client.id())));
    assert!(ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
}
