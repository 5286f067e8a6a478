//! Two ends in network namespaces, or on one host, and the command's output about them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use warpline_patience::until;
use warpline_tests::delay::DelayedPath;
use warpline_tests::netns::Netns;

use super::load::{Load, ROLES, Role, Serve, TEST};
use crate::stat::Runtime;
use crate::support::{Running, TempFile, line_with};

/// The path between two hosts.
#[derive(Clone, Copy)]
pub(super) enum Path {
    Plain,
    /// 100 Mbit/s, with a queue that loses nothing.
    Narrow,
    /// It loses a part of the packets to the server.
    Lossy,
    /// A packet takes 20 ms; the MTU is 1500.
    Long,
    /// A router between them sends 20 Mbit/s to the server, and loses nothing.
    Routed,
}

const NARROW: [&str; 13] = [
    "tc", "qdisc", "add", "dev", "veth", "root", "tbf", "rate", "100mbit", "burst", "128kb",
    "limit", "16mb",
];
const SLOW: [&str; 13] = [
    "tc", "qdisc", "add", "dev", "s", "root", "tbf", "rate", "20mbit", "burst", "32kb", "limit",
    "4mb",
];
const LOSSY: [&str; 3] = [
    "add table ip lossy",
    "add chain ip lossy in { type filter hook input priority 0 ; }",
    "add rule ip lossy in numgen random mod 25 == 0 drop",
];

/// The maximum number of runs of the command on a process.
const LOOKS: u32 = 10;

/// Where the two ends are.
pub(super) enum Net {
    /// On one host, on loopback.
    Host,
    /// In two namespaces.
    Two { client: Netns, server: Netns, _path: Option<DelayedPath>, _router: Option<Netns> },
}

impl Net {
    /// Two hosts; `None`: the test is skipped.
    pub(super) fn two(test: &str, mtu: u32, path: Path) -> Option<Self> {
        let joined = match path {
            Path::Long | Path::Routed => Netns::new().and_then(|a| Ok((a, Netns::new()?))),
            _ => Netns::pair(mtu),
        };
        let made = joined.and_then(|(a, b)| {
            match path {
                Path::Plain => {}
                Path::Long => {
                    let delayed = DelayedPath::join(&a, &b, Duration::from_millis(20))?;
                    let (_path, _router) = (Some(delayed), None);
                    return Ok(Self::Two { client: a, server: b, _path, _router });
                }
                Path::Routed => {
                    let _router = Some(route(&a, &b, mtu)?);
                    return Ok(Self::Two { client: a, server: b, _path: None, _router });
                }
                Path::Narrow => {
                    for host in [&a, &b] {
                        host.exec(&NARROW)?;
                    }
                }
                Path::Lossy => LOSSY.iter().try_for_each(|rule| b.exec(&["nft", rule]))?,
            }
            Ok(Self::Two { client: a, server: b, _path: None, _router: None })
        });
        made.inspect_err(|why| {
            eprintln!("{why}");
            warpline_skip::skip(test, warpline_skip::NO_NAMESPACES);
        })
        .ok()
    }

    /// This program on one of the hosts, with a higher priority than other processes where that is allowed: the command
    /// is to find what the ends do, not the load of the machine.
    fn command(&self, is_server: bool) -> Command {
        let mut command = self.on(is_server, "nice");
        command.args(["-n", "-15"]).arg(std::env::current_exe().unwrap());
        command
    }

    /// The command on one of them.
    pub(super) fn warpline(&self, is_server: bool) -> Command {
        let mut command = self.on(is_server, "nice");
        command.args(["-n", "-15", env!("CARGO_BIN_EXE_warpline")]);
        command
    }

    fn on(&self, is_server: bool, program: &str) -> Command {
        match self {
            Self::Host => Command::new(program),
            Self::Two { client, server, .. } => {
                (if is_server { server } else { client }).command(program)
            }
        }
    }

    fn address(&self) -> &'static str {
        match self {
            Self::Host => "127.0.0.1:0",
            Self::Two { .. } => "10.77.0.2:0",
        }
    }
}

/// A third host, which forwards between the two; what it sends to `server` is slow.
fn route(client: &Netns, server: &Netns, mtu: u32) -> Result<Netns, String> {
    let router = Netns::new()?;
    let mtu = &mtu.to_string();
    for (host, device, address) in [(client, "c", "10.77.0.1"), (server, "s", "10.77.0.2")] {
        let name = router.name();
        host.exec(&[
            "ip", "link", "add", "veth", "type", "veth", "peer", "name", device, "netns", name,
        ])?;
        host.exec(&["ip", "addr", "add", &format!("{address}/24"), "dev", "veth"])?;
        host.exec(&["ip", "link", "set", "veth", "mtu", mtu, "up"])?;
        router.exec(&["ip", "link", "set", device, "mtu", mtu, "up"])?;
        router.exec(&["ip", "route", "add", &format!("{address}/32"), "dev", device])?;
        // It replies for the other host, whose network seems to be the same.
        router.exec(&["sysctl", "-qw", &format!("net.ipv4.conf.{device}.proxy_arp=1")])?;
        router.exec(&["sysctl", "-qw", &format!("net.ipv4.neigh.{device}.proxy_delay=0")])?;
    }
    router.exec(&["sysctl", "-qw", "net.ipv4.ip_forward=1"])?;
    router.exec(&SLOW)?;
    Ok(router)
}

