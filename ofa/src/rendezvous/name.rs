//! Names and messages of the rendezvous: queue pair numbers, and the private data. Plain values.
//!
//! 32 octets: the letters `WLQP`, version 1, flags ([`IMMEDIATES`]), 2 octets of 0, the peer's number,
//!    the sender's number (both in network order), and the sender's GID.

use std::net::IpAddr;

use ual::gid;

const LETTERS: [u8; 4] = *b"WLQP";
const VERSION: u8 = 1;

/// The number of the queue pair at a slot of a listening point.
pub(crate) fn number(slot: u8, port: u16) -> u32 {
    u32::from(slot) << 16 | u32::from(port)
}

/// The port of the listening point, and the slot.
pub(crate) fn parts(number: u32) -> (u16, u8) {
    (number as u16, (number >> 16) as u8)
}

/// One end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name {
    pub(crate) address: IpAddr,
    pub(crate) number: u32,
}

/// A bit of [`Hello::flags`]: accepts Sends with Immediate, and sends them if the other end does.
pub(crate) const IMMEDIATES: u8 = 1;

/// The message of the connecting end, and the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) flags: u8,
    pub(crate) to: u32,
    pub(crate) from: u32,
    pub(crate) gid: [u8; 16],
}

impl Hello {
    pub(crate) fn octets(&self) -> Vec<u8> {
        let mut out = LETTERS.to_vec();
        out.extend([VERSION, self.flags, 0, 0]);
        out.extend(self.to.to_be_bytes());
        out.extend(self.from.to_be_bytes());
        out.extend(self.gid);
        out
    }

    /// `None`: it is not of a rendezvous, or of another version.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let octets: [u8; 32] = octets.try_into().ok()?;
        let [l0, l1, l2, l3, version, flags, _, _, rest @ ..] = octets;
        let [t0, t1, t2, t3, f0, f1, f2, f3, gid @ ..] = rest;
        let known = [l0, l1, l2, l3] == LETTERS && version == VERSION;
        known.then_some(Self {
            flags,
            to: u32::from_be_bytes([t0, t1, t2, t3]),
            from: u32::from_be_bytes([f0, f1, f2, f3]),
            gid,
        })
    }

    /// Whether its sender accepts Sends with Immediate.
    pub(crate) fn takes_immediates(&self) -> bool {
        self.flags & IMMEDIATES != 0
    }

    /// The name of its sender.
    pub(crate) fn sender(&self) -> Name {
        Name { address: gid::address_of(self.gid), number: self.from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7];
        let hello = Hello { flags: 2, to: 0x12_3456, from: number(7, 4791), gid };
        let octets = hello.octets();
        assert_eq!((octets.len(), Hello::parse(&octets)), (32, Some(hello)));
        assert_eq!(hello.sender().address, "192.0.2.7".parse::<IpAddr>().unwrap());
        assert_eq!(parts(hello.from), (4791, 7));
        for (at, wrong) in [(0, b'w'), (4, 2)] {
            let mut octets = octets.clone();
            octets[at] = wrong;
            assert_eq!(Hello::parse(&octets), None);
        }
        assert_eq!(Hello::parse(&octets[..31]), None);
    }
}
