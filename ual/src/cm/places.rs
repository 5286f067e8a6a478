//! Where this process listens, for handing requests over. A table behind a mutex, of all adapters; a
//! listener puts itself in and takes itself out. It grows by small pieces.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::requests::Waiting;
use super::{Handoff, Mailbox};

/// By thread and name there.
type Places = BTreeMap<(usize, u64), Place>;

static PLACES: Mutex<Places> = Mutex::new(BTreeMap::new());

/// A listener.
#[derive(Clone)]
pub(super) struct Place {
    /// Its thread.
    pub(super) owner: Mailbox,
    /// Its name there.
    pub(super) token: u64,
    pub(super) addresses: Vec<SocketAddr>,
}

fn list() -> MutexGuard<'static, Places> {
    // Nothing panics while the lock is held.
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(place: Place) {
    list().insert((place.owner.id(), place.token), place);
}

pub(super) fn remove(owner: &Mailbox, token: u64) {
    list().remove(&(owner.id(), token));
}

/// The listener that fits best: one that could have got the request itself, then one of the same
/// adapter.
pub(super) fn find(to: &Handoff, request: &Waiting) -> Option<Place> {
    let list = list();
    let fits = |place: &&Place| {
        let there = place.addresses.iter().any(|address| {
            address.port() == to.port && to.address.is_none_or(|ip| covers(address.ip(), ip))
        });
        there && (!request.is_bound() || place.owner.is(&request.owner))
    };
    let rank = |place: &&Place| {
        let near = place.addresses.iter().any(|address| covers(address.ip(), request.local.ip()));
        (near, place.owner.is(&request.owner))
    };
    list.values().filter(fits).max_by_key(rank).cloned()
}

/// Whether a listener at `bound` takes connections to `ip`.
fn covers(bound: IpAddr, ip: IpAddr) -> bool {
    match bound {
        IpAddr::V4(v4) if v4.is_unspecified() => ip.is_ipv4(),
        IpAddr::V6(v6) if v6.is_unspecified() => true,
        bound => bound == ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_cover_what_they_take() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let cases = [
            ("0.0.0.0", "127.0.0.1", true),
            ("0.0.0.0", "::1", false),
            ("::", "127.0.0.1", true),
            ("::", "::1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("::1", "::1", true),
            ("::1", "::2", false),
            ("::1", "127.0.0.1", false),
        ];
        for (bound, target, expected) in cases {
            assert_eq!(covers(ip(bound), ip(target)), expected, "{bound} {target}");
        }
    }
}
