//! Tests of what the command says when this host refuses an address or a call: each reason has its own advice.

use std::os::unix::process::CommandExt;
use std::process::Command;

use warpline_skip::skip;

use crate::support::{run, text};

/// An error as one line: lines may be broken between words.
fn joined(output: &std::process::Output) -> String {
    let all = text(&output.stderr) + &text(&output.stdout);
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_link_local_address_without_its_interface_is_named_as_such() {
    let serve = "--serve=[fe80::1]:0";
    for arguments in [
        &["ping", "[fe80::1]:7174"][..],
        &["ping", serve],
        &["perf", "run", "[fe80::1]:7"],
        &["perf", "serve", "[fe80::1]:7"],
        &["conform", "[fe80::1]:7"],
        &["conform", "--listen", "[fe80::1]:7"],
        &["conform", "--serve", "[fe80::1]:7"],
        &["stat", "--listen", "[fe80::1]:7"],
        &["doctor", "[fe80::1]:7"],
    ] {
        let error = joined(&run(arguments));
        assert!(
            error.contains("name the interface behind the link-local"),
            "{arguments:?}: {error}"
        );
        assert!(!error.contains("ulimit"), "{arguments:?}: {error}");
    }
}

#[test]
fn an_address_of_another_host_cannot_be_served_at() {
    let error = joined(&run(&["ping", "--serve=203.0.113.1:0"]));
    assert!(error.contains("try use an address of this host"), "{error}");
}

/// Root's, in namespaces of its own; `None`: this user may not make them.
fn in_namespaces(test: &str, script: &str) -> Option<std::process::Output> {
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_warpline")])
        .output();
    match output {
        Ok(output) if !text(&output.stderr).contains("unshare failed") => Some(output),
        _ => {
            skip(test, "only root makes namespaces with unshare(1)");
            None
        }
    }
}

#[test]
fn a_route_that_prohibits_and_a_missing_family_have_their_own_advice() {
    let up = "ip link set lo up && ip route add prohibit 203.0.113.0/24 && \
              echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ";
    let ping = |address: &str| format!("{up} exec \"$0\" ping -c 1 {address}");
    let test = "routes that prohibit";
    let Some(output) = in_namespaces(test, &ping("203.0.113.1:7")) else { return };
    let error = joined(&output);
    assert!(error.contains("cm-host") && error.contains("a route prohibits"), "{error}");
    let Some(output) = in_namespaces(test, &ping("10.9.9.9:7")) else { return };
    let error = joined(&output);
    assert!(error.contains("cm-unreachable") && error.contains("ip route get"), "{error}");
}

#[test]
fn a_privileged_port_has_its_own_advice() {
    let script = "echo 1024 > /proc/sys/net/ipv4/ip_unprivileged_port_start; ip link set lo up; \
                  exec setpriv --reuid 65534 --clear-groups \"$0\" ping --serve=127.0.0.1:80";
    let Some(output) = in_namespaces("privileged ports", script) else { return };
    let error = joined(&output);
    if error.contains("setpriv: failed to execute") {
        return skip("privileged ports", "a program of another user cannot be run here");
    }
    assert!(error.contains("use a port from 1024 on"), "{error}");
}

#[test]
fn without_proc_the_environment_is_at_fault() {
    for command in ["devices", "demo /bin/sh", "perf local"] {
        let script = format!("mount -t tmpfs none /proc && exec \"$0\" {command}");
        let Some(output) = in_namespaces("no /proc", &script) else { return };
        let error = joined(&output);
        assert!(error.contains("/proc is not mounted"), "{command}: {error}");
        assert!(error.contains("try mount it"), "{command}: {error}");
        assert_eq!(output.status.code(), Some(1), "{command}: {error}");
    }
}

#[test]
fn few_processes_are_a_limit_of_the_environment() {
    const NOBODY: u32 = 65_533;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -u 1 && exec \"$0\" devices", env!("CARGO_BIN_EXE_warpline")]);
    let output = command.uid(NOBODY).current_dir("/").output();
    match output {
        Ok(output) if output.status.code() == Some(1) => {
            let error = joined(&output);
            assert!(error.contains("ulimit -u"), "{error}");
        }
        _ => skip("few processes", "a program of another user cannot be run here"),
    }
}
