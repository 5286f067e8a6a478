//! Reads from an ELF file what the loader uses: whether the program is dynamic, its machine, where it finds its
//! libraries. ELF of 64 bits, System V gABI chapters 4 and 5, in the byte order of this machine. Reads a file;
//! no state.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// Bound of what a malformed file makes us read.
const MOST: u64 = 1 << 20;

/// A program as the loader sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Elf {
    /// `e_machine`.
    pub(super) machine: u16,
    /// Whether it has 64 bits; otherwise the fields below are not known.
    pub(super) is_64: bool,
    /// Whether it names a loader, which loads libraries.
    pub(super) is_dynamic: bool,
    /// `DT_RPATH`, which comes before `LD_LIBRARY_PATH`, unless there is a `DT_RUNPATH`.
    pub(super) rpath: Option<String>,
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// Reads a program; `None`: it is no ELF file (a script).
pub(super) fn read(path: &Path) -> io::Result<Option<Elf>> {
    let file = File::open(path)?;
    let mut head = [0; 64];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let mut elf = Elf { machine: half(&head, 18), is_64: head[4] == 2, ..Elf::default() };
    if elf.is_64 {
        let all = segments(&file, &head)?;
        elf.is_dynamic = all.iter().any(|segment| segment.kind == PT_INTERP);
        elf.rpath = rpath(&file, &all)?;
    }
    Ok(Some(elf))
}

fn segments(file: &File, head: &[u8]) -> io::Result<Vec<Segment>> {
    let (start, size, count) =
        (word(head, 32), u64::from(half(head, 54)), u64::from(half(head, 56)));
    if size < 56 {
        return Ok(Vec::new());
    }
    let table = octets(file, start, size * count)?;
    let segment = |entry: &[u8]| Segment {
        kind: word(entry, 0) as u32,
        offset: word(entry, 8),
        address: word(entry, 16),
        size: word(entry, 32),
    };
    Ok(table.chunks_exact(size as usize).map(segment).collect())
}

fn rpath(file: &File, all: &[Segment]) -> io::Result<Option<String>> {
    let Some(dynamic) = all.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        return Ok(None);
    };
    let table = octets(file, dynamic.offset, dynamic.size)?;
    let entries: Vec<_> = table.chunks_exact(16).map(|e| (word(e, 0), word(e, 8))).collect();
    let value = |tag| entries.iter().find(|(found, _)| *found == tag).map(|(_, value)| *value);
    let (None, Some(name), Some(strings)) = (value(DT_RUNPATH), value(DT_RPATH), value(DT_STRTAB))
    else {
        return Ok(None);
    };
    let holds = |segment: &&Segment| {
        segment.kind == PT_LOAD
            && strings.checked_sub(segment.address).is_some_and(|at| at < segment.size)
    };
    let Some(load) = all.iter().find(holds) else { return Ok(None) };
    let start = load.offset.wrapping_add(strings - load.address).wrapping_add(name);
    let mut text = vec![0; 4096];
    let read = file.read_at(&mut text, start)?;
    text.truncate(read);
    let end = text.iter().position(|octet| *octet == 0).unwrap_or(text.len());
    text.truncate(end);
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

fn octets(file: &File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut all = vec![0; size.min(MOST) as usize];
    file.read_exact_at(&mut all, offset)?;
    Ok(all)
}

/// The 16-bit number at `at`; 0 beyond the end.
fn half(octets: &[u8], at: usize) -> u16 {
    octets.get(at..at + 2).and_then(|o| o.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

fn word(octets: &[u8], at: usize) -> u64 {
    octets.get(at..at + 8).and_then(|o| o.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_is_dynamic() {
        let elf = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(elf.is_64 && elf.is_dynamic, "{elf:?}");
        assert_eq!(elf.rpath, None);
    }

    #[test]
    fn a_script_is_no_program() {
        let script = std::env::temp_dir().join(format!("warpline-script-{}", std::process::id()));
        for text in ["#!/bin/sh\n", &"#!/bin/sh\n".repeat(20)] {
            std::fs::write(&script, text).unwrap();
            assert_eq!(read(&script).unwrap(), None);
        }
        std::fs::remove_file(&script).unwrap();
    }
}
