//! Tests of `warpline perf`: every kind of measurement once, briefly. No figure is judged, because the load of
//! the machine is not known.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::support::{Running, TempFile, line_with, run, text, warpline};

/// Runs `perf` with these arguments; returns its JSON.
fn json(words: &[&str]) -> Value {
    let output = run(&[&["perf"], words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Brief, and once.
const BRIEF: [&str; 4] = ["--duration", "0.02", "--rounds", "1"];

fn local(words: &str) -> Value {
    let words: Vec<_> = words.split_whitespace().collect();
    json(&[&["local"], &words[..], &BRIEF].concat())
}

fn results(report: &Value) -> &[Value] {
    report["results"].as_array().unwrap()
}

/// A server and its address.
fn serve() -> (Running, BufReader<ChildStdout>, String) {
    serve_by(warpline())
}

fn serve_by(mut command: Command) -> (Running, BufReader<ChildStdout>, String) {
    command.args(["perf", "serve", "127.0.0.1:0"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut process = Running::new(child);
    let mut output = process.stdout();
    let line = line_with(&mut output, |line| line.starts_with("serving"));
    let address = line.rsplit(' ').next().unwrap().to_owned();
    (process, output, address)
}

/// The client sees only that the connection ends; the server knows the reason.
#[test]
fn a_server_that_fails_gives_the_reason() {
    let name = format!("warpline-perf-fails-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "[providers]\nwrap = [\"fault:post_send@1..=TooManyWrs\"]\n").unwrap();
    let mut command = warpline();
    command.env("WARPLINE_CONFIG", &file);
    let (_server, _output, address) = serve_by(command);
    let words =
        ["perf", "run", &address, "--op", "send", "--mode", "lat", "--size", "8", "--no-raw"];
    let output = run(&[&words[..], &BRIEF].concat());
    std::fs::remove_file(&file).unwrap();
    let why = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{why}");
    assert!(why.contains("cause  the server: cannot post a Send: too many work requests"), "{why}");
}

/// The policy decides where `--local` does not.
#[test]
fn reports_say_what_carried_the_octets() {
    for (policy, is_local, line) in
        [("auto", true, "Connections are local streams."), ("off", false, "Connections are TCP.")]
    {
        let perf = |arguments: &[&str]| {
            let mut command = warpline();
            command.args(["perf", "local", "--op", "send", "--mode", "lat", "--size", "8"]);
            command.args(["--poll", "--crc", "off"]).args(BRIEF).args(arguments);
            let output = command.env("WARPLINE_LOCAL", policy).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            output.stdout
        };
        let report: Value = serde_json::from_slice(&perf(&["--json"])).unwrap();
        assert_eq!(results(&report)[0]["local_stream"], is_local, "{report}");
        let out = text(&perf(&[]));
        assert!(out.lines().any(|printed| printed == line), "{out}");
    }
}

#[test]
fn every_operation_in_every_mode() {
    let ops = "--op send,write,read,write-imm,fetch-add";
    let report = local(&format!("{ops} --mode bw,lat,rate --size 8,100000 --crc on"));
    // Fetch-add has one size.
    assert_eq!(results(&report).len(), 3 * 2 * (4 * 2 + 1));
    for one in results(&report) {
        for field in [
            "value",
            "raw_max",
            "ratio_max",
            "raw_same",
            "ratio_same",
            "cpu_us_per_msg_local",
            "cpu_us_per_msg_remote",
            "p50_us",
            "p99_us",
            "p999_us",
            "min",
            "max",
        ] {
            assert!(one[field].as_f64().is_some_and(|n| n > 0.0), "{field} of {one}");
        }
        for field in ["op", "mode", "unit"] {
            assert!(one[field].is_string(), "{field} of {one}");
        }
        for field in ["size", "depth", "conns", "threads", "list"] {
            assert!(one[field].is_u64(), "{field} of {one}");
        }
        assert_eq!(one["crc"], true);
        assert!(one["wait"].is_boolean());
    }
    assert!(report["machine"]["kernel"].is_string() && report["targets"].is_array());
}

#[test]
fn connections_threads_lists_and_shared_receives() {
    for words in [
        "--op send,write --mode rate --size 8 --list 16 --poll",
        "--op send,read --mode bw --size 64k --conns 7 --threads 3 --wait",
        "--op send,write-imm --mode bw --size 4k --conns 5 --srq",
        "--op send --mode lat --size 8 --conns 3 --spin 0",
        "--op send --mode lat --size 8 --wait fd",
        "--op write --mode lat --size 8 --wait memory",
        "--op write --mode connect",
    ] {
        let report = local(&format!("{words} --crc off"));
        assert!(!results(&report).is_empty());
        for one in results(&report) {
            assert!(one["value"].as_f64().unwrap() > 0.0, "{one}");
            assert_eq!(
                one["slowest_over_mean"].is_f64(),
                one["conns"] != 1 && one["mode"] != "lat"
            );
        }
    }
}

#[test]
fn reads_whatever_the_servers_application_does() {
    for server in ["poll", "wait", "compute"] {
        let words = format!("--op read,fetch-add --mode lat --crc off --server {server}");
        let report = local(&words);
        assert!(results(&report).iter().all(|one| one["server"] == server), "{report}");
        assert!(results(&report).iter().all(|one| one["value"].as_f64().unwrap() > 0.0));
    }
}

#[test]
fn a_server_serves_one_client_after_the_other_and_prints_a_table() {
    let (_server, _output, address) = serve();
    for raw in [&[][..], &["--no-raw"]] {
        let words = ["perf", "run", &address, "--op", "write", "--mode", "bw", "--size", "64k"];
        let output = run(&[&words[..], &BRIEF, raw].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let out = text(&output.stdout);
        assert!(out.contains("RDMA Write\n  64 KiB, CRC on, poll "), "{out}");
        assert_eq!(out.contains("Compared with raw TCP here"), raw.is_empty(), "{out}");
    }
}

#[test]
fn a_server_that_dies_ends_the_measurement() {
    let (mut server, _output, address) = serve();
    let mut command = warpline();
    command.args(["perf", "run", &address, "--op", "write", "--mode", "bw", "--no-raw"]);
    command.args(["--duration", "3600"]);
    let mut client =
        Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    // The measurement is running when both processes have sockets of it.
    warpline_patience::until("both processes to have sockets of the measurement", || {
        sockets(server.id()) >= 4
    });
    server.kill();
    assert!(matches!(client.code(), Some(1 | 4)));
    let mut why = String::new();
    client.stderr().read_to_string(&mut why).unwrap();
    assert!(why.starts_with("warpline: ") && !why.contains("panic"), "{why}");
}

/// Sockets that a process has.
fn sockets(process: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let is_socket = |link: std::path::PathBuf| link.to_string_lossy().starts_with("socket:");
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|l| is_socket(l.clone()))
        .count()
}

#[test]
fn both_sides_report_a_peer_of_another_protocol() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.net ESMTP\r\n").unwrap();
    });
    let output = run(&["perf", "run", &address]);
    assert_eq!(output.status.code(), Some(4));
    let why = text(&output.stderr);
    assert!(why.contains("perf serve") && why.contains(&address), "{why}");
    warpline_patience::within("the stranger to be called", || stranger.join().unwrap());

    let (mut server, _output, address) = serve();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut line = String::new();
    server.stderr().read_line(&mut line).unwrap();
    assert!(line.contains("does not speak"), "{line}");
    // It goes on serving, and refuses invalid values.
    let mut stream = TcpStream::connect(&address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let case = r#"{"case":{"op":"write","mode":"bw","size":4096,"depth":0,"conns":1,"threads":1,"list":1,"crc":true,"wait":false,"spin_us":null,"srq":false}}"#;
    writeln!(stream, r#"{{"hello":{{"warpline_perf":1}}}}"#).unwrap();
    writeln!(stream, "{case}").unwrap();
    line_with(&mut answers, |line| line.contains("the depth is at least 1"));
}

/// A peer that accepts connections and sends nothing.
#[test]
fn both_sides_give_up_a_silent_peer() {
    let (mut server, _output, address) = serve();
    let _silent = TcpStream::connect(&address).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = run(&["perf", "run", &address]);
    let why = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{why}");
    assert!(why.contains("says nothing") && why.contains(&address), "{why}");
    let mut line = String::new();
    server.stderr().read_line(&mut line).unwrap();
    assert!(line.contains("does not speak"), "{line}");
}

#[test]
fn bad_arguments_are_refused_with_a_reason() {
    for (words, code) in [
        ("run", 2),
        ("local --op fly", 2),
        ("local --size 0", 2),
        ("local --size 4g", 2),
        ("local --poll --wait", 2),
        ("local --duration x", 2),
        ("local --rounds 0", 2),
        ("local --list 100 --mode rate --size 8", 2),
        ("local --threads 2 --mode bw", 2),
        ("local --server compute --op send --mode lat --size 8", 2),
        ("local --device nonsense --mode lat --size 8", 4),
        ("local --mode connect --op send", 2),
        ("local --mode connect --size 64k", 2),
        ("local --mode lat --depth 4", 2),
        ("local --mode lat --wait fd --spin 5", 2),
        ("local --op fetch-add --size 64k", 2),
        ("local --mode connect --plot x.svg", 2),
        ("local --device vp_roce --mode lat --local off", 2),
        ("local --device vp_roce --mode lat --crc on", 2),
        ("local --paths", 2),
        ("local --device vp_roce --paths --wait", 2),
        ("local --device vp_roce --paths --mode connect", 2),
        ("run 127.0.0.1:1", 4),
        ("run [::1", 2),
        ("run nowhere.invalid", 4),
        ("serve 192.0.2.1:0", 4),
        ("serve 127.0.0.1:99999", 2),
    ] {
        let output = run(&[&["perf"], &words.split_whitespace().collect::<Vec<_>>()[..]].concat());
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {why}");
        assert!(!why.is_empty() && !why.contains("panic"), "{words}: {why}");
    }
}

#[test]
fn a_client_reports_why_the_server_failed() {
    // A paced connection has no local stream.
    let rule = b"[[rule]]\nmatch = { role = \"accept\" }\naction = { rate = \"1Gbit\" }\n";
    let config = TempFile::new("perf-server.toml", rule);
    let mut command = warpline();
    command.env("WARPLINE_CONFIG", config.path());
    let (_server, _out, address) = serve_by(command);
    let words = ["run", &address, "--op", "write", "--size", "64k", "--local", "on", "--no-raw"];
    let output = run(&[&["perf"], &words[..], &BRIEF].concat());
    let why = text(&output.stderr);
    assert!(!output.status.success() && why.contains("cm-no-local-stream"), "{why}");
}

#[test]
fn costs_with_a_chart() {
    let chart = std::env::temp_dir().join(format!("warpline-costs-{}.svg", std::process::id()));
    let report = json(&["costs", "--slice", "0", "--plot", chart.to_str().unwrap()]);
    let svg = std::fs::read_to_string(&chart).unwrap();
    std::fs::remove_file(&chart).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<circle").count() > 20, "{svg}");
    for (part, figures) in [
        ("memory", &["register_us", "copy_us", "first_touch_huge_us"][..]),
        ("transfers", &["register_us", "copy_us", "reuse_us"]),
        ("objects", &["time_us"]),
    ] {
        let rows = report[part].as_array().unwrap();
        assert!(rows.len() > 5, "{part}");
        for (row, figure) in rows.iter().flat_map(|row| figures.iter().map(move |f| (row, f))) {
            assert!(row[figure].is_f64(), "{figure} of {row}");
        }
    }
}

#[test]
fn many_connections_and_large_messages_beside_small_ones() {
    let words = "scale --connections 10 --idle 20 --read 1 --slice 0.01 --rounds 1";
    let report = json(&words.split_whitespace().collect::<Vec<_>>());
    assert!(results(&report).iter().any(|one| one["conns"] == 10));
    assert!(results(&report).iter().any(|one| one["srq"] == true));
    assert!(results(&report).iter().any(|one| one["threads"] == 2));
    assert_eq!(report["idle"]["connections"], 20);
    assert_eq!(report["ping_beside_read"].as_array().unwrap().len(), 5);
}

#[test]
fn a_chart_of_sizes() {
    let chart = std::env::temp_dir().join(format!("warpline-perf-{}.svg", std::process::id()));
    let file = chart.to_str().unwrap();
    let words = ["perf", "local", "--op", "write", "--mode", "bw,lat", "--poll", "--plot", file];
    let output = run(&[&words[..], &BRIEF].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(&chart).unwrap();
    std::fs::remove_file(&chart).unwrap();
    assert!(svg.contains("raw TCP, best") && svg.contains("RDMA Write, CRC on, poll"), "{svg}");
    let output = run(&[&words[..7], &BRIEF, &["--plot", "/nonexistent/x.svg"]].concat());
    assert_eq!(output.status.code(), Some(3));
}

/// The text of `perf local`, written to a pipe.
fn people(words: &str) -> String {
    let words: Vec<_> = words.split_whitespace().collect();
    let output = run(&[&["perf", "local"], &words[..], &BRIEF].concat());
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    for stream in [&output.stdout, &output.stderr] {
        assert!(!stream.contains(&0x1b), "an escape code: {}", text(stream));
    }
    text(&output.stdout)
}

#[test]
fn the_text_has_eighty_columns_a_legend_and_a_line_for_each_operation() {
    let out = people("--poll");
    let wide: Vec<_> = out.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    assert!(!out.to_lowercase().contains("target"), "{out}");
    let (tables, legend) = out.split_once("\nColumns\n").unwrap();
    let header = tables.lines().find(|line| line.trim_start().starts_with("median")).unwrap();
    for name in header.split_whitespace() {
        let says = |line: &str| line.starts_with(&format!("  {name} "));
        assert!(legend.lines().any(says), "{name}: {legend}");
    }
    let last: Vec<_> = out.lines().rev().take(3).collect();
    for (line, op) in last.iter().rev().zip(["Send: ", "RDMA Write: ", "RDMA Read: "]) {
        assert!(line.starts_with(op), "{op}{out}");
        for word in ["bandwidth", "rate", "latency"] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}

#[test]
fn targets_are_printed_if_requested() {
    let out = people("--op write --mode bw,rate --targets");
    assert!(out.contains("Targets: ") && out.contains("64 KiB, CRC off, of raw_max\n"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn roce_by_path_and_by_its_manager_beside_softrdma() {
    let words = "--device vp_roce --paths --op send,write,read --mode bw,lat,rate --size 8";
    let report = local(words);
    assert_eq!(results(&report).len(), 3 * 3);
    for one in results(&report) {
        for field in ["by_path", "by_manager", "softrdma", "ratio_by_path", "ratio_by_manager"] {
            assert!(one[field].as_f64().is_some_and(|n| n > 0.0), "{field} of {one}");
        }
    }
    let out = people(&format!("{words} --conns 2"));
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    // Columns are as wide as their figures.
    let titles = |line: &str| line.split_whitespace().eq("by path manager SoftRDMA".split(' '));
    assert!(out.contains("Send, 8 B, poll, conns 2 ") && out.lines().any(titles), "{out}");
}

/// Each connection is made at once after the one before, and must have a local stream.
#[test]
fn short_connections_are_local_streams_where_they_must_be() {
    let report = local("--mode connect --local both --crc off");
    let carried: Vec<_> = results(&report).iter().map(|one| &one["local_stream"]).collect();
    assert!(!carried.is_empty() && carried.contains(&&Value::Bool(true)), "{report}");
    assert!(results(&report).iter().all(|one| one["value"].as_f64().unwrap() > 0.0), "{report}");
}

/// The matrix is measured as `--local` names it.
#[test]
fn the_matrix_uses_tcp_with_local_off() {
    let out = people("--local off --targets --poll --crc off");
    assert!(out.contains("Connections are TCP.") && out.contains("Targets: "), "{out}");
}
