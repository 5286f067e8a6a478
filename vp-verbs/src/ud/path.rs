//! Converts datagram paths between `vp-api`'s types, rdma-core's types, and received headers.
//!
//! No state; queries of the device run on the caller's thread. A peer's octets are used only as an address.

use std::fs;
use std::io;
use std::sync::Arc;

use vp_api::{DatagramPath, GRH_OCTETS};

use crate::device::Context;
use crate::map;
use crate::owned::done;
use ibv_sys::*;

/// Default hop limit of datagrams that this end sends.
const HOPS: u8 = 64;

/// A port's attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// The index in the RNIC's list of ports.
    pub(crate) index: u32,
    pub(crate) number: u8,
    lid: u16,
    mtu_code: u8,
    /// RoCE: every packet has a global route.
    ethernet: bool,
}

impl Port {
    pub(crate) fn query(context: &Context, index: u32, number: u8) -> io::Result<Self> {
        let attr = context.query_port(number)?;
        let ethernet = u32::from(attr.link_layer) == IBV_LINK_LAYER_ETHERNET;
        let mtu_code = u8::try_from(attr.active_mtu).unwrap_or(0);
        Ok(Self { index, number, lid: attr.lid, mtu_code, ethernet })
    }

    /// Octets of the longest message.
    pub(crate) fn max_payload(&self) -> u32 {
        map::mtu(self.mtu_code.into())
    }

    /// The path back to the sender of a received datagram; `None` if its header has none.
    pub(crate) fn way_back(&self, wc: &ibv_wc, header: &[u8; GRH_OCTETS]) -> Option<DatagramPath> {
        let is_global = wc.wc_flags & IBV_WC_GRH != 0;
        let seen = if is_global { route(header)? } else { Route::default() };
        Some(DatagramPath {
            port: self.index,
            local_gid: seen.to,
            remote_gid: seen.from,
            local_lid: self.lid | u16::from(wc.dlid_path_bits),
            remote_lid: wc.slid,
            mtu_code: self.mtu_code,
            service_level: wc.sl,
            subnet_local: !is_global,
            flow_label: seen.flow_label,
            traffic_class: seen.traffic_class,
            ..DatagramPath::default()
        })
    }

    /// The path that librdmacm found.
    pub(crate) fn path(&self, context: &Context, attr: &ibv_ah_attr) -> DatagramPath {
        let grh = &attr.grh;
        DatagramPath {
            port: self.index,
            // A path without it is valid, too: the port's first is used.
            local_gid: gid(context, self.number, grh.sgid_index.into()).unwrap_or_default(),
            remote_gid: grh.dgid.raw,
            local_lid: self.lid | u16::from(attr.src_path_bits),
            remote_lid: attr.dlid,
            mtu_code: self.mtu_code,
            rate: attr.static_rate,
            service_level: attr.sl,
            subnet_local: attr.is_global == 0,
            flow_label: grh.flow_label,
            traffic_class: grh.traffic_class,
            hop_limit: grh.hop_limit,
            ..DatagramPath::default()
        }
    }

    /// Converts a path for rdma-core; `None` if the local GID is not one of the port.
    pub(crate) fn attributes(
        &self,
        context: &Arc<Context>,
        path: &DatagramPath,
    ) -> io::Result<Option<ibv_ah_attr>> {
        let is_global = self.ethernet || !path.subnet_local;
        let index = match is_global {
            true => gid_index(context, self.number, path)?,
            false => Some(0),
        };
        let hops = if path.hop_limit == 0 { HOPS } else { path.hop_limit };
        Ok(index.map(|sgid_index| ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: path.remote_gid },
                flow_label: path.flow_label,
                sgid_index,
                hop_limit: hops,
                traffic_class: path.traffic_class,
            },
            dlid: path.remote_lid,
            sl: path.service_level,
            src_path_bits: (path.local_lid & 0x7f & !self.lid) as u8,
            static_rate: path.rate,
            is_global: is_global.into(),
            port_num: self.number,
        }))
    }
}

fn gid(context: &Context, port: u8, index: i32) -> io::Result<[u8; 16]> {
    let mut out = ibv_gid::default();
    // SAFETY: the context is open, the result may be written.
    done(unsafe { (context.api.ibv.ibv_query_gid)(context.as_ptr(), port, index, &mut out) })?;
    Ok(out.raw)
}

