//! The host of the fuzzed QP: one region, a few receive buffers, and a record of what was
//! requested.
//!
//! Owner of the state: one run. The peer's octets come through the QP only.

use std::collections::{HashMap, VecDeque};

use iwarp_proto::{
    AccessError, AtomicOp, Completion, Destination, Host, Immediate, LocalFault, Receive, Slot,
    Stag, TaggedUse,
};

/// Octets of the region and of every work request.
pub(super) const MEMORY: usize = 1000;

pub(super) struct Memory {
    valid: bool,
    value: u64,
    /// Octets that the segment checked last may place.
    checked: Option<u32>,
    receives: VecDeque<usize>,
    taken: Option<(usize, u32)>,
    posted: u64,
    received: u64,
    flushed: u64,
    work: HashMap<Slot, u64>,
    next_done: u64,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            valid: true,
            value: 0,
            checked: None,
            receives: VecDeque::new(),
            taken: None,
            posted: 0,
            received: 0,
            flushed: 0,
            work: HashMap::new(),
            next_done: 0,
        }
    }
    pub(super) fn toggle(&mut self) {
        self.valid = !self.valid;
    }
    pub(super) fn post_receive(&mut self, len: usize) {
        if self.receives.len() < 8 {
            self.receives.push_back(len * 20);
            self.posted += 1;
        }
    }
    pub(super) fn posted_work(&mut self, slot: Slot, id: u64) {
        assert!(self.work.insert(slot, id).is_none(), "a slot is used once at a time");
    }
    pub(super) fn assert_complete(&mut self, posted: u64) {
        // What was posted after the end is the provider's to flush
        self.flush_receives();
        assert_eq!(self.received + self.flushed, self.posted, "receives");
        assert!(self.work.is_empty());
        assert_eq!(self.next_done, posted, "work requests");
    }
    pub(super) fn place_direct(
        &mut self,
        destination: Destination,
        offset: u32,
        octets: &[u8],
    ) -> Result<(), AccessError> {
        match destination {
            Destination::Tagged => self.place_tagged(offset, octets),
            Destination::Receive => self.place_receive(offset, octets),
        }
    }
    pub(super) fn check_source(&self, stag: Stag, to: u64, len: u32) -> Result<(), AccessError> {
        if !self.valid || stag != Stag(0x100) {
            return Err(AccessError::InvalidStag);
        }
        let end = to.checked_add(u64::from(len)).ok_or(AccessError::Wrap)?;
        if end > MEMORY as u64 { Err(AccessError::Bounds) } else { Ok(()) }
    }
}

impl Host for Memory {
    fn begin_receive(&mut self) -> Option<u32> {
        assert!(self.taken.is_none(), "one at a time");
        let len = self.receives.pop_front()?;
        self.taken = Some((len, 0));
        Some(len as u32)
    }
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        let (len, placed) = self.taken.as_mut().expect("a buffer was taken");
        assert_eq!(offset, *placed, "in order");
        *placed += octets.len() as u32;
        assert!(*placed as usize <= *len, "within the buffer");
        Ok(())
    }
    fn complete_receive(&mut self, receive: Receive) {
        let (_, placed) = self.taken.take().expect("a buffer was taken");
        match receive.immediate {
            // What a Write placed is not in the buffer.
            Some(Immediate::Alone(_)) => assert_eq!(placed, 0),
            _ => assert_eq!(receive.octets, placed),
        }
        self.received += 1;
    }
    fn check_tagged(
        &mut self,
        _use: TaggedUse,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        assert!(len > 0);
        self.checked = None;
        self.check_source(stag, to, len)?;
        self.checked = Some(len);
        Ok(())
    }
    fn place_tagged(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        if !self.valid {
            return Err(AccessError::InvalidStag);
        }
        let len = self.checked.expect("a segment was checked");
        assert!(offset as usize + octets.len() <= len as usize, "within the segment");
        Ok(())
    }
    fn check_read_source(&mut self, stag: Stag, to: u64, len: u32) -> Result<(), AccessError> {
        assert!(len > 0);
        self.check_source(stag, to, len)
    }
    fn execute_atomic(&mut self, stag: Stag, to: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.check_source(stag, to, 8)?;
        if !to.is_multiple_of(8) {
            return Err(AccessError::Unaligned);
        }
        let old = self.value;
        self.value = op.apply(old).unwrap_or(old);
        Ok(old)
    }
    fn invalidate_remote(&mut self, stag: Stag) -> Result<(), AccessError> {
        self.check_source(stag, 0, 0)?;
        self.valid = false;
        Ok(())
    }
    fn begin_send(&mut self, slot: Slot) -> Result<u32, LocalFault> {
        let id = self.work[&slot];
        if self.valid { Ok((id * 97 % MEMORY as u64) as u32) } else { Err(LocalFault::Wqe) }
    }
    fn copy_send(&mut self, slot: Slot, room: &mut [u8]) -> Option<usize> {
        let len = self.begin_send(slot).ok()? as usize;
        room.get_mut(..len)?.fill(2);
        Some(len)
    }
    fn execute_local(&mut self, slot: Slot) -> Result<(), LocalFault> {
        assert!(self.work.contains_key(&slot));
        if self.valid { Ok(()) } else { Err(LocalFault::NotInvalid) }
    }
    fn invalidate_sink(&mut self, slot: Slot) -> Result<(), LocalFault> {
        assert!(self.work.contains_key(&slot));
        self.valid = false;
        Ok(())
    }
    fn place_atomic_result(&mut self, slot: Slot, _original: u64) -> Result<(), AccessError> {
        assert!(self.work.contains_key(&slot));
        if self.valid { Ok(()) } else { Err(AccessError::InvalidStag) }
    }
    fn complete_send(&mut self, completion: Completion) {
        let id = self.work.remove(&completion.slot).expect("completes once");
        assert_eq!(id, self.next_done, "in posting order");
        self.next_done += 1;
    }
    fn flush_receives(&mut self) {
        self.flushed += u64::from(self.taken.take().is_some()) + self.receives.len() as u64;
        self.receives.clear();
    }
}
