//! The listeners of this process, for handing requests over: one table for all adapters, under a mutex.
//!
//! A listener is added once requests may arrive, and removed before it ends. The table grows in small
//! pieces.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kal_os::fork::PerProcess;
use kal_shim::fork::Host;

use crate::mailbox::{Mailbox, Target};
use crate::types::Handoff;

/// By table, and token there.
type Listeners = BTreeMap<(usize, u64), Registered>;

static LISTENERS: PerProcess<Mutex<Listeners>> = PerProcess::new();

/// A listener.
struct Registered {
    target: Target,
    addresses: Vec<SocketAddr>,
}

/// A request that is to be handed over.
pub(crate) struct Moving<'a> {
    /// The table that has it.
    pub(crate) owner: &'a Mailbox,
    /// It cannot leave the adapter.
    pub(crate) is_bound: bool,
    /// The address that it arrived at.
    pub(crate) local: SocketAddr,
}

fn listeners() -> MutexGuard<'static, Listeners> {
    // Nothing panics while the lock is held.
    LISTENERS.get::<Host>().lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add(target: Target, addresses: Vec<SocketAddr>) {
    listeners().insert((target.owner.id(), target.token), Registered { target, addresses });
}

pub(crate) fn remove(owner: &Mailbox, token: u64) {
    listeners().remove(&(owner.id(), token));
}

/// The listener that fits best: preferably one that could have received the request itself, then one of
/// the same adapter.
pub(crate) fn find(to: &Handoff, request: &Moving<'_>) -> Option<Target> {
    let listeners = listeners();
    let fits = |known: &&Registered| {
        let there = known.addresses.iter().any(|address| {
            address.port() == to.port && to.address.is_none_or(|ip| covers(address.ip(), ip))
        });
        there && (!request.is_bound || known.target.owner.is(request.owner))
    };
    let rank = |known: &&Registered| {
        let near = known.addresses.iter().any(|address| covers(address.ip(), request.local.ip()));
        (near, known.target.owner.is(request.owner))
    };
    listeners.values().filter(fits).max_by_key(rank).map(|known| known.target.clone())
}

/// Whether a listener at `bound` accepts connections to `ip`.
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
    fn wildcards_match_their_addresses() {
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
