//! Which peers are on this host: with addresses of our own, and another network namespace as the other host.

use std::process::Command;

use warpline_skip::skip;

use crate::support::{LOG, TempFile, field, library};

/// Two hosts on a wire: `$1` runs here, at 192.0.2.1 and 192.0.2.2, and an echo at 192.0.2.3 and at the two.
const HOSTS: &str = "set -e
ip link set lo up; ip link add a type veth peer name b
unshare --net sleep 1000 & other=$!; trap \"kill $other\" EXIT
until [ \"$(readlink /proc/$other/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done
ip link set b netns $other
ip addr add 192.0.2.1/24 dev a; ip addr add 192.0.2.2/24 dev a; ip link set a up
nsenter -t $other --net ip addr add 192.0.2.3/24 dev b; nsenter -t $other --net ip link set b up
nsenter -t $other --net socat TCP-LISTEN:7000,fork EXEC:cat & remote=$!
socat TCP-LISTEN:7000,fork EXEC:cat & here=$!
trap \"kill $other $remote $here\" EXIT
for to in 192.0.2.1 192.0.2.3 127.0.0.1; do
    for try in $(seq 1000); do
        LD_PRELOAD=$LIBRARY bash -c 'exec 3<>/dev/tcp/$0/7000; printf \"word\\n\" | cat >&3; read -r it <&3; test $it = word' \\
            $to 2>/dev/null && break
    done
done
LD_PRELOAD=$LIBRARY socat -u /etc/hostname TCP:192.0.2.1:7000,bind=192.0.2.2";

#[test]
fn peers_of_other_hosts_are_remote() {
    let tools = Command::new("bash").args(["-c", "command -v socat ip nsenter unshare"]).output();
    if !tools.is_ok_and(|output| output.status.success()) {
        return skip(
            "peers_of_other_hosts_are_remote",
            "socat or ip is missing; see scripts/setup",
        );
    }
    let beside = |script: &str, record: &TempFile| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "bash", "-c", script]);
        command.env("LIBRARY", library()).env(LOG, &record.0).output().unwrap()
    };
    let record = TempFile::new();
    if !beside("ip link add a type veth peer name b", &record).status.success() {
        return skip("peers_of_other_hosts_are_remote", "no user and network namespaces here");
    }
    let output = beside(HOSTS, &record);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = record.text();
    let is_remote = |line: &str| field(line, "obstacles").unwrap().contains("peer-remote");
    let to = |peer: &str| {
        let lines =
            text.lines().filter(|line| field(line, "peer").is_some_and(|it| it.starts_with(peer)));
        lines.map(is_remote).collect::<Vec<_>>()
    };
    assert_eq!(to("192.0.2.1:"), [false, false], "{text}");
    assert_eq!((to("192.0.2.3:"), to("127.0.0.1:")), (vec![true], vec![false]), "{text}");
}
