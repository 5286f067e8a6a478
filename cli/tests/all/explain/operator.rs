//! An operator's three slow pairs of `warpline perf`: the first cause is the right one.

use super::ends::{Net, Path};
use crate::stat::Runtime;
use crate::support::{Running, TempFile, line_with};

const CAUSES: usize = 10;

/// A server and a client of `warpline perf` on two hosts.
struct Pair {
    server: Running,
    client: Running,
    runtime: Runtime,
    _config: TempFile,
    _net: Net,
}

impl Pair {
    fn start(path: Path, what: &[&str]) -> Option<Self> {
        let net = Net::two("explain to an operator", 9000, path)?;
        let runtime = Runtime::new();
        let config = TempFile::new("explain.toml", super::PATIENT.as_bytes());
        let start = |is_server: bool, arguments: &[&str]| {
            let mut command = net.warpline(is_server);
            command.args(arguments).env("XDG_RUNTIME_DIR", &runtime.0);
            command.env("WARPLINE_CONFIG", config.path());
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
            Running::new(command.spawn().unwrap())
        };
        let mut server = start(true, &["perf", "serve", "10.77.0.2:0"]);
        let line = line_with(&mut server.stdout(), |line| line.contains("10.77.0.2:"));
        let address = line.split_whitespace().find(|word| word.starts_with("10.77.0.2:")).unwrap();
        let fixed = ["perf", "run", address, "--no-raw", "--rounds=1", "--seconds=600"];
        let client = start(false, &[&fixed, what].concat());
        let pair = Self { server, client, runtime, _config: config, _net: net };
        warpline_patience::until("the measurement", || pair.has_sent());
        Some(pair)
    }

    fn has_sent(&self) -> bool {
        let (_, out, _) = self.runtime.run(&["stat", &self.client.id().to_string(), "--json"]);
        let all: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        all["processes"][0]["connections"]
            .as_array()
            .is_some_and(|all| all.iter().any(|of| of["octets_sent"].as_u64() > Some(10_000)))
    }

    /// The line of the first cause, and the two below it.
    fn explained(&self) -> String {
        let pid = self.client.id().to_string();
        let (status, out, error) = self.runtime.run(&["explain", &pid, "--seconds", "1"]);
        assert_eq!(status, Some(0), "{error}");
        out.lines().skip(1).take(3).collect::<Vec<_>>().join("\n")
    }

    /// Other load of the machine may be the larger cause for a while.
    fn finds(&self, right: impl Fn(&str) -> bool) -> String {
        let mut looks = (0..CAUSES).map(|_| self.explained());
        let found = looks.find(|text| right(text));
        found.unwrap_or_else(|| panic!("{}", self.explained()))
    }
}

#[test]
fn a_stopped_receiver_of_sends() {
    let Some(pair) = Pair::start(Path::Plain, &["--op=send", "--size=4k", "--mode=bw"]) else {
        return;
    };
    super::Ends::stop(&pair.server);
    let right = |text: &str| {
        let cause = ["1. waits for its peer", "1. receiver's processor"];
        cause.iter().any(|cause| text.starts_with(cause)) && text.contains("is stopped")
    };
    let text = pair.finds(right);
    assert!(text.contains(&format!("kill -CONT {}", pair.server.id())), "{text}");
}

#[test]
fn a_path_of_20_mbit() {
    let Some(pair) = Pair::start(Path::Routed, &["--op=write", "--size=64k", "--mode=bw"]) else {
        return;
    };
    let text = pair.finds(|text| text.starts_with("1. full path"));
    let rate = text.split("the path carries ").nth(1).and_then(|rest| rest.split(' ').next());
    // 2.5 MB/s: less if the ends had no processor, and more where the kernel estimates it from few acknowledgements. Without
    // the router it is a hundred times as much.
    let rate: u64 = rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!((1..10_000_000).contains(&rate), "{text}");
}

/// With messages of the largest FPDU nothing but the processor is left.
#[test]
fn a_thread_at_its_limit() {
    let Some(pair) = Pair::start(Path::Plain, &["--op=write", "--size=64k", "--mode=bw"]) else {
        return;
    };
    pair.finds(|text| text.starts_with("1. processor's limit"));
}
