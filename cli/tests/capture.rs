//! Tests the wire format with another decoder: tcpdump captures a demo run in a network namespace, tshark
//! dissects it, and every FPDU must be DDP/RDMAP with a correct CRC.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use warpline_tests::netns::{Netns, have};
use warpline_tests::skip;

/// The discard port, which has no listener in a new namespace.
const LAST_PORT: u16 = 9;

/// Bound of waits, to fail instead of hang.
const HANG: Duration = Duration::from_secs(60);

/// tcpdump on `lo` of a namespace, running.
struct Capture {
    tcpdump: Child,
    /// tcpdump's own process id: `ip netns exec` becomes the command it runs.
    pid: u32,
}

impl Capture {
    fn start(netns: &Netns, file: &Path) -> Self {
        let mut tcpdump = netns
            .command("tcpdump")
            .args([
                "-i",
                "lo",
                "-n",
                "-s",
                "0",
                "-B",
                "65536",
                "--immediate-mode",
                "-U",
                "-Z",
                "root",
                "-w",
            ])
            .arg(file)
            .arg("tcp")
            .stderr(Stdio::piped())
            .spawn()
            .expect("tcpdump starts");
        let pid = tcpdump.id();
        let stderr = tcpdump.stderr.as_mut().expect("piped");
        let mut line = String::new();
        // tcpdump prints this once the capture is open; nothing sent later is missed.
        BufReader::new(stderr).read_line(&mut line).expect("tcpdump speaks");
        assert!(line.contains("listening on"), "tcpdump: {line}");
        Self { tcpdump, pid }
    }

    /// Ends the capture once all packets so far are in the file: they are in order, and the last is a refused
    /// connection to `LAST_PORT`.
    fn stop(mut self, netns: &Netns, file: &Path) {
        let mut refused = netns.command(env!("CARGO_BIN_EXE_warpline"));
        let output = refused.args(["ping", &format!("127.0.0.1:{LAST_PORT}")]).output();
        assert_eq!(output.expect("ping runs").status.code(), Some(4));
        let started = std::time::Instant::now();
        while !last_is_written(file) {
            assert!(started.elapsed() < HANG, "tcpdump writes nothing");
        }
        let status = Command::new("kill").args(["-INT", &self.pid.to_string()]).status();
        assert!(status.expect("kill runs").success());
        self.tcpdump.wait().expect("tcpdump ends");
    }
}

/// True once the last packet is in the file, which may end inside another one for a moment.
fn last_is_written(file: &Path) -> bool {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).args(["-Y", &format!("tcp.dstport == {LAST_PORT}")]);
    !tshark.output().expect("tshark runs").stdout.is_empty()
}

/// Runs tshark without the dissectors that take the content of Sends for NFS and SMB.
const NO_GUESSES: [&str; 4] =
    ["--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"];

fn tshark(file: &Path, args: &[&str]) -> String {
    let mut tshark = Command::new("tshark");
    let output = tshark.arg("-r").arg(file).args(NO_GUESSES).args(args).output();
    let output = output.expect("tshark runs");
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the demo on a `lo` of the given MTU and lets tshark judge.
fn demo_decodes(mtu: &str) {
    let name = format!("capture at MTU {mtu}");
    let tools =
        [("tcpdump", "tcpdump"), ("tshark", "tshark"), ("editcap", "tshark"), ("ip", "iproute2")];
    for (tool, package) in tools {
        if !have(tool) {
            return skip(&name, warpline_skip::missing(package));
        }
    }
    let Ok(netns) = Netns::new() else { return skip(&name, warpline_skip::NO_NAMESPACES) };
    netns.exec(&["ip", "link", "set", "lo", "mtu", mtu]).expect("lo takes the MTU");
    let dir = std::env::temp_dir().join(format!("warpline-capture-{}-{mtu}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("temporary directory");
    let (file, pcap) = (dir.join("file"), dir.join("demo.pcap"));
    let octets: Vec<u8> =
        (0..1_500_007_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, octets).expect("test file");

    let capture = Capture::start(&netns, &pcap);
    let demo = netns
        .command(env!("CARGO_BIN_EXE_warpline"))
        .args(["demo", "--chunk", "65536"])
        .arg(&file)
        // Otherwise shared memory carries the FPDUs.
        .env("WARPLINE_LOCAL", "off")
        .output()
        .expect("demo runs");
    capture.stop(&netns, &pcap);
    let stdout = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{stdout}{}", String::from_utf8_lossy(&demo.stderr));
    assert!(stdout.contains("\nverified\n"), "{stdout}");

    let fpdus = count(&pcap, "iwarp_mpa.fpdu");
    assert!(fpdus > 70, "only {fpdus} packets with FPDUs");
    assert_eq!(count(&pcap, "_ws.malformed"), 0, "malformed frames");
    assert_eq!(count(&pcap, "iwarp_mpa.fpdu && !iwarp_ddp_rdmap"), 0, "FPDUs without DDP");
    // A busy machine makes TCP repeat a segment; tshark does not dissect it a second time.
    let foreign = "tcp.len > 0 && !iwarp_mpa && !tcp.analysis.retransmission";
    assert_eq!(count(&pcap, foreign), 0, "octets that are not iWARP");
    for opcode in [0, 1, 2, 3] {
        assert!(
            count(&pcap, &format!("iwarp_rdma.opcode == {opcode}")) > 0,
            "RDMAP opcode {opcode} never seen"
        );
    }
    let crcs = tshark(&pcap, &["-Y", "iwarp_mpa.fpdu", "-V"]);
    let (good, bad) = (crcs.matches("Good CRC32").count(), crcs.matches("Bad CRC32").count());
    assert!(good > 70 && bad == 0, "{good} good and {bad} bad CRCs");
    let all = tshark(&pcap, &["-Y", "iwarp_mpa.fpdu", "-T", "fields", "-e", "frame.number"]);
    let all: Vec<_> = all.lines().collect();
    for lost in [&all[10..11], &all[20..23], &[all[1], all[30], all[50]]] {
        lost_packets_are_passed(&pcap, lost);
    }
    std::fs::remove_dir_all(&dir).expect("clean up");
}

/// `warpline decode` reads at least the FPDUs that tshark reads of a capture without these packets.
fn lost_packets_are_passed(whole: &Path, lost: &[&str]) {
    let file = whole.with_extension("lost.pcap");
    let mut editcap = Command::new("editcap");
    let status = editcap.args([whole, &file]).args(lost).status().expect("editcap runs");
    assert!(status.success());
    let lengths = tshark(&file, &["-T", "fields", "-e", "iwarp_mpa.ulpdulength"]);
    let fpdus = lengths.split(['\n', ',']).filter(|length| !length.is_empty()).count();
    let mut decode = Command::new(env!("CARGO_BIN_EXE_warpline"));
    let output = decode.args(["decode", "-b", "--pcap"]).arg(&file).output().expect("decode runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().expect("a last line");
    // A request and a reply.
    let frames = text.lines().filter(|line| line.starts_with('#')).count() - 2;
    assert!(frames >= fpdus && fpdus > 50, "{frames} of {fpdus} FPDUs: {last}");
    assert!(last.contains(", 0 broken requirements; ") && last.contains("not captured"), "{last}");
}

fn count(file: &Path, filter: &str) -> usize {
    tshark(file, &["-Y", filter, "-T", "fields", "-e", "frame.number"]).lines().count()
}

#[test]
fn tshark_decodes_every_fpdu_at_loopback_mtu() {
    demo_decodes("65536");
}

#[test]
fn tshark_decodes_every_fpdu_at_ethernet_mtu() {
    demo_decodes("1500");
}
