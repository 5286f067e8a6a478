//! Memory, receive queue and work requests of one end: the host of the simulation.
//!
//! Owner of the state: one end of the simulation; one thread. A peer that dies leaves buffers,
//! which `flush_receives` counts.

use std::collections::{HashMap, VecDeque};

use iwarp_proto::{
    AccessError, AtomicOp, Completion, Destination, Host, Immediate, LocalFault, Receive, Slot,
    Stag, Status, TaggedUse,
};

/// Access rights of a region.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rights {
    pub(crate) local_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) remote_atomic: bool,
}

impl Rights {
    pub(crate) const ALL: Self =
        Self { local_write: true, remote_read: true, remote_write: true, remote_atomic: true };
}

/// Registered memory; its address is its tagged offset.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) stag: Stag,
    pub(crate) to: u64,
    pub(crate) pd: u64,
    pub(crate) rights: Rights,
    pub(crate) shared: bool,
    pub(crate) valid: bool,
    pub(crate) octets: Vec<u8>,
}

impl Region {
    pub(crate) fn new(stag: u32, to: u64, len: usize) -> Self {
        Self {
            stag: Stag(stag),
            to,
            pd: 1,
            rights: Rights::ALL,
            shared: false,
            valid: true,
            octets: vec![0; len],
        }
    }
}

/// A receive buffer taken by the peer's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) id: u64,
    pub(crate) receive: Receive,
    pub(crate) octets: Vec<u8>,
}

/// The core's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Octets placed into the receive buffer.
    Place(usize),
    Invalidate(Stag),
    /// A receive is complete; the STag that it reports as invalidated.
    Complete(Option<Stag>),
}

/// The provider's half of a WQE.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) id: u64,
    /// Gathered payload of Sends and Writes.
    pub(crate) octets: Vec<u8>,
    /// Length of the operation.
    pub(crate) len: u32,
    pub(crate) fault: Option<LocalFault>,
    /// Sink of a Read, to be invalidated at the end.
    pub(crate) sink: Option<Stag>,
}

/// The host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) regions: Vec<Region>,
    pub(crate) posted: VecDeque<(u64, Vec<u8>)>,
    taken: Option<(u64, Vec<u8>)>,
    pub(crate) received: Vec<Received>,
    pub(crate) flushed: Vec<u64>,
    pub(crate) work: HashMap<Slot, Work>,
    pub(crate) completions: Vec<(u64, Status, u32)>,
    pub(crate) atomics: Vec<(u64, u64)>,
    pub(crate) local_runs: Vec<u64>,
    /// Octets placed in all.
    pub(crate) placed: u64,
    /// Operations on receive buffers and for the peer, in order.
    pub(crate) calls: Vec<Call>,
    /// A message was longer than its receive buffer.
    pub(crate) overflowed: bool,
    /// Placing into the receive buffer fails.
    pub(crate) broken_buffers: bool,
    /// Sends and Writes are never copied at once: they take the slow path.
    pub(crate) long: bool,
    target: Option<(usize, usize, u32)>,
}

