//! The sink's rules for untagged segments (RFC 5041 sections 5.4 and 7.1): MSN and MO.
//!
//! Owner: the receive half of a QP. If the stream ends in the middle of a message, the host
//! flushes its receive buffer.

use crate::error::ProtocolError;
use crate::wire::ddp::UntaggedRepr;

/// A Send-type message of which some segments are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Partial {
    /// Capacity of the receive buffer, in octets.
    pub(crate) capacity: u32,
    /// Octets placed.
    pub(crate) received: u32,
}

impl Partial {
    /// Checks a segment's offset and length; a refused segment places nothing [DDP-14].
    pub(crate) fn check(&self, mo: u32, len: u32) -> Result<(), ProtocolError> {
        // RFC 5041 7.1(3): over an in-order LLP the only legal MO is the next one [ERR-11]
        if mo != self.received {
            return Err(ProtocolError::MessageOffset);
        }
        // RFC 5041 7.1(4), in 64 bits [ERR-12, RDMAP-12]
        if u64::from(mo) + u64::from(len) > u64::from(self.capacity) {
            return Err(ProtocolError::MessageTooLong);
        }
        Ok(())
    }
}

/// Over an in-order LLP a gap or a repeat is detected at once (RFC 5041 7.1(5)) [DDP-06, ERR-10].
pub(crate) fn check_msn(header: &UntaggedRepr, expected: u32) -> Result<(), ProtocolError> {
    if header.msn == expected { Ok(()) } else { Err(ProtocolError::MsnRange) }
}

/// A Read or Atomic Request: one segment of exactly `len` payload octets (RFC 5040 section 4.4, RFC
/// 7306 section 5.2.1) [RDMAP-04, EXT-04].
pub(crate) fn check_request(
    header: &UntaggedRepr,
    payload: u32,
    len: usize,
) -> Result<(), ProtocolError> {
    if header.mo != 0 {
        return Err(ProtocolError::MessageOffset);
    }
    if payload > len as u32 {
        return Err(ProtocolError::RequestLong);
    }
    if !header.control.last() {
        return Err(ProtocolError::NotLast);
    }
    if payload < len as u32 {
        return Err(ProtocolError::RequestShort);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ddp::Control;

    // [DDP-17] the checks return a value: the caller decides what happens to the stream
    #[test]
    fn checks_change_nothing() {
        let partial = Partial { capacity: 10, received: 4 };
        assert_eq!(partial.check(4, 6), Ok(()));
        assert_eq!(partial.check(4, 7), Err(ProtocolError::MessageTooLong));
        assert_eq!(partial.check(3, 1), Err(ProtocolError::MessageOffset));
        assert_eq!(partial, Partial { capacity: 10, received: 4 });
    }

    // [DDP-14] offset plus length in 64 bits
    #[test]
    fn sums_do_not_wrap() {
        let partial = Partial { capacity: u32::MAX, received: u32::MAX };
        assert_eq!(partial.check(u32::MAX, 1), Err(ProtocolError::MessageTooLong));
        assert_eq!(partial.check(u32::MAX, 0), Ok(()));
    }

    // [RDMAP-04, EXT-04] what is wrong with a request that is more or less than its header
    #[test]
    fn a_request_is_its_header() {
        let judge = |mo, last, payload| {
            let control = Control::new(false, last);
            let header = UntaggedRepr { control, ulp: 0x41, ulp_word: 0, qn: 1, msn: 1, mo };
            check_request(&header, payload, 28)
        };
        assert_eq!(judge(0, true, 28), Ok(()));
        assert_eq!(judge(4, true, 28), Err(ProtocolError::MessageOffset));
        assert_eq!(judge(0, true, 29), Err(ProtocolError::RequestLong));
        assert_eq!(judge(0, false, 28), Err(ProtocolError::NotLast));
        assert_eq!(judge(0, true, 27), Err(ProtocolError::RequestShort));
    }

    // [ERR-10]
    #[test]
    fn the_next_number_is_the_only_one() {
        let header = |msn| UntaggedRepr {
            control: Control::new(false, true),
            ulp: 0x43,
            ulp_word: 0,
            qn: 0,
            msn,
            mo: 0,
        };
        assert_eq!(check_msn(&header(u32::MAX), u32::MAX), Ok(()));
        assert_eq!(check_msn(&header(1), 0), Err(ProtocolError::MsnRange));
        assert_eq!(check_msn(&header(u32::MAX), 0), Err(ProtocolError::MsnRange));
    }
}