/// The index of the path's local GID in the port's table; that of RoCE version 2 if it is there twice.
fn gid_index(context: &Arc<Context>, port: u8, path: &DatagramPath) -> io::Result<Option<u8>> {
    let len = context.query_port(port)?.gid_tbl_len.clamp(0, 256);
    let wanted = |gid: &[u8; 16]| match path.local_gid == [0; 16] {
        true => *gid != [0; 16] && is_ipv4(gid) == is_ipv4(&path.remote_gid),
        false => *gid == path.local_gid,
    };
    let mut fit = (0..len).filter(|&n| gid(context, port, n).is_ok_and(|gid| wanted(&gid)));
    let Some(first) = fit.next() else { return Ok(None) };
    let best = std::iter::once(first).chain(fit).find(|&n| is_routable(context, port, n));
    Ok(u8::try_from(best.unwrap_or(first)).ok())
}

/// The kernel shows the type of a GID only in a file.
fn is_routable(context: &Context, port: u8, index: i32) -> bool {
    let name = &context.name;
    let file = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/types/{index}");
    fs::read_to_string(file).is_ok_and(|kind| kind.contains("v2"))
}

fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid[..12] == MAPPED
}

/// Prefix of an IPv4 address as a GID.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The fields of a global route header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Route {
    from: [u8; 16],
    to: [u8; 16],
    flow_label: u32,
    traffic_class: u8,
}

/// Parses the header before a received datagram. InfiniBand's has the layout of IPv6's (8.3). For RoCE over IPv4 it
/// is an IPv4 header in the last 20 octets (annex A17.4.5.1), after octets without meaning. The checksum decides
/// only if these octets look like an InfiniBand header, because rxe does not fill the checksum in between queue
/// pairs of one device. `None` if it is neither.
fn route(header: &[u8; GRH_OCTETS]) -> Option<Route> {
    let (_, v4) = header.split_last_chunk::<20>()?;
    let is_v6 = header[0] >> 4 == 6;
    if v4[0] == 0x45 && (!is_v6 || has_checksum(v4)) {
        let mapped = |ip: [u8; 4]| {
            let mut gid = [0; 16];
            gid[..12].copy_from_slice(&MAPPED);
            gid[12..].copy_from_slice(&ip);
            gid
        };
        let [.., a, b, c, d, e, f, g, h] = *v4;
        let (from, to) = (mapped([a, b, c, d]), mapped([e, f, g, h]));
        return Some(Route { from, to, flow_label: 0, traffic_class: v4[1] });
    }
    let (first, rest) = header.split_first_chunk::<4>()?;
    let first = u32::from_be_bytes(*first);
    let (from, rest) = rest.get(4..)?.split_first_chunk::<16>()?;
    let (to, _) = rest.split_first_chunk::<16>()?;
    let (flow_label, traffic_class) = (first & 0xf_ffff, (first >> 20) as u8);
    is_v6.then_some(Route { from: *from, to: *to, flow_label, traffic_class })
}

/// RFC 791 section 3.1: the sum of all words, including the checksum, is all ones.
fn has_checksum(header: &[u8; 20]) -> bool {
    let words = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [u8; 20] = [
        0x45, 0x08, 0x00, 0x54, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x14, 0x5b, 10, 0, 0, 1, 10, 0,
        0, 2,
    ];

    fn v6() -> [u8; GRH_OCTETS] {
        let mut header = [0; GRH_OCTETS];
        header[..8].copy_from_slice(&[0x61, 0x23, 0x45, 0x67, 0, 0, 0x1b, 1]);
        header[8..24].copy_from_slice(&[7; 16]);
        header[24..].copy_from_slice(&[9; 16]);
        header
    }

    #[test]
    fn both_kinds_of_header_are_read() {
        let seen = route(&v6()).unwrap();
        assert_eq!((seen.from, seen.to), ([7; 16], [9; 16]));
        assert_eq!((seen.flow_label, seen.traffic_class), (0x34567, 0x12));
        let mut header = [0x60; GRH_OCTETS];
        header[20..].copy_from_slice(&V4);
        let seen = route(&header).unwrap();
        assert_eq!(
            (&seen.from[12..], &seen.to[10..]),
            (&[10, 0, 0, 1][..], &[255, 255, 10, 0, 0, 2][..])
        );
        assert_eq!(seen.traffic_class, 8);
        // The checksum decides about a header that only looks like InfiniBand's.
        header[39] ^= 1;
        assert_eq!(&route(&header).unwrap().from[..12], &[0x60; 12]);
        header[0] = 0;
        assert_eq!(route(&header).unwrap().traffic_class, 8);
    }

    #[test]
    fn other_octets_are_not_a_header() {
        assert_eq!(route(&[0; GRH_OCTETS]), None);
        let mut header = [0; GRH_OCTETS];
        header[20..].copy_from_slice(&V4);
        header[20] = 0x46;
        assert_eq!(route(&header), None);
    }
}
