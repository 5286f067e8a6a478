//! Test of a disk over iSER (RFC 7145) on the verbs libraries: the target of tgt, the initiator of libiscsi.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use verbs_programs::process::{Process, free_port};
use verbs_programs::{Libraries, libraries, skip};

/// Time-out of waits, to fail instead of hang.
const BOUND: Duration = Duration::from_secs(60);
const TARGET: &str = "iqn.2026-01.test:disk";
const INITIATOR: &str = "iqn.2026-01.test:initiator";

#[test]
fn an_initiator_finds_the_disk_of_a_target() {
    for (tool, package) in [("tgtd", "tgt"), ("iscsi-inq", "libiscsi-bin")] {
        if libraries::find(tool).is_none() {
            return skip("iSER on the verbs libraries", warpline_skip::missing(package));
        }
    }
    let libraries = Libraries::build();
    let home = std::env::temp_dir().join(format!("warpline-iser-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let (socket, disk) = (home.join("control"), home.join("disk"));
    File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    let (iscsi, iser) = (free_port(), free_port());

    let mut target = libraries.command("tgtd");
    target.env("TGT_IPC_SOCKET", &socket).arg("-f");
    target.args(["--iscsi", &format!("portal=127.0.0.1:{iscsi}")]);
    target.args(["--iser", &format!("port={iser}")]);
    let target = Process::start(target).unwrap();
    let admin = |line: &str| {
        let mut command = Command::new("tgtadm");
        command.env("TGT_IPC_SOCKET", &socket).args(["--lld", "iser", "--mode"]);
        command.args(line.split(' ')).output().is_ok_and(|output| output.status.success())
    };
    // It serves its control socket when it is ready.
    let new = format!("target --op new --tid 1 --targetname {TARGET}");
    warpline_patience::until("a target", || admin(&new));
    let disk = disk.display();
    assert!(admin(&format!("logicalunit --op new --tid 1 --lun 1 -b {disk}")));
    assert!(admin("target --op bind --tid 1 -I ALL"));
    // iSER's login checks names, too.
    assert!(admin(&format!("target --op bind --tid 1 -Q {INITIATOR}")));

    for (tool, expected) in
        [("iscsi-inq", "Product:VIRTUAL-DISK"), ("iscsi-readcapacity16", "Total size:16777216")]
    {
        let mut initiator = libraries.command(tool);
        initiator.args(["-i", INITIATOR, &format!("iser://127.0.0.1:{iser}/{TARGET}/1")]);
        let mut initiator = Process::start(initiator).unwrap();
        let status = initiator.wait(BOUND);
        let shown = initiator.printed();
        let works = status.is_some_and(|status| status.success()) && shown.contains(expected);
        assert!(works, "{tool}: {status:?}\n{shown}\nThe target:\n{}", target.printed());
    }
    drop(target);
    std::fs::remove_dir_all(&home).unwrap();
}