impl Memory {
    pub(crate) fn region(&mut self, stag: u32) -> &mut Region {
        self.regions.iter_mut().find(|r| r.stag.0 == stag).expect("a region of the test")
    }
    fn locate(
        &self,
        stag: Stag,
        to: u64,
        len: u32,
        right: impl Fn(&Rights) -> bool,
    ) -> Result<(usize, usize), AccessError> {
        let index = self
            .regions
            .iter()
            .position(|r| r.valid && r.stag == stag && stag != Stag(0))
            .ok_or(AccessError::InvalidStag)?;
        let region = &self.regions[index];
        if region.pd != 1 {
            return Err(AccessError::NotAssociated);
        }
        if !right(&region.rights) {
            return Err(AccessError::Access);
        }
        let end = u128::from(to) + u128::from(len);
        if end > 1 << 64 {
            return Err(AccessError::Wrap);
        }
        if to < region.to || end > u128::from(region.to) + region.octets.len() as u128 {
            return Err(AccessError::Bounds);
        }
        Ok((index, (to - region.to) as usize))
    }
    /// The octets of a Read Response.
    pub(crate) fn source(&self, stag: Stag, to: u64, len: u32) -> Result<&[u8], AccessError> {
        let (index, at) = self.locate(stag, to, len, |r| r.remote_read)?;
        Ok(&self.regions[index].octets[at..at + len as usize])
    }
    /// Places octets that the provider read directly from the stream.
    pub(crate) fn place_direct(
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
}

impl Host for Memory {
    fn begin_receive(&mut self) -> Option<u32> {
        assert!(self.taken.is_none(), "one receive buffer at a time");
        self.taken = self.posted.pop_front();
        self.taken.as_ref().map(|(_, buffer)| buffer.len() as u32)
    }
    fn overflow_receive(&mut self) {
        self.overflowed = true;
    }
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        if self.broken_buffers {
            return Err(AccessError::InvalidStag);
        }
        let (_, buffer) = self.taken.as_mut().expect("a buffer was taken");
        buffer[offset as usize..offset as usize + octets.len()].copy_from_slice(octets);
        self.placed += octets.len() as u64;
        self.calls.push(Call::Place(octets.len()));
        Ok(())
    }
    fn complete_receive(&mut self, receive: Receive) {
        self.calls.push(Call::Complete(receive.invalidated));
        let (id, mut octets) = self.taken.take().expect("a buffer was taken");
        // What a Write placed is not in the buffer.
        let alone = matches!(receive.immediate, Some(Immediate::Alone(_)));
        octets.truncate(if alone { 0 } else { receive.octets as usize });
        self.received.push(Received { id, receive, octets });
    }
    fn check_tagged(
        &mut self,
        use_: TaggedUse,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        assert!(len > 0, "zero-length segments are not checked");
        let (index, at) = self.locate(stag, to, len, |r| match use_ {
            TaggedUse::Write => r.remote_write,
            TaggedUse::ReadResponse => r.local_write,
        })?;
        self.target = Some((index, at, len));
        Ok(())
    }
    fn place_tagged(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        let (index, at, len) = self.target.expect("a segment was checked");
        assert!(offset as usize + octets.len() <= len as usize, "within the segment");
        let region = &mut self.regions[index];
        if !region.valid {
            return Err(AccessError::InvalidStag);
        }
        let at = at + offset as usize;
        region.octets[at..at + octets.len()].copy_from_slice(octets);
        self.placed += octets.len() as u64;
        Ok(())
    }
    fn check_read_source(&mut self, stag: Stag, to: u64, len: u32) -> Result<(), AccessError> {
        assert!(len > 0, "zero-length reads are not checked");
        self.locate(stag, to, len, |r| r.remote_read).map(|_| ())
    }
    fn execute_atomic(&mut self, stag: Stag, to: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let (index, at) = self.locate(stag, to, 8, |r| r.remote_atomic)?;
        if !to.is_multiple_of(8) {
            return Err(AccessError::Unaligned);
        }
        let octets = &mut self.regions[index].octets[at..at + 8];
        let old = u64::from_ne_bytes((&*octets).try_into().expect("eight octets"));
        if let Some(new) = op.apply(old) {
            octets.copy_from_slice(&new.to_ne_bytes());
        }
        Ok(old)
    }
    fn invalidate_remote(&mut self, stag: Stag) -> Result<(), AccessError> {
        self.calls.push(Call::Invalidate(stag));
        let (index, _) = self.locate(stag, self.region_to(stag), 0, |_| true)?;
        if self.regions[index].shared {
            return Err(AccessError::CannotInvalidate);
        }
        self.regions[index].valid = false;
        Ok(())
    }
    fn begin_send(&mut self, slot: Slot) -> Result<u32, LocalFault> {
        let work = &self.work[&slot];
        work.fault.map_or(Ok(work.len), Err)
    }
    fn copy_send(&mut self, slot: Slot, room: &mut [u8]) -> Option<usize> {
        let Work { octets, len, fault, .. } = &self.work[&slot];
        if self.long || fault.is_some() || *len as usize != octets.len() {
            return None;
        }
        room.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(octets.len())
    }
    fn execute_local(&mut self, slot: Slot) -> Result<(), LocalFault> {
        let work = &self.work[&slot];
        self.local_runs.push(work.id);
        work.fault.map_or(Ok(()), Err)
    }
    fn invalidate_sink(&mut self, slot: Slot) -> Result<(), LocalFault> {
        let work = &self.work[&slot];
        if let Some(fault) = work.fault {
            return Err(fault);
        }
        let sink = work.sink.expect("a read has a sink");
        self.region(sink.0).valid = false;
        Ok(())
    }
    fn place_atomic_result(&mut self, slot: Slot, original: u64) -> Result<(), AccessError> {
        let work = &self.work[&slot];
        if work.fault.is_some() {
            return Err(AccessError::InvalidStag);
        }
        self.atomics.push((work.id, original));
        Ok(())
    }
    fn complete_send(&mut self, completion: Completion) {
        let work = self.work.remove(&completion.slot).expect("a WQE completes once");
        self.completions.push((work.id, completion.status, completion.octets));
    }
    fn flush_receives(&mut self) {
        let taken = self.taken.take();
        self.flushed.extend(taken.iter().chain(&self.posted).map(|(id, _)| *id));
        self.posted.clear();
    }
}

impl Memory {
    fn region_to(&self, stag: Stag) -> u64 {
        self.regions.iter().find(|r| r.stag == stag).map_or(0, |r| r.to)
    }
}
