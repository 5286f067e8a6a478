//! Creates both ends of a local stream: the memory of two rings, and the doorbells of each side.
//!
//! Owner: the pair belongs to the two QPs that get it. The only peer is the device under test.

use kal_shim::same_host::doorbells;
use vp_api::{LocalSide, LocalStream};

use crate::fail::Fail;

/// Octets of each ring: the default of connections.
const RING: u32 = 256 << 10;

/// The streams for the end that made the memory, and for the other.
pub(crate) fn pair() -> Result<(LocalStream, LocalStream), Fail> {
    let memory = shm_ring::create(RING)?;
    let [doorbell, peer_doorbell] = doorbells()?;
    let other = LocalStream {
        memory: memory.try_clone()?,
        side: LocalSide::Other,
        doorbell: peer_doorbell.try_clone()?,
        peer_doorbell: doorbell.try_clone()?,
    };
    Ok((LocalStream { memory, side: LocalSide::Maker, doorbell, peer_doorbell }, other))
}
