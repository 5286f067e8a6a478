//! Private data of InfiniBand's connection messages, which have one length each and arrive padded:
//! the padding of ours ends with a mark and the length, so that our other end can take it off.
//! Other peers find the data where they expect it.
//!
//! Owner of the state: none, pure functions. Any thread.

use alloc::vec::Vec;

/// Room in a connection request: InfiniBand's 92 octets less librdmacm's 36.
pub const REQUEST: usize = 56;
/// Room in a reply (InfiniBand 12.7.2).
pub const REPLY: usize = 196;
/// Room in a rejection (InfiniBand 12.7.2).
pub const REJECT: usize = 148;

const MARK: [u8; 2] = *b"WL";
/// Octets of the mark and the length.
pub const TRAILER: usize = MARK.len() + 1;

/// Fills the room of a message, if the data leaves room for the trailer.
pub fn pack(data: &[u8], room: usize) -> Vec<u8> {
    let mut out = data.to_vec();
    if data.len() + TRAILER <= room {
        out.resize(room - TRAILER, 0);
        out.extend(MARK);
        out.push(data.len() as u8);
    }
    out
}

/// The data that was packed; data of another peer is returned unchanged.
pub fn unpack(mut octets: Vec<u8>, room: usize) -> Vec<u8> {
    let len = match octets.split_last_chunk() {
        Some((_, &[a, b, len])) if [a, b] == MARK && octets.len() == room => usize::from(len),
        _ => return octets,
    };
    let padding = octets.get(len..room - TRAILER);
    if padding.is_some_and(|padding| padding.iter().all(|octet| *octet == 0)) {
        octets.truncate(len);
    }
    octets
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn every_length_survives_the_padding() {
        for room in [REQUEST, REPLY, REJECT] {
            for len in 0..=room - TRAILER {
                for last in [0, 7] {
                    let data = vec![last; len];
                    let packed = pack(&data, room);
                    assert_eq!(packed.len(), room);
                    assert!(packed.starts_with(&data));
                    assert_eq!(unpack(packed, room), data);
                }
            }
        }
    }

    #[test]
    fn data_of_other_peers_is_unchanged() {
        for octets in [vec![], vec![1; 3], vec![0; REQUEST], vec![b'L'; REQUEST]] {
            assert_eq!(unpack(octets.clone(), REQUEST), octets);
        }
        let mut odd = vec![1; REQUEST - TRAILER];
        odd.extend(*b"WL\x02");
        assert_eq!(unpack(odd.clone(), REQUEST), odd);
        odd[REQUEST - 1] = 200;
        assert_eq!(unpack(odd.clone(), REQUEST), odd);
    }
}
