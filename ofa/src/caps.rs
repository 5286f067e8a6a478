//! Capabilities and limits of a device in libibverbs' terms; real limits, so that asking for the maximum
//! works.

use ibv_sys::*;
use ual::gid::Gids;
use vp_api::{Capabilities, PortInfo, RnicAttrs, Transport};

use crate::adapter::Adapter;

/// `device_cap_flags`.
pub(crate) const FLAGS: u32 = IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

/// The most concurrent reads that are reported: programs keep the number in an octet.
const MAX_READS: i32 = 128;
/// Of `vendor_id`: the prefix of locally administered addresses.
const VENDOR: u32 = 0x02_0000;
/// The longest headers of a RoCE packet, with its invariant CRC: IPv6, UDP, BTH, RETH and ImmDt.
const ROCE_HEADERS: u32 = 40 + 8 + 12 + 16 + 4 + 4;

fn int(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// Reads and atomics at once, one way.
pub(crate) fn max_reads(limit: u16) -> i32 {
    MAX_READS.min(limit.into())
}

fn max_sge(attrs: &RnicAttrs) -> u32 {
    attrs.max_sge_send.min(attrs.max_sge_recv).min(attrs.max_sge_write)
}

/// ibv_query_device, without the firmware's version.
pub(crate) fn device(adapter: &Adapter) -> ibv_device_attr {
    let attrs = adapter.attrs();
    let guid = adapter.device().guid().to_be();
    let has = |capability| attrs.capabilities.contains(capability);
    let datagrams = adapter.rnic().datagrams().map(|service| *service.attrs());
    let (groups, members) = datagrams.map_or((0, 0), |of| (of.max_groups, of.max_members));
    ibv_device_attr {
        fw_ver: [0; 64],
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: attrs.max_mr_octets,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: int(attrs.max_qp),
        max_qp_wr: int(attrs.max_wr_per_qp),
        device_cap_flags: FLAGS,
        max_sge: int(max_sge(attrs)),
        max_sge_rd: int(attrs.max_sge_read),
        max_cq: int(attrs.max_cq),
        max_cqe: int(attrs.max_cqe),
        max_mr: int(attrs.max_mr),
        max_pd: int(attrs.max_pd),
        max_qp_rd_atom: max_reads(attrs.max_ird),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(u64::from(attrs.max_qp) * u64::from(attrs.max_ird)),
        max_qp_init_rd_atom: max_reads(attrs.max_ord),
        max_ee_init_rd_atom: 0,
        atomic_cap: if has(Capabilities::ATOMICS) { IBV_ATOMIC_HCA } else { IBV_ATOMIC_NONE },
        max_ee: 0,
        max_rdd: 0,
        max_mw: if has(Capabilities::MW) { int(attrs.max_mw) } else { 0 },
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(groups),
        max_mcast_qp_attach: int(members),
        max_total_mcast_qp_attach: int(groups.saturating_mul(members)),
        max_ah: datagrams.map_or(0, |of| int(of.max_ah)),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: if has(Capabilities::SRQ) { int(attrs.max_srq) } else { 0 },
        max_srq_wr: int(attrs.max_wr_per_srq),
        max_srq_sge: int(attrs.max_sge_recv),
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

/// The `enum ibv_mtu` of a link: the largest that fits into a frame.
fn mtu(link: u32) -> u32 {
    (1..=5).rev().find(|code| 128 << code <= link).unwrap_or(IBV_MTU_256)
}

/// Octets of a link for payload, and on RoCE without its headers.
fn room(adapter: &Adapter, port: &PortInfo) -> u32 {
    match adapter.device().transport() {
        Transport::InfiniBand => port.mtu.saturating_sub(ROCE_HEADERS),
        _ => port.mtu,
    }
}

/// ibv_query_port of the one port.
pub(crate) fn port(adapter: &Adapter, ports: &[PortInfo]) -> ibv_port_attr {
    let online = |port: &&PortInfo| port.online && !port.addresses.is_empty();
    let loopback = |port: &&PortInfo| port.addresses.iter().all(|address| address.is_loopback());
    let used = ports.iter().filter(online);
    let main = used.clone().find(|port| !loopback(port)).or(used.clone().next());
    let active = main.map_or(IBV_MTU_256, |port| mtu(room(adapter, port)));
    ibv_port_attr {
        state: if main.is_some() { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: mtu(u32::MAX),
        active_mtu: active,
        gid_tbl_len: int(Gids::of(ports, adapter.device().transport()).table().len()),
        port_cap_flags: 0,
        max_msg_sz: adapter.attrs().max_message,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        // 1X of 10 Gbit/s, the least that Ethernet devices report.
        active_width: 1,
        active_speed: 4,
        // LinkUp, or Disabled.
        phys_state: if main.is_some() { 5 } else { 3 },
        link_layer: IBV_LINK_LAYER_ETHERNET as u8,
        flags: 0,
        port_cap_flags2: 0,
        later: [0; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_the_largest_that_fits() {
        let codes = [1500, 1024, 9000, 4095, 200].map(mtu);
        assert_eq!(codes, [3, 3, 5, 4, 1]);
    }
}