/// Two ends that are connected.
pub(super) struct Ends {
    pub(super) server: Running,
    pub(super) client: Running,
    runtime: Runtime,
    _configs: [TempFile; 2],
    _net: Net,
}

impl Ends {
    /// Starts both, with this configuration and these variables.
    pub(super) fn start(
        net: Net,
        config: &str,
        variables: &[(&str, &str)],
        serve: Serve,
        load: Load,
    ) -> Self {
        Self::start_each(net, [config, config], variables, serve, load)
    }

    /// As [`Ends::start`], with a configuration of the client and one of the server.
    pub(super) fn start_each(
        net: Net,
        configs: [&str; 2],
        variables: &[(&str, &str)],
        serve: Serve,
        load: Load,
    ) -> Self {
        let runtime = Runtime::new();
        let configs = configs.map(|config| TempFile::new("explain.toml", config.as_bytes()));
        let start = |is_server: bool, role: &Role| {
            let mut command = net.command(is_server);
            command
                .args(["--exact", TEST, "--nocapture"])
                .env(ROLES, serde_json::to_string(&[role]).unwrap())
                .env("WARPLINE_CONFIG", configs[usize::from(is_server)].path())
                .env("XDG_RUNTIME_DIR", &runtime.0)
                .envs(variables.iter().copied())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            Running::new(command.spawn().unwrap())
        };
        let address = net.address().to_owned();
        let mut server = start(true, &Role::Serve { address, with: serve });
        let line = line_with(&mut server.stdout(), |line| line.starts_with("listening"));
        let address = line.rsplit(' ').next().unwrap().to_owned();
        let mut client = start(false, &Role::Connect { address, with: load });
        line_with(&mut client.stdout(), |line| line.starts_with("connected"));
        Self { server, client, runtime, _configs: configs, _net: net }
    }

    /// Runs the command with their directory: status, standard output, standard error.
    pub(super) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.runtime.run(arguments)
    }

    /// Where their state pages are.
    pub(super) fn directory(&self) -> PathBuf {
        self.runtime.0.join("warpline")
    }

    /// The causes of a process, the largest first, and the whole output of the command. It runs again if the process
    /// had no processor for most of the time, because no cause shows then.
    pub(super) fn explain(&self, pid: u32) -> (Vec<String>, Value) {
        for looks in 1.. {
            let all = self.runtime.json(&["explain", &pid.to_string(), "--seconds", "1", "--json"]);
            if looks < LOOKS && all["without_processor"].as_f64() > Some(0.5) {
                continue;
            }
            let causes = all["causes"].as_array().unwrap().iter();
            return (causes.map(|of| of["cause"].as_str().unwrap().to_owned()).collect(), all);
        }
        unreachable!("the last look returns");
    }

    /// Waits until the client has received a message: both ends know then that they are connected.
    pub(super) fn converse(&self) {
        until("a message to the client", || {
            let (_, all) = self.explain(self.client.id());
            all["figures"]["messages received"] != "0/s"
        });
    }

    /// Stops a process.
    pub(super) fn stop(process: &Running) {
        let pid = rustix::process::Pid::from_raw(process.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }

    /// Asserts that this is the first cause of the client in one of [`LOOKS`] runs: other load of the machine may be
    /// the larger cause for a while. Returns its figures.
    pub(super) fn is(&self, cause: &str) -> String {
        let is_first =
            |(causes, _): &(Vec<String>, Value)| causes.first().is_some_and(|of| of == cause);
        let mut looks = (1..LOOKS).map(|_| self.explain(self.client.id()));
        let found = looks.find(is_first);
        let (causes, all) = found.unwrap_or_else(|| self.explain(self.client.id()));
        assert_eq!(causes.first().map(String::as_str), Some(cause), "{all:#}");
        let first = &all["causes"][0];
        assert!(first["remedy"].as_str().is_some_and(|text| !text.is_empty()), "{all:#}");
        first["shows"].as_str().unwrap().to_owned()
    }

    /// Asserts that this is not among its causes.
    pub(super) fn is_not(&self, cause: &str) {
        let (causes, all) = self.explain(self.client.id());
        assert!(!causes.iter().any(|of| of == cause), "{all:#}");
    }
}
