//! A conformance case: what it tries, what it needs of the peer, the requirements that it shows. Plain values.
//!
//! A case tests one aspect of the peer on a fresh connection. The main thread plays one case at a time.

use super::bench::Bench;
use super::verdict::{Needs, Play, Role};

/// One test of the peer.
pub(super) struct Case<B: 'static = Bench> {
    /// Its name, which describes the attempt.
    pub(super) name: &'static str,
    /// Requirements that the response shows.
    pub(super) ids: &'static [&'static str],
    pub(super) role: Role,
    pub(super) needs: Needs,
    pub(super) play: fn(&mut B) -> Play,
}

impl<B> Case<B> {
    /// A case for peers of either role.
    pub(super) const fn both_ways(
        name: &'static str,
        ids: &'static [&'static str],
        needs: Needs,
        play: fn(&mut B) -> Play,
    ) -> Self {
        Self { name, ids, role: Role::Both, needs, play }
    }

    /// A case for peers that connect.
    pub(super) const fn to_initiator(
        name: &'static str,
        ids: &'static [&'static str],
        needs: Needs,
        play: fn(&mut B) -> Play,
    ) -> Self {
        Self { name, ids, role: Role::Initiator, needs, play }
    }

    /// A case for peers that listen.
    pub(super) const fn to_responder(
        name: &'static str,
        ids: &'static [&'static str],
        needs: Needs,
        play: fn(&mut B) -> Play,
    ) -> Self {
        Self { name, ids, role: Role::Responder, needs, play }
    }
}
