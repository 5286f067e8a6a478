//! Named policies for known peers. What each peer does is in `spec/interop.md`, which also says which
//! profiles were tried against it and which rest on reports alone.

use super::{LocalStreams, Markers, PeerToPeer, Policy};

impl Policy {
    /// Names that [`Policy::profile`] knows.
    pub const PROFILES: [&str; 6] =
        ["default", "siw", "chelsio-t4", "chelsio-t6", "intel", "strict-rfc"];

    /// A named peer profile.
    ///
    /// | name | peer | what is different |
    /// |---|---|---|
    /// | `default` | any | works around every known quirk |
    /// | `siw` | the Linux kernel's software RNIC | markers refused, as siw does (IOP-01); RTR by Write (IOP-06); CRC requested, which siw does not do by itself (IOP-04); no RFC 7306 (IOP-16) |
    /// | `chelsio-t4` | T3, T4 adapters | MPA revision 1, so no IRD/ORD exchange and no RTR; markers refused; no RFC 7306 |
    /// | `chelsio-t6` | T5, T6 adapters | both RTR kinds offered: they take the one they are set to (IOP-08); markers refused; no RFC 7306 |
    /// | `intel` | X722, E810 adapters | always the enhanced form with an RTR to choose (IOP-09); markers refused; no RFC 7306 |
    /// | `strict-rfc` | test benches | nothing that a standard does not ask for: no zero-length kick, no probe, no second try, no local stream |
    pub fn profile(name: &str) -> Option<Self> {
        let default = Self::default();
        // No adapter implements RFC 7306, and all have markers off.
        let adapter = Self { extensions: false, markers: Markers::Refuse, ..default.clone() };
        Some(match name {
            "default" => default,
            "siw" => Self {
                peer_to_peer: PeerToPeer { send: false, write: true, read: false },
                ..adapter
            },
            "chelsio-t4" => Self {
                revision: 1,
                negotiate_ird_ord: false,
                peer_to_peer: PeerToPeer::default(),
                ..adapter
            },
            // RTR by Write or by Read, as by default.
            "chelsio-t6" | "intel" => adapter,
            "strict-rfc" => Self {
                peer_to_peer: PeerToPeer { send: true, write: true, read: true },
                fall_back: false,
                kick_after: None,
                probe_after: None,
                local: LocalStreams::Off,
                ..default
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_profile_exists() {
        assert!(Policy::PROFILES.iter().all(|name| Policy::profile(name).is_some()));
        assert_eq!(Policy::profile("default"), Some(Policy::default()));
        assert!(Policy::profile("none").is_none());
    }

    // [IOP-09]: Intel's adapters always expect the enhanced block; old Chelsio ones never do.
    #[test]
    fn the_form_of_the_request_fits_the_peer() {
        let enhanced = |name| Policy::profile(name).is_some_and(|policy| policy.enhanced());
        assert!(enhanced("intel") && enhanced("chelsio-t6") && enhanced("siw"));
        assert!(!enhanced("chelsio-t4"));
    }

    // [IOP-01] [IOP-06] [IOP-08]: markers, RTR and RFC 7306 as each peer has them.
    #[test]
    fn profiles_say_what_each_peer_can_do() {
        let rtr = |send, write, read| PeerToPeer { send, write, read };
        let none = PeerToPeer::default();
        for (name, revision, peer_to_peer) in [
            ("siw", 2, rtr(false, true, false)),
            ("chelsio-t4", 1, none),
            ("chelsio-t6", 2, rtr(false, true, true)),
            ("intel", 2, rtr(false, true, true)),
        ] {
            let policy = Policy::profile(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((policy.revision, policy.peer_to_peer), (revision, peer_to_peer), "{name}");
            assert_eq!(policy.negotiate_ird_ord, revision == 2, "{name}");
            assert_eq!((policy.markers, policy.extensions), (Markers::Refuse, false), "{name}");
        }
        let strict = Policy::profile("strict-rfc").unwrap_or_else(|| panic!("strict-rfc"));
        assert_eq!(strict.peer_to_peer, rtr(true, true, true));
        assert!(!strict.fall_back && strict.kick_after.is_none() && strict.probe_after.is_none());
    }
}
