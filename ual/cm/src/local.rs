//! Local streams: which connections may have one, how many there are, and their part of a start-up.
//!
//! The number of ends is the process's; a child made by fork(2) begins at none. Each end has a [`Permit`] from
//! the start of its rendezvous until its stream has ended: the rendezvous holds it, then the endpoint's
//! link. The rendezvous itself is [`kal_shim::same_host`].

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use kal_os::fork::PerProcess;
use kal_shim::fork::Host;
use kal_shim::same_host::{
    Connection, Met, NotLocal, Place, Waiting, doorbells, has_headroom, is_here,
};
use vp_api::{Capabilities, LocalSide, LocalStream, RnicAttrs};

use crate::node::Ends;
use crate::policy::{Crc, LocalStreams, Policy};

/// Prefix of rendezvous names for MPA start-up: the side that sends the request listens.
pub(crate) const MPA: &str = "mpa";
/// Prefix of rendezvous names for sockets converted without start-up: the side that waits for the first FPDU listens.
pub(crate) const BARE: &str = "bare";

/// Rings for which there must be memory in the process's cgroup; a stream has two.
const MARGIN: u64 = 4;

/// Request flag: the stream has CRCs in shared memory, too.
const CRC: u8 = 1;

/// Number of ends of local streams, established or in rendezvous.
static ENDS: PerProcess<AtomicU32> = PerProcess::new();

/// The right to one of the ends that the policy allows.
#[derive(Debug)]
pub(crate) struct Permit(&'static AtomicU32);

impl Permit {
    fn take(most: u32) -> Result<Self, NotLocal> {
        let ends = ENDS.get::<Host>();
        let one_more = |now: u32| (now < most).then(|| now + 1);
        match ends.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Self(ends)),
            Err(_) => Err(NotLocal::Limit),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A name that is bound for the peer of a start-up.
#[derive(Debug)]
pub(crate) struct Seeking {
    pub(crate) waiting: Waiting,
    pub(crate) permit: Permit,
}

/// A local stream that both ends agreed on.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stream: LocalStream,
    pub(crate) crc: bool,
    pub(crate) permit: Permit,
}

impl Shared {
    pub(crate) fn new(met: Met, side: LocalSide, policy: &Policy, permit: Permit) -> Self {
        let Met { memory, doorbell, peer_doorbell, peer_wishes } = met;
        let crc = (peer_wishes | wishes(policy)) & CRC != 0;
        let stream = LocalStream { memory, side, doorbell, peer_doorbell };
        Self { stream, crc, permit }
    }
}

/// What this end requests of a local stream.
pub(crate) fn wishes(policy: &Policy) -> u8 {
    if policy.crc == Crc::Require { CRC } else { 0 }
}

/// Where the ends of a connection may meet, if policy, provider and addresses allow it.
pub(crate) fn place(
    word: &'static str,
    attrs: &RnicAttrs,
    policy: &Policy,
    ends: &Ends,
) -> Result<(Place, Permit), NotLocal> {
    if policy.local == LocalStreams::Off {
        return Err(NotLocal::Policy);
    }
    // The kernel keeps it, in TCP.
    if policy.rate.is_some() {
        return Err(NotLocal::Rate);
    }
    if !attrs.capabilities.contains(Capabilities::LOCAL_STREAM) {
        return Err(NotLocal::Provider);
    }
    let place = match &policy.local_dir {
        _ if is_here(ends.local.address, ends.remote.address) => Place::Abstract(word),
        Some(directory) => Place::Directory(word, directory.clone()),
        None => return Err(NotLocal::OtherHost),
    };
    Ok((place, Permit::take(policy.local_streams)?))
}

/// The connection of the end that waits at the rendezvous.
pub(crate) fn as_waiting(ends: &Ends) -> Connection {
    Connection { waiting: ends.local.address, dialling: ends.remote.address }
}

/// The connection of the end that connects to the rendezvous.
pub(crate) fn as_dialling(ends: &Ends) -> Connection {
    Connection { waiting: ends.remote.address, dialling: ends.local.address }
}

/// Memory and doorbells to offer.
pub(crate) fn make(policy: &Policy) -> Result<(OwnedFd, [OwnedFd; 2]), NotLocal> {
    // Otherwise the kernel could kill this process when the pages are used.
    let due = MARGIN * u64::from(policy.local_ring);
    if !has_headroom(due) {
        return Err(NotLocal::NoMemory);
    }
    let memory = shm_ring::create(policy.local_ring)?;
    // If there is no memory to record it, a forked child keeps it; nothing worse.
    let _ = kal_shim::fork::take(&memory);
    Ok((memory, doorbells()?))
}

/// Whether memory that was offered is a ring.
pub(crate) fn verify(memory: BorrowedFd<'_>) -> bool {
    match shm_ring::verify(memory) {
        Ok(_) => true,
        Err(refused) => {
            tracing::info!("a peer's shared memory is refused: {refused}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ends_as_are_allowed() {
        let first = Permit::take(2).unwrap();
        let _second = Permit::take(2).unwrap();
        assert_eq!(Permit::take(2).unwrap_err(), NotLocal::Limit);
        drop(first);
        Permit::take(2).unwrap();
    }
}
