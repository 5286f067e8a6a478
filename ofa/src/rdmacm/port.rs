//! Port numbers: those that programs see, and those on the wire.
//!
//! RDMA and TCP share the host's TCP ports here; an RNIC has its own. A program that listens on the same
//! number for both would find it in use: `WARPLINE_VERBS_PORT_OFFSET=n` moves every port of rdma_cm by
//! n, at both ends of a connection. 0, the default, is what iWARP peers expect.

use std::net::SocketAddr;
use std::sync::OnceLock;

use kal_os::fork::PerProcess;

use crate::fork::Here;

const VARIABLE: &str = "WARPLINE_VERBS_PORT_OFFSET";

/// What is added to the ports that programs give.
fn offset() -> u16 {
    static OFFSET: PerProcess<OnceLock<u16>> = PerProcess::new();
    *OFFSET.get::<Here>().get_or_init(read_offset)
}

fn read_offset() -> u16 {
    let Ok(text) = std::env::var(VARIABLE) else { return 0 };
    text.trim().parse().unwrap_or_else(|_| {
        eprintln!(
            "warpline: {VARIABLE}: `{text:.100}` is no number from 0 to 65535; ports are not moved"
        );
        0
    })
}

/// The address on the wire for one that a program gave; port 0 stays any port.
pub(super) fn wire(address: SocketAddr) -> SocketAddr {
    moved(address, offset())
}

/// The address that the program sees for one on the wire.
pub(super) fn from_wire(address: SocketAddr) -> SocketAddr {
    moved(address, offset().wrapping_neg())
}

fn moved(mut address: SocketAddr, by: u16) -> SocketAddr {
    if address.port() != 0 {
        address.set_port(address.port().wrapping_add(by));
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_move_there_and_back() {
        let address: SocketAddr = "127.0.0.1:65000".parse().unwrap();
        let there = moved(address, 1000);
        assert_eq!(there.port(), 464);
        assert_eq!(moved(there, 1000_u16.wrapping_neg()), address);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(moved(any, 1000), any);
    }
}
