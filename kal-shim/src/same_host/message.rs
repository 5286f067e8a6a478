//! Encoding of the rendezvous messages: each is a packet of a SOCK_SEQPACKET unix socket. Plain octets.
//!
//! ```text
//! 0      kind
//! 1      wishes of the sending end, whose meaning depends on the use
//! 2..4   zero
//! 4..22  end that waits: IPv6 address (IPv4 as mapped), port, big-endian
//! 22..40 end that dials, the same
//! ```

use std::net::{IpAddr, SocketAddr};

use super::Connection;

/// Octets of a message.
pub(super) const LEN: usize = 40;

/// Kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Offer with three descriptors: memory, the doorbell of the waiting end, that of the dialling end.
    Offer = 1,
    /// Accepts the offer.
    Agree = 2,
    /// Refuses the offer; nothing follows.
    Refuse = 3,
    /// Confirms that both ends continue in the memory.
    Go = 4,
}

/// A message about `connection`.
pub(super) fn encode(kind: Kind, wishes: u8, connection: &Connection) -> [u8; LEN] {
    let mut octets = [0; LEN];
    octets[0] = kind as u8;
    octets[1] = wishes;
    octets[4..22].copy_from_slice(&end(connection.waiting));
    octets[22..40].copy_from_slice(&end(connection.dialling));
    octets
}

/// A decoded message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) wishes: u8,
    /// It is about this connection.
    pub(super) is_ours: bool,
}

/// Decodes a message; `None`: it is malformed.
pub(super) fn decode(octets: &[u8], connection: &Connection) -> Option<Message> {
    let octets: &[u8; LEN] = octets.try_into().ok()?;
    let kinds = [Kind::Offer, Kind::Agree, Kind::Refuse, Kind::Go];
    let kind = kinds.into_iter().find(|kind| *kind as u8 == octets[0])?;
    (octets[2..4] == [0; 2]).then_some(())?;
    let wishes = octets[1];
    Some(Message { kind, wishes, is_ours: *octets == encode(kind, wishes, connection) })
}

/// Without the scope of a link-local address, which differs between the ends.
fn end(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut octets = [0; 18];
    octets[..16].copy_from_slice(&ip.octets());
    octets[16..].copy_from_slice(&address.port().to_be_bytes());
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(waiting: &str, dialling: &str) -> Connection {
        Connection { waiting: waiting.parse().unwrap(), dialling: dialling.parse().unwrap() }
    }

    #[test]
    fn a_message_is_about_one_connection() {
        let own = connection("127.0.0.1:40000", "[::1]:7");
        for kind in [Kind::Offer, Kind::Agree, Kind::Refuse, Kind::Go] {
            let due = Message { kind, wishes: 5, is_ours: true };
            assert_eq!(decode(&encode(kind, 5, &own), &own), Some(due));
        }
        let is_ours = |other: &Connection| {
            decode(&encode(Kind::Go, 0, other), &own).is_some_and(|message| message.is_ours)
        };
        for other in [
            connection("127.0.0.1:40001", "[::1]:7"),
            connection("127.0.0.2:40000", "[::1]:7"),
            connection("127.0.0.1:40000", "[::1]:8"),
            connection("127.0.0.1:40000", "[::2]:7"),
            connection("[::1]:7", "127.0.0.1:40000"),
        ] {
            assert!(!is_ours(&other), "{other:?}");
        }
        assert!(is_ours(&connection("[::ffff:127.0.0.1]:40000", "[::1%3]:7")));
    }

    #[test]
    fn anything_else_is_malformed() {
        let own = connection("127.0.0.1:40000", "127.0.0.1:7");
        let good = encode(Kind::Agree, 0, &own);
        let mut longer = good.to_vec();
        longer.push(0);
        for octets in [&[][..], &good[..LEN - 1], &longer] {
            assert_eq!(decode(octets, &own), None);
        }
        for (at, octet) in [(0, 0), (0, 5), (2, 1), (3, 1)] {
            let mut wrong = good;
            wrong[at] = octet;
            assert_eq!(decode(&wrong, &own), None);
        }
    }
}
