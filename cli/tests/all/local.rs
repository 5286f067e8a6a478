//! Local streams as the command shows them: built in, through a provider's library, between network namespaces; and
//! the reason when there is none.

use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};

use serde_json::Value;
use warpline_tests::netns::Netns;

use crate::provider::cargo;
use crate::support::{Running, TempFile, line_with, rest, text, warpline};

/// A server of pings: its address, and the process.
struct Server {
    address: String,
    process: Running,
    _out: BufReader<ChildStdout>,
}

fn serve(mut command: Command, at: &str) -> Server {
    command.args(["ping", "--serve", at]).stdout(Stdio::piped());
    let mut process = Running::new(command.spawn().unwrap());
    let mut out = process.stdout();
    let line = line_with(&mut out, |line| line.starts_with("serving"));
    Server { address: line.rsplit(' ').next().unwrap().to_owned(), process, _out: out }
}

/// The line about its carrier that a client of a server prints.
fn ping(mut command: Command, server: &Server) -> String {
    let output = command.args(["ping", &server.address, "-c", "2", "-i", "0"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().next().unwrap().to_owned()
}

fn with(name: &str, value: &str) -> Command {
    let mut command = warpline();
    command.env(name, value);
    command
}

#[test]
fn a_client_reports_the_carrier_of_its_connection() {
    let (auto, off) = (with("WARPLINE_LOCAL", "auto"), with("WARPLINE_LOCAL", "off"));
    let servers = [serve(auto, "127.0.0.1:0"), serve(off, "127.0.0.1:0")];
    for (policy, carriers) in
        [("auto", ["local stream", "TCP (peer-plain)"]), ("off", ["TCP (policy)"; 2])]
    {
        for (server, carrier) in servers.iter().zip(carriers) {
            let line = ping(with("WARPLINE_LOCAL", policy), server);
            assert!(line.ends_with(&format!(", {carrier}")), "{policy}: {line}");
        }
    }
    let output = with("WARPLINE_LOCAL", "require")
        .args(["ping", &servers[1].address, "-c", "1"])
        .output()
        .unwrap();
    let err = text(&output.stderr);
    assert!(!output.status.success() && err.contains("cm-no-local-stream"), "{err}");
    assert!(err.contains("peer-plain"), "{err}");
}

#[test]
fn devices_show_the_policy() {
    let config = TempFile::new(
        "local.toml",
        b"[policy.peers.\"10.0.0.0/8\"]\nlocal = \"off\"\n[softrdma]\nlocal_ring = 65536\n",
    );
    let devices = |arguments: &[&str]| {
        let mut command = with("WARPLINE_CONFIG", config.path());
        text(&command.arg("devices").args(arguments).output().unwrap().stdout)
    };
    let out = devices(&[]);
    let line =
        "local streams   auto: rings of 65536 octets, 1024 ends at most\n  10.0.0.0/8  off\n";
    assert!(out.contains("local-stream") && out.ends_with(line), "{out}");
    let all: Value = serde_json::from_str(&devices(&["--json"])).unwrap();
    let local = &all["local_streams"];
    assert_eq!((&local["local"], &local["local_ring"]), (&"auto".into(), &65_536.into()), "{all}");
    assert_eq!(local["peers"]["10.0.0.0/8"]["local"], "off", "{all}");
}

/// SoftRDMA as a library, through the tables of `rnicpi.h`: Sends, Writes, Reads, an orderly end, and a peer that is
/// killed.
#[test]
fn a_provider_in_a_library_has_local_streams() {
    let library = cargo("vp-softrdma-dylib", "vp_softrdma");
    let loaded = || with("WARPLINE_PROVIDER_PATH", library.to_str().unwrap());
    let mut server = serve(loaded(), "127.0.0.1:0");
    // Either end may use the built-in provider.
    for client in [loaded(), warpline()] {
        let line = ping(client, &server);
        assert!(line.ends_with(", local stream"), "{line}");
    }
    // The provider may also be in wrappers, which pass the memory on.
    let mut wrapped = loaded();
    wrapped.env("WARPLINE_WRAP", "trace:every=100 stats");
    let line = ping(wrapped, &server);
    assert!(line.ends_with(", local stream"), "{line}");
    let file = env!("CARGO_MANIFEST_PATH");
    let mut demo = loaded();
    let demo = demo.env("WARPLINE_LOCAL", "require").args(["demo", file, "--progress", "never"]);
    let output = demo.output().unwrap();
    assert!(text(&output.stdout).contains("verified"), "{}", text(&output.stderr));
    let mut client = loaded();
    client.args(["ping", &server.address, "-c", "0", "-i", "0"]);
    let child = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = Running::new(child);
    let (mut out, err) = (client.stdout(), client.stderr());
    line_with(&mut out, |line| line.contains("ping=10 "));
    server.process.kill();
    line_with(&mut out, |line| line.contains("round trips started"));
    assert_eq!(client.code(), Some(1));
    let err = rest(err);
    assert!(err.contains(&server.address) && err.contains("lost"), "{err}");
}

/// A directory that both network namespaces see.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // A name that is left in it fails the test.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn network_namespaces_meet_in_a_directory() {
    let name = "network_namespaces_meet_in_a_directory";
    let Ok((here, there)) = Netns::pair(1500) else {
        return warpline_skip::skip(name, warpline_skip::NO_NAMESPACES);
    };
    let directory = std::env::temp_dir().join(format!("wl-meet-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let directory = Directory(directory);
    std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o700)).unwrap();
    let text = format!("[policy]\nlocal_dir = \"{}\"\n", directory.0.display());
    let config = TempFile::new("meet.toml", text.as_bytes());
    let command = |netns: &Netns, met: bool| {
        let mut command = netns.command(env!("CARGO_BIN_EXE_warpline"));
        command.env_remove("WARPLINE_CONFIG");
        command.envs(met.then_some(("WARPLINE_CONFIG", config.path())));
        command
    };
    let (met, alone) =
        (serve(command(&here, true), "10.77.0.1:0"), serve(command(&here, false), "10.77.0.1:0"));
    for (server, client, carrier) in [
        (&met, true, "local stream"),
        (&met, false, "TCP (other-host)"),
        (&alone, true, "TCP (peer-plain)"),
        (&alone, false, "TCP (other-host)"),
    ] {
        let line = ping(command(&there, client), server);
        assert!(line.ends_with(&format!(", {carrier}")), "{client}: {line}");
    }
    drop((met, alone));
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0);
}
