//! Debian's Prometheus scrapes `warpline stat --listen`, loads the alerts of the documentation, and evaluates each
//! expression of the alerts and of the dashboard on a run.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::stat::Runtime;
use crate::support::{Running, TempFile, text};

/// A file of the documentation.
fn documented(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/prometheus").join(name)
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The expressions of the dashboard, with all programs selected.
fn panels() -> Vec<String> {
    let dashboard = std::fs::read_to_string(documented("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let values = [("$instance", ".*"), ("$exe", ".*"), ("$__rate_interval", "10s")];
    let put = |text: String, (name, value): (&str, &str)| text.replace(name, value);
    expressions.map(|expression| values.into_iter().fold(expression, put)).collect()
}

/// Prometheus, with a directory of its own.
struct Prometheus {
    process: Running,
    address: String,
}

impl Prometheus {
    /// It cannot pick a free port itself, and ends if another program takes the one picked for it.
    fn start(directory: &Path, config: &TempFile) -> Self {
        loop {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            let mut command = Command::new("prometheus");
            command
                .arg(format!("--config.file={}", config.path()))
                .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
                .arg(format!("--web.listen-address={free}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let process = Running::new(command.spawn().unwrap());
            let mut this = Self { process, address: free };
            let mut ended = false;
            warpline_patience::until("Prometheus to be ready", || {
                ended = !this.process.is_alive();
                ended || this.get("/api/v1/rules").is_some()
            });
            if !ended {
                return this;
            }
        }
    }

    /// The JSON of a request; `None` while it does not respond.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The series of an expression.
    fn series(&self, expression: &str) -> Vec<Value> {
        let octets = expression.bytes().map(|octet| format!("%{octet:02x}"));
        let path = format!("/api/v1/query?query={}", octets.collect::<String>());
        let answer = self.get(&path).unwrap_or_default();
        assert_ne!(answer["status"], "error", "{expression}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn prometheus_has_the_series_of_the_alerts_and_of_the_dashboard() {
    let test = "prometheus";
    if !["prometheus", "promtool"].into_iter().all(warpline_tests::netns::have) {
        return warpline_skip::skip(test, warpline_skip::missing("prometheus"));
    }
    promtool(&["check", "rules"], &documented("alerts.yml"));
    let runtime = Runtime::new();
    let (_server, client, _) = runtime.pair();
    let mut metrics = runtime.start(&["stat", "--listen", "127.0.0.1:0"]);
    let mut out = metrics.stdout();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let target =
        line.trim().trim_start_matches("listening on http://").trim_end_matches("/metrics");
    let alerts = documented("alerts.yml").canonicalize().unwrap();
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
         rule_files: [{alerts:?}]\n\
         scrape_configs: [{{job_name: warpline, static_configs: [{{targets: [{target:?}]}}]}}]\n"
    );
    let config = TempFile::new("prometheus.yml", config.as_bytes());
    promtool(&["check", "config"], Path::new(config.path()));
    let prometheus = Prometheus::start(&runtime.0, &config);

    let ours =
        format!("warpline_payload_bytes_total{{pid=\"{}\",direction=\"sent\"}}", client.id());
    warpline_patience::until("the client's octets", || {
        let series = prometheus.series(&ours);
        series.iter().any(|of| of["value"][1].as_str().is_some_and(|octets| octets != "0"))
    });
    let rules = || {
        let all = prometheus.get("/api/v1/rules").unwrap();
        all["data"]["groups"][0]["rules"].as_array().unwrap().clone()
    };
    let is_evaluated = |rule: &Value| rule["health"] == "ok";
    warpline_patience::until("all alerts to be evaluated", || rules().iter().all(is_evaluated));
    let alerts = rules();
    let alerts = alerts.iter().map(|rule| rule["query"].as_str().unwrap().to_owned());
    let expressions: Vec<_> = alerts.chain(panels()).collect();
    assert!(expressions.len() >= 5 + 11, "{expressions:?}");
    for expression in expressions {
        // Without its threshold, below which the expression has no series.
        let series = expression.split(" > ").next().unwrap();
        warpline_patience::until(&format!("series of {series}"), || {
            !prometheus.series(series).is_empty()
        });
    }
}
