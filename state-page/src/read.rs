//! Takes a snapshot of a page; validates every octet.
//!
//! First the header is read and checked, then the records that it counts, 64 KiB at a time, each part three
//! times. Records of the second reading are valid if their generation is even and the same in the first and the third:
//! they are of one queue pair. Records that are being changed are left out, and counted.
//!
//! The owner of a page may be hostile: its file may have any length, with or without content, and change at any moment.
//! What is read and kept of it is bounded by the header's counts and by the reader's limit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;

use crate::layout::{
    DEVICE, DEVICES, DEVICES_AT, Field, MAGIC, SHORTEST_SLOT, SLOT, VERSION, flag,
};
pub use crate::layout::{DeviceState, Process, QueuePair};

/// Octets of the largest page: a million queue pairs.
pub const LARGEST: u64 = 600 << 20;
/// Octets of the largest record that a later version may have.
const LARGEST_RECORD: u32 = 4096;
/// Octets that are read at once.
const PART: usize = 64 << 10;

/// What a process publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The process.
    pub process: Process,
    /// Its adapters, with the index by which queue pairs refer to them.
    pub devices: Vec<(u32, DeviceState)>,
    /// Its queue pairs.
    pub queue_pairs: Vec<QueuePair>,
    /// Records that were being changed.
    pub changing: u32,
}

/// Why octets are not a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The magic is missing; the page may not be complete yet.
    Magic,
    /// The layout has a later version, which is not compatible.
    Version(u32),
    /// The header has an impossible offset, size or number.
    Header(&'static str),
    /// The file is shorter than its header requires.
    Short {
        /// Octets of the file.
        is: u64,
        /// Octets that the header needs.
        needs: u64,
    },
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => write!(f, "it does not begin like a state page"),
            Self::Version(version) => {
                write!(
                    f,
                    "it has version {version} of the layout, and this program knows {VERSION}"
                )
            }
            Self::Header(what) => write!(f, "its header is damaged: {what}"),
            Self::Short { is, needs } => {
                write!(f, "it was truncated: it has {is} octets, and its header says {needs}")
            }
        }
    }
}

impl std::error::Error for Malformed {}

/// Why a page was not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unread {
    /// The system's error.
    Os(io::Error),
    /// The octets are not a page.
    Malformed(Malformed),
    /// It has more octets than the reader's limit.
    TooLarge {
        /// Octets of the page.
        octets: u64,
    },
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}

impl From<Malformed> for Unread {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Octets that change while they are read.
pub trait Source {
    /// How many there are now.
    ///
    /// # Errors
    /// Those of the system.
    fn octets(&self) -> io::Result<u64>;

    /// Reads some of them from offset `at` on, for the first, second or third reading (0 to 2); returns how many: 0 at the
    /// end.
    ///
    /// # Errors
    /// Those of the system.
    fn read(&self, reading: usize, at: u64, room: &mut [u8]) -> io::Result<usize>;
}

impl Source for File {
    fn octets(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, _reading: usize, at: u64, room: &mut [u8]) -> io::Result<usize> {
        self.read_at(room, at)
    }
}

/// Three readings by the caller.
impl Source for [Vec<u8>; 3] {
    fn octets(&self) -> io::Result<u64> {
        Ok(self[1].len() as u64)
    }

    fn read(&self, reading: usize, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self[reading].get(at..));
        let rest = rest.unwrap_or_default();
        let octets = rest.len().min(room.len());
        room[..octets].copy_from_slice(&rest[..octets]);
        Ok(octets)
    }
}

