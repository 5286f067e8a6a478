//! Tests that two ends of `duet` over SoftRDMA conform in every case, with each kind of start-up. `tests/vm/run
//! interop` runs one end against the Linux kernel's siw.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Runs all cases with these options; returns both ends' lines.
fn play(options: &[&str]) -> String {
    let duet = || {
        let mut command = Command::new("timeout");
        command.args(["100", env!("CARGO_BIN_EXE_duet")]).args(options);
        command
    };
    let mut server = duet().args(["serve", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    let client = duet().args(["connect", address]).output().unwrap();
    let mut shown = String::from_utf8(client.stdout).unwrap();
    output.read_to_string(&mut shown).unwrap();
    let well = (client.status.success(), server.wait().unwrap().success());
    assert_eq!(well, (true, true), "{options:?}: {shown}");
    shown
}

#[test]
fn two_ends_over_softrdma_conform_in_every_case() {
    for options in
        [&["--rtr", "none", "--crc", "on"][..], &["--rtr", "read", "--crc", "off"], &["--mpa", "1"]]
    {
        let shown = play(options);
        let odd: Vec<_> = shown.lines().filter(|line| !line.starts_with("ok ")).collect();
        assert!(odd.is_empty(), "{options:?}: {odd:#?}");
        assert_eq!(shown.lines().count(), 2 * 40, "{options:?}: {shown}");
    }
}
