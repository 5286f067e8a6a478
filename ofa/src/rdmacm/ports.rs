//! The port space of rdma_cm in this process: which identifiers have a port, and which of them exclude each other.
//!
//! The rules and error numbers are the kernel's. A TCP socket alone would report a conflict with the wildcard in
//! another way, and RoCE, which opens no TCP port for a given number, none before it listens. A port is released with
//! its identifier.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use kal_os::fork::PerProcess;
use kal_os::lock;
use ual_cm::Sharing;

use crate::errno::Errno;
use crate::fork::Here;

static HELD: PerProcess<Mutex<Vec<Weak<Held>>>> = PerProcess::new();

/// A port that an identifier has.
pub(super) struct Held {
    /// RDMA_PS_UDP has ports of its own.
    is_datagrams: bool,
    address: SocketAddr,
    sharing: Sharing,
}

impl Held {
    /// Takes the port of an address, if it is not 0.
    ///
    /// # Errors
    /// EADDRINUSE: another identifier has the address. EADDRNOTAVAIL: one of the two is bound to the wildcard.
    pub(super) fn take(
        address: SocketAddr,
        sharing: Sharing,
        is_datagrams: bool,
    ) -> Result<Arc<Self>, Errno> {
        let new = Arc::new(Self { is_datagrams, address, sharing });
        let mut all = lock(HELD.get::<Here>());
        all.retain(|held| held.strong_count() > 0);
        let refused = all.iter().filter_map(Weak::upgrade).find_map(|held| new.conflict(&held));
        refused.map_or(Ok(()), Err)?;
        all.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// Only of one family: IPv4 always is.
    fn is_of_one_family(&self) -> bool {
        self.address.is_ipv4() || self.sharing.v6_only
    }

    fn conflict(&self, other: &Self) -> Option<Errno> {
        let any = |held: &Self| held.address.ip().is_unspecified();
        let apart = self.is_datagrams != other.is_datagrams
            || self.address.port() != other.address.port()
            || self.address.port() == 0
            || (self.sharing.address && other.sharing.address)
            || (self.is_of_one_family()
                && other.is_of_one_family()
                && self.address.is_ipv4() != other.address.is_ipv4());
        match apart {
            true => None,
            false if any(self) || any(other) => Some(Errno(libc::EADDRNOTAVAIL)),
            false => same(self.address, other.address).then_some(Errno(libc::EADDRINUSE)),
        }
    }
}

/// Whether two addresses are one; a link-local one belongs to its interface.
fn same(one: SocketAddr, other: SocketAddr) -> bool {
    let scope = |address: SocketAddr| match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    };
    let ip = |address: SocketAddr| -> IpAddr { address.ip().to_canonical() };
    ip(one) == ip(other) && scope(one) == scope(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_the_kernels() {
        let in_use = Err(libc::EADDRINUSE);
        let not_available = Err(libc::EADDRNOTAVAIL);
        let (none, shared) = (Sharing::default(), Sharing { address: true, ..Sharing::default() });
        let one_family = Sharing { v6_only: true, ..none };
        for (first, second, result) in [
            (("192.0.2.1:7", none), ("192.0.2.1:7", none), in_use),
            (("192.0.2.1:7", none), ("192.0.2.1:8", none), Ok(())),
            (("192.0.2.1:7", none), ("192.0.2.2:7", none), Ok(())),
            (("192.0.2.1:7", shared), ("192.0.2.1:7", shared), Ok(())),
            (("192.0.2.1:7", shared), ("192.0.2.1:7", none), in_use),
            (("0.0.0.0:7", none), ("0.0.0.0:7", none), not_available),
            (("0.0.0.0:7", none), ("192.0.2.1:7", none), not_available),
            (("192.0.2.1:7", none), ("0.0.0.0:7", none), not_available),
            (("0.0.0.0:7", none), ("[::]:7", none), not_available),
            (("0.0.0.0:7", none), ("[::]:7", one_family), Ok(())),
            (("[fe80::1%2]:7", none), ("[fe80::1%3]:7", none), Ok(())),
            (("[fe80::1%2]:7", none), ("[fe80::1%2]:7", none), in_use),
        ] {
            let held = |(address, sharing): (&str, Sharing)| Held {
                is_datagrams: false,
                address: address.parse().unwrap(),
                sharing,
            };
            let found = held(second).conflict(&held(first)).map_or(Ok(()), |errno| Err(errno.0));
            assert_eq!(found, result, "{} and {}", first.0, second.0);
        }
    }
}
