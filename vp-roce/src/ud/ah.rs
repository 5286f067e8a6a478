//! Address handles: the path of a datagram, as a socket and an address.
//!
//! Owner: the RNIC's table, and every send while it is posted. Immutable.

use std::net::IpAddr;
use std::sync::Arc;

use roce_proto::rc::Mtu;
use vp_api::{ANY_PORT, AhInfo, DatagramPath, VpError, VpResult, VpStatus};
use vp_soft::memory::PdUse;
use vp_soft::objects::InUse;

use crate::engine::{Engine, HOPS, PORT, Socket};
use crate::path::{self, Port};

/// An address handle.
pub(crate) struct Ah {
    pub(super) info: AhInfo,
    pub(super) socket: Arc<Socket>,
    pub(super) to: IpAddr,
    /// Longest payload.
    pub(super) mtu: Mtu,
    /// A hold on the domain.
    _pd: InUse,
}

fn wrong(detail: String) -> VpError {
    VpError::new(VpStatus::InvalidAddress, detail)
}

impl Ah {
    pub(super) fn new(engine: &Engine, pd: PdUse, path: &DatagramPath) -> VpResult<Self> {
        let port = match path.port {
            // As the path back of a datagram for a multicast group says: whichever leads there.
            ANY_PORT if path.local_gid == [0; 16] => {
                let to = path::address(path.remote_gid);
                port_of(engine.local_address((to, PORT).into())?)?
            }
            ANY_PORT => port_of(path::address(path.local_gid))?,
            index => Port::at(index)?,
        };
        let to = path::address(path.remote_gid);
        if to.is_unspecified() {
            return Err(wrong(format!("datagrams cannot be sent to {to}")));
        }
        let local = local_address(&port, path, to)?;
        let mut path = *path;
        path.local_gid = path::gid(local);
        let mtu = port.mtu()?;
        path.mtu_code = mtu.code();
        if path.hop_limit == 0 {
            path.hop_limit = HOPS;
        }
        let socket = engine.socket(local)?;
        if to.is_multicast() {
            socket.lead_to(to, &port.info, path.hop_limit)?;
        }
        Ok(Self { info: AhInfo { pd: pd.id, path }, socket, to, mtu, _pd: pd.hold })
    }
}

fn port_of(local: IpAddr) -> VpResult<Port> {
    Port::of(local)?.ok_or_else(|| wrong(format!("{local} is not an address of this machine")))
}

/// The address from which datagrams to `to` are sent.
fn local_address(port: &Port, path: &DatagramPath, to: IpAddr) -> VpResult<IpAddr> {
    let interface = &port.info.interface;
    if path.local_gid == [0; 16] {
        let mut all = port.info.addresses.iter();
        let found = all.find(|one| one.is_ipv4() == to.is_ipv4()).copied();
        return found
            .ok_or_else(|| wrong(format!("{interface} has no address to reach {to} from")));
    }
    let local = path::address(path.local_gid);
    if !port.has(local) {
        return Err(wrong(format!("{local} is not an address of {interface}")));
    }
    if local.is_ipv4() != to.is_ipv4() {
        return Err(wrong(format!("{to} cannot be reached from {local}")));
    }
    Ok(local)
}
