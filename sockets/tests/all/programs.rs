//! Unmodified programs with the library: servers and clients, each with and without it, give the right results; no octet
//! passes the library by. Prints the table of docs/sockets.md.
//!
//! Programs that are missing are skipped: `scripts/setup --sockets`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use warpline_patience::{until, within};
use warpline_skip::skip;

use crate::support::{LOG, TempFile, carrier, field, library};

/// A server and its client, as a shell starts them; `PORT` is the server's.
struct Pair {
    name: &'static str,
    needs: &'static [&'static str],
    /// Run once, before.
    prepare: &'static str,
    server: &'static str,
    /// Succeeds if all is right.
    client: &'static str,
}

const PAIRS: [Pair; 8] = [
    Pair {
        name: "redis-server, redis-benchmark (pipelined, 8 connections, BGSAVE meanwhile)",
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        prepare: "",
        server: "exec redis-server --port $PORT --bind 127.0.0.1 --save '' --dir .",
        client: "redis-benchmark -p $PORT -c 1 -n 500 -t ping,set,get -q >/dev/null &&
            { redis-cli -p $PORT bgsave >/dev/null & } &&
            redis-benchmark -p $PORT -c 8 -P 16 -n 20000 -r 1000 -t set,get,lpush -q >/dev/null && wait &&
            test $(redis-cli -p $PORT llen mylist) = 20000",
    },
    Pair {
        name: "memcached (4 threads), memcslap",
        needs: &["memcached", "memcslap"],
        prepare: "",
        server: "exec memcached -p $PORT -l 127.0.0.1 -u root -t 4",
        client: "memcslap --servers=127.0.0.1:$PORT --concurrency=4 --execute-number=500 --test=set &&
            memcslap --servers=127.0.0.1:$PORT --concurrency=4 --execute-number=500 --test=get",
    },
    Pair {
        name: "iperf3, both directions, 1 and 8 connections",
        needs: &["iperf3"],
        prepare: "",
        server: "exec iperf3 -s -p $PORT",
        // The server refuses a client while it ends the one before.
        client: "client() {
                until said=$(iperf3 -c 127.0.0.1 -p $PORT -n 20M \"$@\" 2>&1); do
                    [[ $said = *'server is busy'* ]] || return 1
                done
            }
            client -l 4k && client -P 8 -R && client -Z",
    },
    Pair {
        name: "python3 -m http.server, curl",
        needs: &["python3", "curl"],
        prepare: "head -c 3000000 /dev/urandom >file",
        server: "exec python3 -m http.server $PORT --bind 127.0.0.1 2>/dev/null",
        client: "curl -sf http://127.0.0.1:$PORT/file | cmp - file &&
            curl -sf -Z -o a -o b -o c -o d http://127.0.0.1:$PORT/{file,file,file,file} &&
            for it in a b c d; do cmp $it file || exit 1; done",
    },
    Pair {
        name: "nginx (4 workers, reloaded meanwhile), ab, wrk, curl",
        needs: &["nginx", "ab", "wrk", "curl"],
        prepare: "head -c 300000 /dev/urandom >file; echo \"daemon off; user root; worker_processes 4; pid nginx.pid;
            error_log stderr; events {} http { access_log off; sendfile on; root $PWD;
            server { listen 127.0.0.1:$PORT reuseport; location /up/ { proxy_pass http://127.0.0.1:$PORT/; } } }\" >conf",
        server: "exec nginx -p $PWD -c $PWD/conf -e stderr 2>/dev/null",
        // Old workers close connections that are kept alive, which fails requests with any carrier: they are gone before.
        client: "{ sleep .2; m=$(cat nginx.pid); cat /proc/$m/task/$m/children >old; kill -HUP $m; } & r=$!
            ab -q -n 2000 -c 8 http://127.0.0.1:$PORT/file >report && wait $r && ! grep -q Non-2xx report &&
            grep -q 'Failed requests: *0$' report &&
            for p in $(cat old); do while kill -0 $p 2>/dev/null; do sleep .01; done; done && ab -q -k -n 2000 -c 8 http://127.0.0.1:$PORT/file >report &&
            grep -q 'Failed requests: *0$' report && wrk -t 2 -c 8 -d 1 http://127.0.0.1:$PORT/file >report &&
            ! grep -q -e Non-2xx -e 'Socket errors' report && curl -sf http://127.0.0.1:$PORT/up/file | cmp - file",
    },
    Pair {
        name: "haproxy before python3 -m http.server, curl",
        needs: &["haproxy", "python3", "curl"],
        prepare: "head -c 3000000 /dev/urandom >file; echo \"defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend f
  bind 127.0.0.1:$PORT
  default_backend b
backend b
  server s 127.0.0.1:$NEXT\" >conf",
        server: "python3 -m http.server $NEXT --bind 127.0.0.1 2>/dev/null & trap \"kill $!\" TERM
            haproxy -q -db -f conf & p=$!; trap \"kill $p $!\" TERM; wait; wait",
        client: "curl -sf --retry 20 --retry-all-errors --retry-delay 1 http://127.0.0.1:$PORT/file | cmp - file &&
            curl -sf -Z -o a -o b http://127.0.0.1:$PORT/{file,file} && cmp a file && cmp b file",
    },
    Pair {
        name: "postgres, pgbench (also a connection for each transaction)",
        needs: &["runuser", "/usr/lib/postgresql/15/bin/postgres", "pgbench"],
        prepare: "chmod 777 . && runuser -u postgres -- /usr/lib/postgresql/15/bin/initdb -D $PWD/db -A trust >/dev/null",
        server: "exec runuser -u postgres -- /usr/lib/postgresql/15/bin/postgres -D $PWD/db -p $PORT -k '' -F",
        client: "export PGHOST=127.0.0.1 PGPORT=$PORT PGUSER=postgres; pgbench -q -i -s 1 2>/dev/null &&
            pgbench -n -S -c 8 -t 300 2>&1 | grep -q '2400/2400' && pgbench -n -S -C -c 4 -t 25 2>&1 | grep -q '100/100'",
    },
    Pair {
        name: "node's http server and client",
        needs: &["node"],
        prepare: "head -c 300000 /dev/urandom >file
            echo 'require(\"http\").createServer((q, r) => q.pipe(r)).listen(+process.env.PORT, \"127.0.0.1\")' >server.js
            echo 'const fs = require(\"fs\"), http = require(\"http\"), all = fs.readFileSync(\"file\");
            const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
            const one = () => new Promise((done, failed) => {
                const q = http.request({ port: process.env.PORT, host: \"127.0.0.1\", method: \"POST\", agent }, (r) => {
                    const parts = []; r.on(\"data\", (p) => parts.push(p));
                    r.on(\"end\", () => Buffer.concat(parts).equals(all) ? done() : failed(\"octets\")) });
                q.on(\"error\", failed); q.end(all) });
            Promise.all(Array.from({ length: 64 }, one)).then(() => agent.destroy(), (e) => process.exit(1))' >client.js",
        server: "exec node server.js",
        client: "node client.js",
    },
];

/// A process and what it started, which end with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The group of the process that this test has started.
        // SAFETY: no memory.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGTERM) };
        within("the end of a server", || self.0.wait().unwrap());
    }
}

struct Place {
    directory: PathBuf,
    port: u16,
    next: u16,
}

impl Place {
    /// Ports that were free.
    fn new(name: &str) -> Self {
        let word = name.split(' ').next().unwrap().trim_end_matches(',').replace('\'', "");
        let directory = std::env::temp_dir().join(format!("sockets-{word}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, next] = free.each_ref().map(|it| it.local_addr().unwrap().port());
        Self { directory, port, next }
    }

    /// What the programs say.
    fn errors(&self) -> PathBuf {
        self.directory.join("errors")
    }

    /// A shell in the directory, with the library if there is a record.
    fn shell(&self, script: &str, record: Option<&TempFile>) -> Command {
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).current_dir(&self.directory).process_group(0);
        command.env("PORT", self.port.to_string()).env("NEXT", self.next.to_string());
        let errors = File::options().create(true).append(true).open(self.errors()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        if let Some(record) = record {
            command.env(LOG, &record.0).env("LD_PRELOAD", library());
            command.env("WARPLINE_SOCKETS", carrier());
        }
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn is_here(program: &str) -> bool {
    let found = Command::new("bash").args(["-c", "command -v \"$0\"", program]).output();
    found.is_ok_and(|output| output.status.success())
}

/// A record that any user may write.
fn record() -> TempFile {
    let record = TempFile::new();
    std::fs::set_permissions(&record.0, std::fs::Permissions::from_mode(0o666)).unwrap();
    record
}

/// Whether anybody listens, by the kernel's list: some servers serve one client, whoever it is.
fn listens(port: u16) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap();
    let text = read("/proc/net/tcp") + &read("/proc/net/tcp6");
    let end = format!(":{port:04X}");
    text.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        words.get(1).is_some_and(|local| local.ends_with(&end)) && words.get(3) == Some(&"0A")
    })
}

/// Runs a pair, each of both with the library or without; returns the record.
fn run(pair: &Pair, place: &Place, [server, client]: [bool; 2]) -> String {
    let record = record();
    let with = |it: bool| it.then_some(&record);
    let what = format!("{}: server {server}, client {client}", pair.name);
    let started = Server(place.shell(pair.server, with(server)).spawn().unwrap());
    until(&what, || listens(place.port));
    let status = within("a client", || place.shell(pair.client, with(client)).status().unwrap());
    let said = || std::fs::read_to_string(place.errors()).unwrap_or_default();
    assert!(status.success(), "{what}: {status}\n{}\n{}", said(), record.text());
    drop(started);
    record.text()
}

/// What no connection could have, if each call was seen: more octets received than its other end has sent, if both ends have
/// the library. An end without it may have had the same address before.
fn check(pair: &Pair, text: &str, both: bool) {
    let mut ends: BTreeMap<[String; 2], [u64; 2]> = BTreeMap::new();
    for line in text.lines().filter(|line| field(line, "local").is_some()) {
        let value = |name| field(line, name).unwrap_or_else(|| panic!("no {name}: {line}"));
        assert!(["?", "0+0"].contains(&value("other")), "{}: {line}", pair.name);
        let end = ends.entry([value("local").to_owned(), value("peer").to_owned()]).or_default();
        end[0] += value("sent").parse::<u64>().unwrap();
        end[1] += value("received").parse::<u64>().unwrap();
    }
    assert!(!ends.is_empty(), "{}: nothing was recorded", pair.name);
    for ([local, peer], [sent, _]) in ends.iter().filter(|_| both) {
        let other = ends.get(&[peer.clone(), local.clone()]);
        let received = other.map_or(0, |it| it[1]);
        assert!(
            received <= *sent,
            "{}: {local} sent {sent}, {peer} received {received}",
            pair.name
        );
    }
}

/// The part of all octets that went by the ring, in percent.
fn by_ring(text: &str) -> u64 {
    let (mut ring, mut all) = (0, 0);
    for line in text.lines().filter(|line| field(line, "local").is_some()) {
        ring += field(line, "ring")
            .unwrap()
            .split('+')
            .map(|it| it.parse::<u64>().unwrap())
            .sum::<u64>();
        all += ["sent", "received"]
            .map(|it| field(line, it).unwrap().parse::<u64>().unwrap())
            .iter()
            .sum::<u64>();
    }
    ring * 100 / all.max(1)
}

/// A row of the table: functions that were called on connections of more than a few octets.
fn row(pair: &Pair, text: &str) -> String {
    let all = |name: &str| -> BTreeSet<&str> {
        let values = text.lines().filter_map(|line| field(line, name));
        values.flat_map(|value| value.split(',')).collect()
    };
    let calls = all("calls");
    let some = |which: &[&str]| {
        let found: Vec<_> = calls.iter().filter(|call| which.contains(call)).copied().collect();
        found.join(", ")
    };
    let waits = some(&["poll", "__poll_chk", "ppoll", "select", "pselect", "epoll_ctl"]);
    let octets = some(&[
        "read",
        "__read_chk",
        "readv",
        "recv",
        "__recv_chk",
        "recvfrom",
        "recvmsg",
        "recvmmsg",
        "write",
        "writev",
        "send",
        "sendto",
        "sendmsg",
        "sendmmsg",
        "sendfile",
        "sendfile64",
        "splice",
    ]);
    let mut obstacles = all("obstacles");
    obstacles.retain(|it| !["-", "too-short"].contains(it));
    let obstacles = Vec::from_iter(obstacles).join(", ");
    let by_ring = by_ring(text);
    format!("| {} | {waits} | {octets} | {by_ring} % | {obstacles} |", pair.name)
}

/// The pair's row; `None`: a program is missing.
fn try_pair(pair: &Pair) -> Option<String> {
    if let Some(missing) = pair.needs.iter().find(|it| !is_here(it)) {
        skip(pair.name, format!("{missing} is missing; see scripts/setup --sockets"));
        return None;
    }
    let place = Place::new(pair.name);
    assert!(place.shell(pair.prepare, None).status().unwrap().success(), "{}", pair.name);
    for modes in [[false, false], [true, false], [false, true]] {
        let text = run(pair, &place, modes);
        if modes != [false, false] {
            check(pair, &text, false);
            assert_eq!(by_ring(&text), 0, "{}: one end has the library", pair.name);
        }
    }
    let text = run(pair, &place, [true, true]);
    check(pair, &text, true);
    Some(row(pair, &text))
}

#[test]
fn unmodified_programs_give_the_right_results() {
    assert!(Path::new(&library()).exists());
    let rows: Vec<_> = PAIRS.iter().filter_map(try_pair).collect();
    println!(
        "| programs | wait by | move octets by | by the ring | obstacles |\n|---|---|---|---|---|"
    );
    rows.iter().for_each(|row| println!("{row}"));
}
