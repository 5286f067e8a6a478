//! Explains why a file is not a library for this machine, because the loader's message can mislead: for a library
//! of another processor it reports that the file does not exist. Reads the first octets; no state.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Names of processors that a library may have been built for.
const NAMES: &[(u16, &str)] = &[
    (3, "x86"),
    (21, "ppc64"),
    (22, "s390"),
    (40, "arm"),
    (62, "x86-64"),
    (183, "aarch64"),
    (243, "riscv"),
    (258, "loongarch"),
];

/// What is wrong with the file, if its first octets show it.
pub(super) fn fault(path: &Path) -> Option<String> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "a pipe, socket or device" };
        return Some(format!("it is {what}, not a file"));
    }
    let own = head(Path::new("/proc/self/exe")).unwrap_or_default();
    difference(&head(path)?, &own)
}

/// The octets up to and including `e_machine`.
fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(20).read_to_end(&mut head).ok()?;
    Some(head)
}

/// Why a file that begins with `head` is not a library for a program that begins with `own`.
fn difference(head: &[u8], own: &[u8]) -> Option<String> {
    if head.is_empty() {
        return Some("the file is empty".into());
    }
    if !head.starts_with(b"\x7fELF") {
        return Some("it is no library: it does not begin as ELF files do".into());
    }
    let Some((bits, machine)) = machine_of(head) else {
        return Some("the file is cut short".into());
    };
    let (own_bits, own_machine) = machine_of(own)?;
    if bits != own_bits {
        return Some(format!("it is for programs of {bits} bits, this one has {own_bits}"));
    }
    let differs = machine != own_machine;
    differs.then(|| format!("it is for {}, this machine is {}", name(machine), name(own_machine)))
}

/// Class and processor.
fn machine_of(head: &[u8]) -> Option<(u32, u16)> {
    let octets: [u8; 2] = head.get(18..20)?.try_into().ok()?;
    let bits = if *head.get(4)? == 1 { 32 } else { 64 };
    let big = *head.get(5)? == 2;
    Some((bits, if big { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) }))
}

fn name(machine: u16) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == machine);
    known.map_or_else(|| format!("processor {machine} of ELF"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_octets_show_what_is_wrong() {
        let own = head(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(difference(&own, &own), None);
        let changed = |at: usize, octets: &[u8]| {
            let mut head = own.clone();
            head[at..at + octets.len()].copy_from_slice(octets);
            difference(&head, &own).unwrap_or_default()
        };
        assert!(changed(0, b"text").contains("does not begin as ELF"));
        assert!(changed(4, &[1]).contains("32 bits"));
        assert!(changed(18, &40u16.to_le_bytes()).contains("it is for arm, this machine is"));
        assert!(changed(18, &999u16.to_le_bytes()).contains("processor 999"));
        assert!(difference(b"", &own).unwrap().contains("empty"));
        assert!(difference(b"\x7fELF", &own).unwrap().contains("cut short"));
        assert!(fault(Path::new("/")).unwrap().contains("a directory"));
        assert!(fault(Path::new("/dev/null")).unwrap().contains("device"));
        assert_eq!(fault(Path::new("/nonexistent")), None);
    }
}
