//! Test double of unreliable datagrams of `fakeib0`, a RoCE device: address handles, sends, and services.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibv_sys::*;

use crate::cm::tell_with;
use crate::data::{allowed, elements, gather, in_memory, scatter};
use crate::world::{World, set_errno, world};

/// Octets of a request's private data after librdmacm's header, and of a reply's.
pub const QUESTION: usize = 180;
pub const ANSWER: usize = 136;

/// Octets before a received message.
const HEADER: usize = 40;

/// 127.0.0.1 and 127.0.0.2 as GIDs of RoCE.
fn gids() -> [ibv_gid; 2] {
    let gid = |last| ibv_gid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, last] };
    [gid(1), gid(2)]
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    _: *mut ibv_context,
    _: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    if world().fault("ibv_query_gid").is_some() {
        return -1;
    }
    match gids().get(index as usize) {
        Some(found) => {
            *gid = *found;
            0
        }
        None => {
            set_errno(libc::EINVAL);
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let mut world = world();
    if world.fault("ibv_create_ah").is_some() {
        return null_mut();
    }
    if (*attr).is_global == 0 || (*attr).port_num != 1 {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    let raw = ibv_ah { context: (*pd).context, pd, handle: world.number() };
    let raw = Box::into_raw(Box::new(raw));
    world.ahs.insert(raw as usize, *attr);
    raw
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_destroy_ah") {
        return errno;
    }
    world.ahs.remove(&(ah as usize));
    drop(Box::from_raw(ah));
    0
}

/// Sends a datagram; one without a receiver is dropped.
pub unsafe fn send(world: &mut World, qp: *mut ibv_qp, wr: &ibv_send_wr) -> Result<(), u32> {
    let sges = elements(wr.sg_list, wr.num_sge);
    let inline = wr.send_flags & IBV_SEND_INLINE != 0;
    if !inline && !sges.iter().all(|sge| allowed(world, qp, sge.lkey, sge.addr, sge.length, 0)) {
        return Err(IBV_WC_LOC_PROT_ERR);
    }
    let to = wr.wr.ud;
    let attr = *world.ahs.get(&(to.ah as usize)).ok_or(IBV_WC_LOC_QP_OP_ERR)?;
    if !gids().contains(&attr.grh.dgid) {
        return Ok(());
    }
    let sges = if inline { sges } else { in_memory(world, &sges) };
    let data = gather(&sges);
    let Some(state) = world.qps.get_mut(&to.remote_qpn) else { return Ok(()) };
    let raw = state.raw as *mut ibv_qp;
    if state.qkey != Some(to.remote_qkey) || state.broken {
        return Ok(());
    }
    let Some(recv) = state.recvs.front() else { return Ok(()) };
    let room: usize = recv.sges.iter().map(|sge| sge.length as usize).sum();
    if HEADER + data.len() > room {
        return Ok(());
    }
    let Some(recv) = state.recvs.pop_front() else { return Ok(()) };
    let mut message = header(&attr, data.len());
    message.extend(&data);
    scatter(&message, &in_memory(world, &recv.sges));
    let with_immediate = wr.opcode == IBV_WR_SEND_WITH_IMM;
    let wc = ibv_wc {
        wr_id: recv.wr_id,
        opcode: IBV_WC_RECV,
        byte_len: message.len() as u32,
        qp_num: to.remote_qpn,
        src_qp: (*qp).qp_num,
        wc_flags: IBV_WC_GRH | if with_immediate { IBV_WC_WITH_IMM } else { 0 },
        imm_or_rkey: wr.imm_or_rkey,
        ..ibv_wc::default()
    };
    world.complete((*raw).recv_cq, wc, wr.send_flags & IBV_SEND_SOLICITED != 0);
    Ok(())
}

/// A global route header.
fn header(attr: &ibv_ah_attr, len: usize) -> Vec<u8> {
    let grh = &attr.grh;
    let first = 6 << 28 | u32::from(grh.traffic_class) << 20 | grh.flow_label;
    let from = gids()[usize::from(grh.sgid_index) % 2];
    let mut out = first.to_be_bytes().to_vec();
    out.extend((len as u16).to_be_bytes());
    out.extend([0x1b, grh.hop_limit]);
    out.extend(from.raw);
    out.extend(grh.dgid.raw);
    out
}

/// A service replied with a queue pair. librdmacm does not report the key.
pub unsafe fn answered(world: &mut World, asker: usize, qp_num: u32, data: &[u8]) {
    let grh = ibv_global_route { dgid: gids()[0], hop_limit: 64, ..ibv_global_route::default() };
    let ah_attr = ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
    let fill = |param: &mut cm_param, private_data: *const c_void, private_data_len| {
        let qkey = RDMA_UDP_QKEY;
        param.ud = rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey };
    };
    tell_with(world, (asker, 0), (RDMA_CM_EVENT_ESTABLISHED, 0), data, fill);
}

/// A service, or its machine, refused.
pub unsafe fn unanswered(world: &mut World, asker: usize, status: c_int, data: &[u8]) {
    let fill = |param: &mut cm_param, octets: *const c_void, len| {
        (param.ud.private_data, param.ud.private_data_len) = (octets, len);
    };
    tell_with(world, (asker, 0), (RDMA_CM_EVENT_UNREACHABLE, status), data, fill);
}
