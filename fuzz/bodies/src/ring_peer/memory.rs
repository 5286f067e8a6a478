//! The shared memory as its peer sees it: a file to write to, beside a copy of what must be in it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use shm_ring::{MIN_RING, SHORT, create};

pub(super) const PAGE: usize = 4096;
/// Octets of the page that have a meaning.
pub(super) const WORDS: usize = 1152;

/// Offsets of the words of a ring, as `shm-ring` has them.
#[derive(Clone, Copy)]
pub(super) struct Way(usize);

impl Way {
    pub(super) fn new(ring: usize) -> Self {
        Self(128 + 512 * ring)
    }
    /// Tail and length of a short write are the halves of one word of 8 octets.
    pub(super) fn tail(self) -> usize {
        self.0 + if cfg!(target_endian = "big") { 4 } else { 0 }
    }
    pub(super) fn short(self) -> usize {
        self.0 + if cfg!(target_endian = "big") { 0 } else { 4 }
    }
    pub(super) fn closed(self) -> usize {
        self.0 + 8
    }
    /// The octets of a short write.
    pub(super) fn octets(self) -> std::ops::Range<usize> {
        self.0 + 16..self.0 + 16 + SHORT
    }
    pub(super) fn head(self) -> usize {
        self.0 + 128
    }
    pub(super) fn asleep(self) -> usize {
        self.0 + 256
    }
    pub(super) fn stalled(self) -> usize {
        self.0 + 384
    }
}

/// The memory.
pub(super) struct Memory {
    pub(super) file: File,
    /// What is there, as far as it is known.
    due: Vec<u8>,
}

impl Memory {
    /// As an honest process makes it.
    pub(super) fn honest() -> Self {
        let file: File = create(MIN_RING).expect("memory").into();
        Self::of(file, PAGE + 2 * MIN_RING as usize)
    }

    /// Of any size, with any beginning and any seals.
    pub(super) fn any(octets: u64, beginning: &[u8], seals: u8) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file: File = rustix::fs::memfd_create("peer", flags).expect("memory").into();
        file.set_len(octets).expect("a size");
        let beginning = &beginning[..beginning.len().min(octets as usize)];
        file.write_all_at(beginning, 0).expect("memory");
        let seals = SealFlags::from_bits_truncate(u32::from(seals));
        rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
        Self::of(file, octets as usize)
    }

    fn of(file: File, octets: usize) -> Self {
        let mut due = vec![0; octets];
        // After its beginning it is as the system made it.
        let beginning = octets.min(12);
        file.read_exact_at(&mut due[..beginning], 0).expect("memory");
        Self { file, due }
    }

    /// Octets of a ring.
    pub(super) fn ring(&self) -> u32 {
        ((self.due.len() - PAGE) / 2) as u32
    }

    /// Where a position of a ring is, in octets from the memory's beginning; and what is left up to the ring's end.
    fn place(&self, ring: usize, position: u32) -> (usize, usize) {
        let at = (position & (self.ring() - 1)) as usize;
        (PAGE + ring * self.ring() as usize + at, self.ring() as usize - at)
    }

    /// What must be in a ring from a position on.
    pub(super) fn octets(&self, ring: usize, position: u32, len: usize) -> Vec<u8> {
        let (at, most) = self.place(ring, position);
        let (begin, first) = (PAGE + ring * self.ring() as usize, len.min(most));
        [&self.due[at..at + first], &self.due[begin..begin + len - first]].concat()
    }

    /// Octets of the page.
    pub(super) fn page(&self, at: std::ops::Range<usize>) -> &[u8] {
        &self.due[at]
    }

    /// This end wrote these octets to a ring.
    pub(super) fn written(&mut self, ring: usize, position: u32, octets: &[u8]) {
        for (n, octet) in octets.iter().enumerate() {
            let (at, _) = self.place(ring, position.wrapping_add(n as u32));
            self.due[at] = *octet;
        }
    }

    /// The peer writes octets to a ring.
    pub(super) fn scribble(&mut self, ring: usize, position: u32, octets: &[u8]) {
        let (at, most) = self.place(ring, position);
        self.put(at, &octets[..octets.len().min(most)]);
    }

    /// The peer writes anywhere.
    pub(super) fn put(&mut self, at: usize, octets: &[u8]) {
        self.file.write_all_at(octets, at as u64).expect("memory");
        self.due[at..at + octets.len()].copy_from_slice(octets);
    }

    /// The peer replaces pages by new ones.
    pub(super) fn punch(&mut self, page: usize) {
        let at = page * PAGE % self.due.len();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, hole, at as u64, PAGE as u64).expect("a hole");
        self.due[at..at + PAGE].fill(0);
    }

    /// The word that is due.
    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.due[at..at + 4].try_into().expect("4 octets"))
    }

    /// Words that differ from what is due, by offset; from now on they are due.
    pub(super) fn changed(&mut self) -> Vec<(usize, u32)> {
        let mut page = [0; PAGE];
        self.file.read_exact_at(&mut page, 0).expect("memory");
        let mut changed = Vec::new();
        for at in (0..PAGE).step_by(4) {
            if page[at..at + 4] != self.due[at..at + 4] {
                self.due[at..at + 4].copy_from_slice(&page[at..at + 4]);
                changed.push((at, self.word(at)));
            }
        }
        changed
    }

    /// Whether a ring has what is due.
    pub(super) fn is_due(&self, ring: usize) -> bool {
        let begin = PAGE + ring * self.ring() as usize;
        let mut octets = vec![0; self.ring() as usize];
        self.file.read_exact_at(&mut octets, begin as u64).expect("memory");
        octets == self.due[begin..begin + octets.len()]
    }
}
