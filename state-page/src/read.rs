//! Takes a snapshot of a page; validates every octet.
//!
//! The file is read three times. Records of the second reading are valid if their generation is even and the
//! same in the first and the third: they are of one queue pair. Records that are being changed are left out,
//! and counted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::layout::{DEVICE, DEVICES, Field, MAGIC, SLOT, VERSION, flag};
pub use crate::layout::{DeviceState, Process, QueuePair};

/// Bound of what is read of a page in octets: a million queue pairs.
pub const LARGEST: u64 = 300 << 20;

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

/// Three readings of a page.
#[derive(Clone, Debug, Default)]
pub struct Octets([Vec<u8>; 3]);

impl Octets {
    /// Reads a file, up to [`LARGEST`] octets.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn of(file: &File) -> io::Result<Self> {
        let octets = file.metadata()?.len().min(LARGEST) as usize;
        let mut all = Self::default();
        for reading in &mut all.0 {
            reading.resize(octets, 0);
            let mut at = 0;
            while at < octets {
                match file.read_at(&mut reading[at..], at as u64) {
                    Ok(0) => break,
                    Ok(read) => at += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            reading.truncate(at);
        }
        Ok(all)
    }

    /// Three readings by the caller.
    pub fn made_of(readings: [Vec<u8>; 3]) -> Self {
        Self(readings)
    }

    /// Parses the readings.
    ///
    /// # Errors
    /// They are not a page.
    pub fn page(&self) -> Result<Page, Malformed> {
        let process = Process::read(&self.0[1]);
        check(&process, self.0[1].len() as u64)?;
        let mut changing = 0;
        let devices = self.records(
            Section { at: process.devices_at, size: process.device_size, count: process.devices },
            &mut changing,
            DeviceState::read,
        );
        let queue_pairs = self.records(
            Section { at: process.slots_at, size: process.slot_size, count: process.slots },
            &mut changing,
            QueuePair::read,
        );
        let devices: Vec<_> = devices.into_iter().filter(|(_, of)| of.used == 1).collect();
        let queue_pairs = queue_pairs.into_iter().map(|(_, of)| of).filter(|of| of.used == 1);
        Ok(Page { queue_pairs: queue_pairs.collect(), process, devices, changing })
    }

    fn records<T>(
        &self,
        section: Section,
        changing: &mut u32,
        read: impl Fn(&[u8]) -> T,
    ) -> Vec<(u32, T)> {
        let mut out = Vec::new();
        for index in 0..section.count {
            let Some([before, now, after]) = self.record(&section, index) else { break };
            let [before, stands, after] =
                [before, now, after].map(<std::sync::atomic::AtomicU64 as Field>::read);
            if before != after || stands != after || after % 2 != 0 {
                *changing += 1;
                continue;
            }
            // Never used: skip it.
            if after != 0 {
                out.push((index, read(now)));
            }
        }
        out
    }

    /// A record in each of the readings, if complete.
    fn record(&self, section: &Section, index: u32) -> Option<[&[u8]; 3]> {
        let size = section.size as usize;
        let at = (index as usize).checked_mul(size)?.checked_add(section.at as usize)?;
        let end = at.checked_add(size)?;
        let [a, b, c] = &self.0;
        Some([a.get(at..end)?, b.get(at..end)?, c.get(at..end)?])
    }
}

/// Consecutive records of one size, by their offset in the file.
struct Section {
    at: u32,
    size: u32,
    count: u32,
}

fn check(process: &Process, is: u64) -> Result<(), Malformed> {
    if process.magic != MAGIC {
        return Err(Malformed::Magic);
    }
    if process.version != VERSION {
        return Err(Malformed::Version(process.version));
    }
    // Later versions append.
    if (process.device_size as usize) < DEVICE || (process.slot_size as usize) < SLOT {
        return Err(Malformed::Header("its records are smaller than those of version 1"));
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
    // A page beyond the bound is read up to it.
    if needs > is && needs <= LARGEST {
        return Err(Malformed::Short { is, needs });
    }
    if needs > LARGEST {
        return Err(Malformed::Header("it has more queue pairs than there can be"));
    }
    Ok(())
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
