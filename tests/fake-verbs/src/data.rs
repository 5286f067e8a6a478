//! Test double of libibverbs' data path, which the headers call inline: posting, polling, arming, windows. A
//! request is executed when it is posted.

use std::ffi::{c_int, c_uint};

use ibv_sys::*;

use crate::datagram;
use crate::world::{Keyed, Recv, World, world};

pub fn ops() -> ibv_context_ops {
    let none = std::ptr::null();
    ibv_context_ops {
        compat0: [none; 7],
        alloc_mw: Some(alloc_mw),
        bind_mw: Some(bind_mw),
        dealloc_mw: Some(dealloc_mw),
        compat10: none,
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        compat13: [none; 7],
        post_srq_recv: Some(post_srq_recv),
        compat21: [none; 4],
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        compat27: [none; 5],
    }
}

unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: c_uint) -> *mut ibv_mw {
    let mut world = world();
    if world.fault("ibv_alloc_mw").is_some() {
        return std::ptr::null_mut();
    }
    let (context, handle) = ((*pd).context, world.number());
    Box::into_raw(Box::new(ibv_mw { context, pd, rkey: handle << 8, handle, type_ }))
}

unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_dealloc_mw") {
        return errno;
    }
    world.keys.remove(&(*mw).rkey);
    drop(Box::from_raw(mw));
    0
}

unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_bind_mw") {
        return errno;
    }
    // rxe's library reads the region also if the length is 0.
    if (*bind).bind_info.mr.is_null() {
        return libc::EFAULT;
    }
    if !may_be_bound(&world, (*bind).bind_info) {
        return libc::EPERM;
    }
    let number = (*qp).qp_num;
    let broken = world.qps.get(&number).is_none_or(|state| state.broken);
    if !broken {
        let rkey = (*mw).rkey & !0xff | ((*mw).rkey + 1) & 0xff;
        set_window(&mut world, mw, rkey, (*bind).bind_info, 0);
    }
    if broken || (*bind).send_flags & IBV_SEND_SIGNALED != 0 {
        let status = if broken { IBV_WC_WR_FLUSH_ERR } else { IBV_WC_SUCCESS };
        let wc = ibv_wc { wr_id: (*bind).wr_id, status, qp_num: number, ..ibv_wc::default() };
        world.complete((*qp).send_cq, wc, false);
    }
    0
}

/// Whether the region allows windows; unbinding needs no right.
unsafe fn may_be_bound(world: &World, info: ibv_mw_bind_info) -> bool {
    let region = if info.mr.is_null() { None } else { world.keys.get(&(*info.mr).lkey) };
    info.length == 0 || region.is_some_and(|region| region.access & IBV_ACCESS_MW_BIND != 0)
}

/// Binds a window; `qp`: for this queue pair only.
unsafe fn set_window(
    world: &mut World,
    mw: *mut ibv_mw,
    rkey: u32,
    info: ibv_mw_bind_info,
    qp: u32,
) {
    world.keys.remove(&(*mw).rkey);
    (*mw).rkey = rkey;
    if info.length != 0 {
        let (addr, len, access) = (info.addr, info.length, info.mw_access_flags);
        let (pd, shift) = ((*mw).pd as usize, shift(world, (*info.mr).lkey));
        world.keys.insert(rkey, Keyed { addr, shift, len, access, window: true, qp, pd });
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
    let mut world = world();
    if world.fault("ibv_poll_cq").is_some() {
        return -1;
    }
    let Some(state) = world.cqs.get_mut(&(cq as usize)) else { return -1 };
    let count = state.completions.len().min(room as usize);
    for (n, wc) in state.completions.drain(..count).enumerate() {
        out.add(n).write(wc);
    }
    count as c_int
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_req_notify_cq") {
        return errno;
    }
    if let Some(state) = world.cqs.get_mut(&(cq as usize)) {
        state.armed = if solicited != 0 { 2 } else { 1 };
    }
    0
}

