//! Advice for errors of the system that a limit, an address or a rule of this host caused. No state.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

/// What to do about a limit of the process or of the system; `None`: it is no limit.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE => "raise the process's limit of descriptors (`ulimit -n`)",
        Errno::NFILE => "raise the system's limit of descriptors (fs.file-max)",
        Errno::FBIG => "raise the process's limit of file sizes (`ulimit -f`)",
        Errno::NOMEM | Errno::NOBUFS => "free memory, or raise the process's limit (`ulimit -v`)",
        _ => return None,
    })
}

/// What a socket does with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// It listens there.
    Bind,
    /// It connects to it.
    Connect,
}

/// What to do about socket(2), bind(2), connect(2) or listen(2) if this host refuses the address: `None`: another reason.
pub fn address_remedy(
    error: &io::Error,
    address: &SocketAddr,
    purpose: Use,
) -> Option<&'static str> {
    Some(match (Errno::from_io_error(error)?, purpose) {
        (Errno::INVAL | Errno::NODEV, _) if lacks_zone(address) => {
            "name the interface behind the link-local address, as in [fe80::1%eth0]:7174; `ip -6 address` shows it"
        }
        (Errno::NODEV | Errno::NXIO, _) => "name an interface that exists; `ip link` lists them",
        (Errno::AFNOSUPPORT, _) => {
            "use the other family, or enable this one: this host or program has no IPv6, or no IPv4"
        }
        (Errno::ADDRNOTAVAIL, Use::Bind) => {
            "use an address of this host; `ip address` lists them, and what is just being added is tentative"
        }
        (Errno::ACCESS, Use::Bind) if (1..1024).contains(&address.port()) => {
            "use a port from 1024 on, or allow this one: net.ipv4.ip_unprivileged_port_start, or the \
             capability CAP_NET_BIND_SERVICE"
        }
        (Errno::ACCESS, Use::Bind) => {
            "allow the port in the security policy of this host (SELinux, Landlock)"
        }
        (Errno::PERM, Use::Bind) => {
            "allow the port to the program's control group (SocketBindDeny=), or in its seccomp filter"
        }
        (Errno::ACCESS, Use::Connect) => {
            "see whether a route prohibits the address (`ip route get`), or a security policy of this \
             host does (SELinux, Landlock)"
        }
        (Errno::PERM, Use::Connect) => {
            "allow the connection in this host's firewall (`nft list ruleset`), or to the program's control \
             group (IPAddressDeny=)"
        }
        // Not ::1, which a host may lack where 127.0.0.1, its next address, is reached.
        (Errno::NETUNREACH, Use::Connect) if address.is_ipv4() && address.ip().is_loopback() => {
            "bring the loopback interface up: `ip link set lo up`"
        }
        _ => return None,
    })
}

/// Whether it is a link-local address without its interface (RFC 4007).
fn lacks_zone(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of connect(2), bind(2), socket(2) and listen(2).
    #[test]
    fn each_refusal_of_an_address_has_its_own_advice() {
        let rows = [
            (Errno::INVAL, "[fe80::1]:7", [Some("name the interface behind"); 2]),
            (Errno::INVAL, "[fe80::1%2]:7", [None; 2]),
            (Errno::INVAL, "10.0.0.1:7", [None; 2]),
            (Errno::NODEV, "[fe80::1%99]:7", [Some("an interface that exists"); 2]),
            (Errno::AFNOSUPPORT, "[::1]:7", [Some("the other family"); 2]),
            (Errno::ADDRNOTAVAIL, "10.0.0.1:7", [Some("an address of this host"), None]),
            (
                Errno::ACCESS,
                "10.0.0.1:80",
                [Some("a port from 1024 on"), Some("a route prohibits")],
            ),
            (
                Errno::ACCESS,
                "10.0.0.1:8080",
                [Some("the security policy"), Some("a route prohibits")],
            ),
            (Errno::PERM, "10.0.0.1:80", [Some("SocketBindDeny"), Some("firewall")]),
            (Errno::ADDRINUSE, "10.0.0.1:80", [None; 2]),
            (Errno::CONNREFUSED, "10.0.0.1:80", [None; 2]),
            (Errno::HOSTUNREACH, "10.0.0.1:80", [None; 2]),
            (Errno::NETUNREACH, "10.0.0.1:80", [None; 2]),
            (Errno::NETUNREACH, "127.0.0.1:80", [None, Some("ip link set lo up")]),
            (Errno::NETUNREACH, "[::1]:80", [None; 2]),
            (Errno::TIMEDOUT, "10.0.0.1:80", [None; 2]),
            (Errno::MFILE, "10.0.0.1:80", [None; 2]),
        ];
        for (errno, address, wanted) in rows {
            for (purpose, wanted) in [Use::Bind, Use::Connect].into_iter().zip(wanted) {
                let is = address_remedy(&errno.into(), &address.parse().unwrap(), purpose);
                let fits = match (is, wanted) {
                    (Some(is), Some(words)) => is.contains(words),
                    (is, wanted) => is == wanted,
                };
                assert!(fits, "{errno} {address} {purpose:?}: {is:?}");
            }
        }
    }

    #[test]
    fn a_limit_has_advice_and_nothing_else_has() {
        let of = |errno: Errno| remedy(&errno.into());
        for limit in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::FBIG] {
            assert!(of(limit).is_some(), "{limit}");
        }
        for other in [Errno::PERM, Errno::ACCESS, Errno::INVAL, Errno::ADDRINUSE] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
