//! Collecting and building start-up frames (RFC 5044 section 7.1.1), the same for both roles.
//!
//! Owner of the state: the start-up machine. One thread at a time. A collector holds at most 532
//! octets; when the peer dies it reports how many had arrived.

use alloc::vec::Vec;

use super::{StartupError, Step, max_private_data};
use crate::wire::mpa::{EnhancedRepr, FrameKind, MAX_PRIVATE_DATA, StartupRepr};

/// The part of the peer's frame that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    expected: FrameKind,
    octets: Vec<u8>,
}

/// A complete frame whose sizes are right; its values are not checked yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) fixed: StartupRepr,
    pub(super) enhanced: Option<EnhancedRepr>,
    pub(super) private_data: &'a [u8],
}

impl Collector {
    pub(super) const fn new(expected: FrameKind) -> Self {
        Self { expected, octets: Vec::new() }
    }

    /// Takes octets up to the frame's end. The result does not depend on how the stream is split.
    /// `judge` checks the fixed part before private data is awaited.
    pub(super) fn feed(
        &mut self,
        octets: &[u8],
        judge: impl FnOnce(&StartupRepr) -> Result<(), StartupError>,
    ) -> Result<Step<()>, StartupError> {
        let mut consumed = self.take(octets, StartupRepr::LEN);
        self.check_key()?;
        let Ok(fixed) = StartupRepr::parse(&self.octets) else { return Ok(Step::NeedMore) };
        // RFC 5044 7.1.1 [CONN-07, SEC-18]: refused before a single octet of it is stored.
        if usize::from(fixed.private_data_len) > MAX_PRIVATE_DATA {
            return Err(StartupError::PrivateDataTooLong { got: fixed.private_data_len });
        }
        judge(&fixed)?;
        if is_enhanced(&fixed) && usize::from(fixed.private_data_len) < EnhancedRepr::LEN {
            return Err(StartupError::EnhancedTooShort { got: fixed.private_data_len });
        }
        let len = StartupRepr::LEN + usize::from(fixed.private_data_len);
        consumed += self.take(&octets[consumed..], len);
        if self.octets.len() < len {
            return Ok(Step::NeedMore);
        }
        Ok(Step::Done { consumed, value: () })
    }

    /// The frame; call it when `feed` has returned that it is complete.
    pub(super) fn frame(&self) -> Option<Frame<'_>> {
        let fixed = StartupRepr::parse(&self.octets).ok()?;
        let data = self.octets.get(StartupRepr::LEN..)?;
        if data.len() < usize::from(fixed.private_data_len) {
            return None;
        }
        // RFC 6581 6 [CONN-16]
        if is_enhanced(&fixed) {
            let block = EnhancedRepr::parse(data).ok()?;
            let private_data = &data[EnhancedRepr::LEN..];
            return Some(Frame { fixed, enhanced: Some(block), private_data });
        }
        Some(Frame { fixed, enhanced: None, private_data: data })
    }

    /// Octets of the frame so far.
    pub(super) fn have(&self) -> usize {
        self.octets.len()
    }

    fn take(&mut self, octets: &[u8], up_to: usize) -> usize {
        let n = octets.len().min(up_to.saturating_sub(self.octets.len()));
        self.octets.extend_from_slice(&octets[..n]);
        n
    }

    fn check_key(&self) -> Result<(), StartupError> {
        // RFC 5044 7.1.1 [CONN-01, CONN-12]: the first octet that differs decides, at once, so that
        // a peer that speaks another protocol is not waited for.
        let due = self.expected.key();
        let Some(at) = self.octets.iter().zip(due).position(|(octet, due)| octet != due) else {
            return Ok(());
        };
        let front = &self.octets[..=at];
        let ours =
            [FrameKind::Request, FrameKind::Reply].iter().any(|k| k.key().starts_with(front));
        Err(if ours { StartupError::WrongRole } else { StartupError::BadKey { at } })
    }
}

/// S counts from revision 2 on; before, it was a reserved bit [CONN-05, CONN-16].
const fn is_enhanced(fixed: &StartupRepr) -> bool {
    fixed.enhanced && fixed.revision >= 2
}

/// Builds a frame; `fixed.private_data_len` and `fixed.enhanced` are filled in here.
pub(super) fn build(
    mut fixed: StartupRepr,
    enhanced: Option<EnhancedRepr>,
    private_data: &[u8],
) -> Result<Vec<u8>, StartupError> {
    let max = max_private_data(enhanced.is_some());
    // RFC 5044 7.1.1, RFC 6581 6 [CONN-07]
    if private_data.len() > max {
        return Err(StartupError::OurPrivateDataTooLong { len: private_data.len(), max });
    }
    let block = enhanced.map(|block| block.emit());
    let block = block.as_ref().map_or(&[][..], |block| &block[..]);
    fixed.enhanced = enhanced.is_some();
    fixed.private_data_len = (block.len() + private_data.len()) as u16;
    let mut octets = Vec::with_capacity(StartupRepr::LEN + block.len() + private_data.len());
    octets.extend_from_slice(&fixed.emit());
    octets.extend_from_slice(block);
    octets.extend_from_slice(private_data);
    Ok(octets)
}