pub unsafe fn elements(list: *const ibv_sge, count: c_int) -> Vec<ibv_sge> {
    (0..count as usize).map(|n| *list.add(n)).collect()
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut world = world();
    *bad = wr;
    if let Some(errno) = world.fault("ibv_post_srq_recv") {
        return errno;
    }
    let Some((queue, _)) = world.srqs.get_mut(&(srq as usize)) else { return libc::EINVAL };
    let mut next = wr;
    while !next.is_null() {
        queue.push_back(Recv {
            wr_id: (*next).wr_id,
            sges: elements((*next).sg_list, (*next).num_sge),
        });
        next = (*next).next;
    }
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut world = world();
    *bad = wr;
    if let Some(errno) = world.fault("ibv_post_recv") {
        return errno;
    }
    let number = (*qp).qp_num;
    let Some(state) = world.qps.get_mut(&number) else { return libc::EINVAL };
    let flushes = state.broken;
    let mut next = wr;
    while !next.is_null() {
        state.recvs.push_back(Recv {
            wr_id: (*next).wr_id,
            sges: elements((*next).sg_list, (*next).num_sge),
        });
        next = (*next).next;
    }
    // As those that were posted before the end.
    if flushes && !world.siw {
        world.flush(number);
    }
    0
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut world = world();
    let mut next = wr;
    while !next.is_null() {
        *bad = next;
        if let Some(errno) = world.fault("ibv_post_send") {
            return errno;
        }
        send(&mut world, qp, &*next);
        next = (*next).next;
    }
    0
}

/// Executes a request and completes it.
unsafe fn send(world: &mut World, qp: *mut ibv_qp, wr: &ibv_send_wr) {
    let number = (*qp).qp_num;
    let (peer, broken) =
        world.qps.get(&number).map_or((None, true), |state| (state.peer, state.broken));
    if broken && world.siw {
        return;
    }
    let status = match world.statuses.pop_front() {
        Some(status) => status,
        None if broken => IBV_WC_WR_FLUSH_ERR,
        None if (*qp).qp_type == IBV_QPT_UD => match datagram::send(world, qp, wr) {
            Ok(()) => IBV_WC_SUCCESS,
            Err(status) => status,
        },
        None => match carry_out(world, qp, peer, wr) {
            Ok(()) => IBV_WC_SUCCESS,
            Err(status) => status,
        },
    };
    if status != IBV_WC_SUCCESS || wr.send_flags & IBV_SEND_SIGNALED != 0 {
        let byte_len = elements(wr.sg_list, wr.num_sge).iter().map(|sge| sge.length).sum();
        let wc = ibv_wc { wr_id: wr.wr_id, status, byte_len, qp_num: number, ..ibv_wc::default() };
        world.complete((*qp).send_cq, wc, false);
    }
    if status != IBV_WC_SUCCESS {
        world.flush(number);
    }
}

