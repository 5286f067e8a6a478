//! Two hosts with two links between them, as network namespaces: links, routes and addresses come and go, and the session goes on by the
//! other link.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use itapi::Ia;
use warpline_channel::{Channel, Listener};
use warpline_patience::until;

use crate::pair::message;
use crate::resume::{RESUME, impatient};

/// Set for the processes that play the hosts.
const HOST: &str = "WARPLINE_CHANNEL_TEST_HOST";

/// This test program, as a process of its own for one test.
fn again(through: &[&str], test: &str, host: &str) -> Command {
    let mut command = Command::new(through[0]);
    command.args(&through[1..]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(HOST, host);
    command
}

pub(crate) fn ip(prefix: &[&str], arguments: &str) {
    let mut command = Command::new(prefix.first().unwrap_or(&"ip"));
    if let [_, rest @ ..] = prefix {
        command.args(rest).arg("ip");
    }
    assert!(command.args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// Not a test by itself: the other host, which echoes.
#[test]
fn other_host() {
    if std::env::var(HOST).as_deref() != Ok("other") {
        return;
    }
    // Its links are there once it is told.
    std::io::stdin().lines().next();
    let listener = Listener::bind_with(&impatient(), "0.0.0.0:7175", RESUME).unwrap();
    println!("\nready");
    let channel = listener.accept().unwrap();
    while let Some(message) = channel.recv().unwrap() {
        channel.send(&message).unwrap();
    }
    channel.close().unwrap();
    println!("\nclosed");
}

struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays `body` in a process and a network namespace of its own.
pub(crate) fn alone(test: &str, body: fn()) {
    if std::env::var(HOST).as_deref() == Ok("one") {
        return body();
    }
    let mut possible = Command::new("unshare");
    possible.args(["-Urn", "ip", "link", "add", "type", "veth"]);
    if !possible.output().is_ok_and(|output| output.status.success()) {
        return warpline_skip::skip(test, warpline_skip::NO_NAMESPACES);
    }
    let output = again(&["unshare", "-Urn"], test, "one").output().unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_session_follows_links_routes_and_addresses() {
    alone("links::a_session_follows_links_routes_and_addresses", first_host);
}

#[test]
fn a_session_goes_on_over_roce() {
    alone("links::a_session_goes_on_over_roce", over_roce);
}

fn over_roce() {
    ip(&[], "link set lo up");
    let ia = Ia::builder().device("vp_roce").open().unwrap();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let channel = listener.accept().unwrap();
            while let Some(message) = channel.recv().unwrap() {
                channel.send(&message).unwrap();
            }
            channel.close().unwrap();
        });
        let channel = Channel::connect_with(&ia, address, RESUME).unwrap();
        let moves = || channel.resumption().unwrap().moves;
        let talk = |n| {
            channel.send(message(n, n as usize * 37 % 2000)).unwrap();
            assert!(channel.recv().unwrap().unwrap()[..] == message(n, n as usize * 37 % 2000));
        };
        (0..50).for_each(talk);
        ip(&[], "link set lo down");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until("the loss", || channel.resumption().is_some_and(|it| !it.connected));
                ip(&[], "link set lo up");
            });
            (50..).take_while(|_| moves() == 0).for_each(talk);
        });
        (0..50).for_each(talk);
        assert_eq!(moves(), 1);
        channel.close().unwrap();
    });
}

fn first_host() {
    let mut other = again(&["unshare", "--net"], "links::other_host", "other");
    let other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut other = Other(other);
    let pid = other.0.id().to_string();
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    until("the other namespace", || {
        namespace(&pid).is_some_and(|it| Some(it) != namespace("self"))
    });
    let there = ["nsenter", "-t", &pid, "--net"];
    for (at, here, far) in [(1, "left1", "right1"), (2, "left2", "right2")] {
        ip(&[], &format!("link add {here} type veth peer name {far}"));
        ip(&[], &format!("link set {far} netns {pid}"));
        ip(&[], &format!("addr add 10.9.{at}.1/24 dev {here}"));
        ip(&[], &format!("link set {here} up"));
        ip(&there, &format!("addr add 10.9.{at}.2/24 dev {far}"));
        ip(&there, &format!("link set {far} up"));
    }
    other.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut lines = BufReader::new(other.0.stdout.take().unwrap()).lines();
    let mut line = |wanted: &str| while lines.next().unwrap().unwrap() != wanted {};
    line("ready");
    let ia = impatient();
    let ways = [(ia.clone(), "10.9.1.2:7175"), (ia, "10.9.2.2:7175")];
    let channel = Channel::connect_any(ways, RESUME).unwrap();
    let mut n = 0;
    let mut talk_until_way = |way: usize, moves: u64| {
        loop {
            channel.send(message(n, n as usize % 1000)).unwrap();
            assert!(channel.recv().unwrap().unwrap()[..] == message(n, n as usize % 1000));
            n += 1;
            let so_far = channel.resumption().unwrap();
            if so_far.moves == moves {
                return assert_eq!(so_far.way, way);
            }
        }
    };
    talk_until_way(0, 0);
    ip(&[], "link set left1 down");
    talk_until_way(1, 1);
    ip(&[], "link set left1 up");
    ip(&there, "link set right2 down");
    talk_until_way(0, 2);
    ip(&there, "link set right2 up");
    ip(&[], "route add unreachable 10.9.1.2/32");
    talk_until_way(1, 3);
    ip(&[], "route del unreachable 10.9.1.2/32");
    ip(&there, "addr del 10.9.2.2/24 dev right2");
    talk_until_way(0, 4);
    channel.close().unwrap();
    line("closed");
}