/// Reads until the room is full, or to the end; returns how many octets.
fn fill(from: &impl Source, reading: usize, at: u64, room: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < room.len() {
        match from.read(reading, at + have as u64, &mut room[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

impl Page {
    /// Reads a page of at most `most` octets; returns it, and how many octets it has.
    ///
    /// # Errors
    /// See [`Unread`].
    pub fn read(from: &impl Source, most: u64) -> Result<(Self, u64), Unread> {
        let mut header = [0; DEVICES_AT];
        let have = fill(from, 1, 0, &mut header)?;
        let process = Process::read(&header[..have]);
        let octets = check(&process, from.octets()?)?;
        if octets > most {
            return Err(Unread::TooLarge { octets });
        }
        let (at, size, count) = (process.devices_at, process.device_size, process.devices);
        let devices = records(from, Section { at, size, count }, |index, octets| {
            let of = DeviceState::read(octets);
            (of.used == 1).then_some((index, of))
        })?;
        let (at, size, count) = (process.slots_at, process.slot_size, process.slots);
        let slots = records(from, Section { at, size, count }, |_, octets| {
            let mut whole = [0; SLOT];
            let known = octets.len().min(SLOT);
            whole[..known].copy_from_slice(&octets[..known]);
            Some(QueuePair::read(&whole)).filter(|of| of.used == 1)
        })?;
        let changing = devices.changing + slots.changing;
        let (devices, queue_pairs) = (devices.valid, slots.valid);
        Ok((Self { process, devices, queue_pairs, changing }, octets))
    }
}
/// Consecutive records of one size, by their offset in the file.
struct Section {
    at: u32,
    size: u32,
    count: u32,
}

/// Records of a section.
struct Records<T> {
    valid: Vec<T>,
    changing: u32,
}

/// Reads the records; `of` makes what is kept of a valid one, from its index and its octets.
fn records<T>(
    from: &impl Source,
    section: Section,
    of: impl Fn(u32, &[u8]) -> Option<T>,
) -> io::Result<Records<T>> {
    let mut all = Records { valid: Vec::new(), changing: 0 };
    let size = section.size as usize;
    let (count, in_part) = (section.count as usize, PART / size);
    let mut readings = [const { Vec::new() }; 3];
    for first in (0..count).step_by(in_part) {
        let at = u64::from(section.at) + (first * size) as u64;
        for (n, reading) in readings.iter_mut().enumerate() {
            reading.resize(size * in_part.min(count - first), 0);
            let have = fill(from, n, at, reading)?;
            reading.truncate(have);
        }
        let [before, now, after] = readings.each_ref().map(|reading| reading.chunks_exact(size));
        let generation = <AtomicU64 as Field>::read;
        for (n, ((before, now), after)) in before.zip(now).zip(after).enumerate() {
            let [before, stands, after] = [before, now, after].map(generation);
            if before != after || stands != after || after % 2 != 0 {
                all.changing += 1;
            } else if after != 0 {
                // Not 0: it was used.
                all.valid.extend(of((first + n) as u32, now));
            }
        }
    }
    Ok(all)
}

/// Checks the header of a file of `is` octets; returns how many the page has.
fn check(process: &Process, is: u64) -> Result<u64, Malformed> {
    if process.magic != MAGIC {
        return Err(Malformed::Magic);
    }
    if process.version != VERSION {
        return Err(Malformed::Version(process.version));
    }
    // Later writers append.
    if (process.device_size as usize) < DEVICE || (process.slot_size as usize) < SHORTEST_SLOT {
        return Err(Malformed::Header("its records are smaller than those of version 1"));
    }
    if process.device_size.max(process.slot_size) > LARGEST_RECORD {
        return Err(Malformed::Header("its records are larger than those of any version"));
    }
    let sizes = process.device_size | process.slot_size | process.devices_at | process.slots_at;
    if !sizes.is_multiple_of(8) {
        return Err(Malformed::Header("a record is at an odd place"));
    }
    if process.devices as usize > 16 * DEVICES {
        return Err(Malformed::Header("it has more adapters than there can be"));
    }
    let end = |at: u32, size: u32, count: u32| u64::from(at) + u64::from(size) * u64::from(count);
    let needs = end(process.devices_at, process.device_size, process.devices).max(end(
        process.slots_at,
        process.slot_size,
        process.slots,
    ));
    if needs > LARGEST {
        return Err(Malformed::Header("it has more queue pairs than there can be"));
    }
    if needs > is {
        return Err(Malformed::Short { is, needs });
    }
    Ok(needs)
}

impl QueuePair {
    /// Whether the stream has this [`flag`].
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the provider writes the counters.
    pub fn is_written(&self) -> bool {
        self.has(flag::WRITTEN)
    }

    /// Whether its transport is RoCE.
    pub fn is_roce(&self) -> bool {
        self.has(flag::ROCE)
    }

    /// On RoCE the numbers of both queue pairs: this end's, the peer's.
    pub fn numbers(&self) -> (u32, u32) {
        (self.numbers as u32, (self.numbers >> 32) as u32)
    }

    /// IRD.
    pub fn ird(&self) -> u32 {
        self.ird_ord & 0xffff
    }

    /// ORD.
    pub fn ord(&self) -> u32 {
        self.ird_ord >> 16
    }
}
