//! Private data of a datagram service's replies. librdmacm passes on only the queue pair's number: it has one fixed
//! key and one refusal. So a reply of ours ends with a mark, the refusal, the key, and the length of the data, for our
//! other end. Other peers find the data where they expect it, followed by padding.
//!
//! Owner of the state: none, pure functions. Any thread.

use alloc::vec::Vec;

/// Octets of private data in a request: InfiniBand's 216 octets less librdmacm's 36.
pub const QUESTION: usize = 180;
/// Octets of private data in a reply (InfiniBand, table 133).
pub const ROOM: usize = 136;
/// Octets that follow the data of a reply.
pub const TRAILER: usize = 8;

const MARK: [u8; 2] = *b"WD";

/// Packs a reply's private data; `refusal` 0 means none.
pub fn pack(data: &[u8], refusal: u8, qkey: u32) -> Vec<u8> {
    let mut out = data.to_vec();
    out.resize(ROOM - TRAILER, 0);
    out.extend(MARK);
    out.push(refusal);
    out.extend(qkey.to_be_bytes());
    out.push(data.len() as u8);
    out
}

/// Unpacks the data, the refusal and the key. Data of a peer with another provider is returned unchanged.
pub fn unpack(mut octets: Vec<u8>) -> (Vec<u8>, Option<(u8, u32)>) {
    let Some((_, &[a, b, refusal, k0, k1, k2, k3, len])) = octets.split_last_chunk::<TRAILER>()
    else {
        return (octets, None);
    };
    let padding = octets.get(usize::from(len)..ROOM - TRAILER);
    let clean = padding.is_some_and(|padding| padding.iter().all(|octet| *octet == 0));
    if [a, b] != MARK || octets.len() != ROOM || !clean {
        return (octets, None);
    }
    octets.truncate(len.into());
    (octets, Some((refusal, u32::from_be_bytes([k0, k1, k2, k3]))))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn every_length_survives() {
        for len in 0..=ROOM - TRAILER {
            let data = vec![0; len];
            let packed = pack(&data, 3, 0x8000_0001);
            assert_eq!(packed.len(), ROOM);
            assert_eq!(unpack(packed), (data, Some((3, 0x8000_0001))));
        }
    }

    #[test]
    fn data_of_other_peers_is_unchanged() {
        let mut odd = pack(b"x", 0, 1);
        odd[5] = 1;
        for octets in [vec![], vec![1; 7], vec![0; ROOM], vec![b'W'; ROOM], odd] {
            assert_eq!(unpack(octets.clone()), (octets, None));
        }
    }
}