unsafe fn carry_out(
    world: &mut World,
    qp: *mut ibv_qp,
    peer: Option<u32>,
    wr: &ibv_send_wr,
) -> Result<(), u32> {
    let sges = elements(wr.sg_list, wr.num_sge);
    let rdma = wr.wr.rdma;
    let solicited = wr.send_flags & IBV_SEND_SOLICITED != 0;
    match wr.opcode {
        IBV_WR_BIND_MW => {
            let bind = wr.bind_mw;
            if !may_be_bound(world, bind.bind_info) {
                return Err(IBV_WC_MW_BIND_ERR);
            }
            set_window(world, bind.mw, bind.rkey, bind.bind_info, (*qp).qp_num);
            return Ok(());
        }
        IBV_WR_LOCAL_INV => {
            // Windows of type 1 support binds only.
            return match world.keys.remove(&wr.imm_or_rkey) {
                Some(keyed) if keyed.window && keyed.qp == 0 => Err(IBV_WC_LOC_QP_OP_ERR),
                _ => Ok(()),
            };
        }
        _ => {}
    }
    let inline = wr.send_flags & IBV_SEND_INLINE != 0;
    let reads_local = !matches!(
        wr.opcode,
        IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    let right = if reads_local { 0 } else { IBV_ACCESS_LOCAL_WRITE };
    if !inline && !sges.iter().all(|sge| allowed(world, qp, sge.lkey, sge.addr, sge.length, right))
    {
        return Err(IBV_WC_LOC_PROT_ERR);
    }
    let peer = peer.ok_or(IBV_WC_RETRY_EXC_ERR)?;
    let other = world.qps.get(&peer).ok_or(IBV_WC_RETRY_EXC_ERR)?.raw as *mut ibv_qp;
    let sges = if inline { sges } else { in_memory(world, &sges) };
    let data = if reads_local { gather(&sges) } else { Vec::new() };
    let refused = |world: &mut World| {
        world.flush(peer);
        IBV_WC_REM_ACCESS_ERR
    };
    match wr.opcode {
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => {
            deliver(world, peer, &data, wr, solicited)
        }
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => {
            let (to, len) = (rdma.remote_addr, data.len() as u32);
            if !allowed(world, other, rdma.rkey, to, len, IBV_ACCESS_REMOTE_WRITE) {
                return Err(refused(world));
            }
            let at = to.wrapping_add(shift(world, rdma.rkey));
            std::ptr::copy_nonoverlapping(data.as_ptr(), at as *mut u8, data.len());
            match wr.opcode {
                IBV_WR_RDMA_WRITE => Ok(()),
                _ => deliver(world, peer, &[], wr, solicited),
            }
        }
        IBV_WR_RDMA_READ => {
            let len = sges.iter().map(|sge| sge.length).sum();
            if !allowed(world, other, rdma.rkey, rdma.remote_addr, len, IBV_ACCESS_REMOTE_READ) {
                return Err(refused(world));
            }
            let from = ibv_sge { addr: rdma.remote_addr, length: len, lkey: rdma.rkey };
            scatter(&gather(&in_memory(world, &[from])), &sges);
            Ok(())
        }
        _ => {
            if sges.iter().map(|sge| sge.length).sum::<u32>() < 8 {
                return Err(IBV_WC_LOC_LEN_ERR);
            }
            let atomic = wr.wr.atomic;
            let at = atomic.remote_addr.wrapping_add(shift(world, atomic.rkey)) as *mut u64;
            if !allowed(world, other, atomic.rkey, atomic.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC)
            {
                return Err(refused(world));
            }
            let before = at.read_unaligned();
            let after = match wr.opcode {
                IBV_WR_ATOMIC_FETCH_AND_ADD => before.wrapping_add(atomic.compare_add),
                _ if before == atomic.compare_add => atomic.swap,
                _ => before,
            };
            at.write_unaligned(after);
            scatter(&before.to_ne_bytes(), &sges);
            Ok(())
        }
    }
}

/// Whether the queue pair may write `len` octets to these elements.
unsafe fn may_scatter(world: &World, qp: *mut ibv_qp, sges: &[ibv_sge], mut len: usize) -> bool {
    sges.iter().all(|sge| {
        let here = len.min(sge.length as usize);
        len -= here;
        here == 0 || allowed(world, qp, sge.lkey, sge.addr, here as u32, IBV_ACCESS_LOCAL_WRITE)
    })
}

/// Consumes a receive of the peer.
unsafe fn deliver(
    world: &mut World,
    peer: u32,
    data: &[u8],
    wr: &ibv_send_wr,
    solicited: bool,
) -> Result<(), u32> {
    let raw = world.qps.get(&peer).ok_or(IBV_WC_RETRY_EXC_ERR)?.raw as *mut ibv_qp;
    let srq = (*raw).srq as usize;
    let taken = match srq {
        0 => world.qps.get_mut(&peer).and_then(|state| state.recvs.pop_front()),
        srq => world.srqs.get_mut(&srq).and_then(|(queue, _)| queue.pop_front()),
    };
    let recv = taken.ok_or(IBV_WC_RNR_RETRY_EXC_ERR)?;
    if srq != 0 {
        limit(world, raw, srq);
    }
    let room: usize = recv.sges.iter().map(|sge| sge.length as usize).sum();
    let mut wc = ibv_wc {
        wr_id: recv.wr_id,
        opcode: IBV_WC_RECV,
        byte_len: data.len() as u32,
        qp_num: peer,
        ..ibv_wc::default()
    };
    if data.len() > room {
        wc.status = IBV_WC_LOC_LEN_ERR;
        world.complete((*raw).recv_cq, wc, false);
        world.flush(peer);
        return Err(IBV_WC_REM_INV_REQ_ERR);
    }
    // Receives of a shared queue have its domain, which is not known here.
    if srq == 0 && !may_scatter(world, raw, &recv.sges, data.len()) {
        wc.status = IBV_WC_LOC_PROT_ERR;
        world.complete((*raw).recv_cq, wc, false);
        world.flush(peer);
        return Err(IBV_WC_REM_OP_ERR);
    }
    scatter(data, &in_memory(world, &recv.sges));
    match wr.opcode {
        IBV_WR_SEND_WITH_IMM => wc.wc_flags = IBV_WC_WITH_IMM,
        IBV_WR_RDMA_WRITE_WITH_IMM => {
            (wc.wc_flags, wc.opcode) = (IBV_WC_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM);
            wc.byte_len = elements(wr.sg_list, wr.num_sge).iter().map(|sge| sge.length).sum();
        }
        IBV_WR_SEND_WITH_INV => {
            wc.wc_flags = IBV_WC_WITH_INV;
            world.keys.remove(&wr.imm_or_rkey);
        }
        _ => {}
    }
    wc.imm_or_rkey = wr.imm_or_rkey;
    world.complete((*raw).recv_cq, wc, solicited);
    Ok(())
}

unsafe fn limit(world: &mut World, qp: *mut ibv_qp, srq: usize) {
    if let Some((queue, limit)) = world.srqs.get_mut(&srq)
        && (queue.len() as u32) < *limit
    {
        *limit = 0;
        world.raise((*qp).context as usize, IBV_EVENT_SRQ_LIMIT_REACHED, srq as u64);
    }
}

pub unsafe fn allowed(
    world: &World,
    qp: *mut ibv_qp,
    key: u32,
    addr: u64,
    len: u32,
    right: u32,
) -> bool {
    let (pd, number) = ((*qp).pd, (*qp).qp_num);
    if len == 0 {
        return true;
    }
    // A queue pair grants its peer the rights of its attributes.
    let remote = right & !IBV_ACCESS_LOCAL_WRITE;
    if world.qps.get(&number).is_none_or(|state| state.allows & remote != remote) {
        return false;
    }
    world.keys.get(&key).is_some_and(|keyed| {
        let end = addr.checked_add(u64::from(len));
        let inside = addr >= keyed.addr && end.is_some_and(|end| end <= keyed.addr + keyed.len);
        let right_qp = keyed.pd == pd as usize && (keyed.qp == 0 || keyed.qp == number);
        inside && right_qp && keyed.access & right == right && !(keyed.window && right == 0)
    })
}

fn shift(world: &World, key: u32) -> u64 {
    world.keys.get(&key).map_or(0, |keyed| keyed.shift)
}

/// The memory of scatter/gather elements.
pub fn in_memory(world: &World, sges: &[ibv_sge]) -> Vec<ibv_sge> {
    let place =
        |sge: &ibv_sge| ibv_sge { addr: sge.addr.wrapping_add(shift(world, sge.lkey)), ..*sge };
    sges.iter().map(place).collect()
}

pub unsafe fn gather(sges: &[ibv_sge]) -> Vec<u8> {
    let mut out = Vec::new();
    for sge in sges.iter().filter(|sge| sge.length != 0) {
        let at = out.len();
        out.resize(at + sge.length as usize, 0);
        let from = sge.addr as *const u8;
        std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(at), sge.length as usize);
    }
    out
}

pub unsafe fn scatter(mut data: &[u8], sges: &[ibv_sge]) {
    for sge in sges {
        let (part, rest) = data.split_at(data.len().min(sge.length as usize));
        std::ptr::copy_nonoverlapping(part.as_ptr(), sge.addr as *mut u8, part.len());
        data = rest;
    }
}
