//! Devices, and the objects made of them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use ibv_sys::*;

use crate::data;
use crate::world::{CqState, DEVICES, Keyed, QpState, answer, bell, set_errno, world};

/// A device as the real library lays it out, as far as its names.
#[repr(C)]
pub struct Device {
    public: ibv_device,
    dev_name: [c_char; 64],
    rest: [u8; 1024],
}

fn name(text: &str) -> [c_char; 64] {
    let mut out = [0; 64];
    for (place, octet) in out.iter_mut().zip(text.bytes()) {
        *place = octet as c_char;
    }
    out
}

fn device(index: usize) -> *mut ibv_device {
    static MADE: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let all = MADE.get_or_init(|| {
        let make = |(n, (text, transport)): (usize, &(&str, c_int))| {
            let public = ibv_device {
                _ops: [std::ptr::null(); 2],
                node_type: 1,
                transport_type: *transport,
                name: name(text),
            };
            let dev_name = name(&format!("uverbs{n}"));
            Box::into_raw(Box::new(Device { public, dev_name, rest: [0; 1024] })) as usize
        };
        DEVICES.iter().enumerate().map(make).collect()
    });
    all[index] as *mut ibv_device
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    let mut world = world();
    if world.fault("ibv_get_device_list").is_some() {
        return null_mut();
    }
    let count = if world.hidden { 0 } else { DEVICES.len() };
    let mut list: Vec<_> = (0..count).map(device).collect();
    list.resize(DEVICES.len() + 1, null_mut());
    *number = count as c_int;
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, DEVICES.len() + 1)));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let mut world = world();
    if world.fault("ibv_open_device").is_some() {
        return null_mut();
    }
    let raw = Box::into_raw(Box::new(ibv_context {
        device,
        ops: data::ops(),
        cmd_fd: -1,
        async_fd: bell(),
        num_comp_vectors: 1,
    }));
    world.contexts.push(raw as usize);
    raw
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let mut world = world();
    world.contexts.retain(|other| *other != context as usize);
    world.asynchronous.remove(&(context as usize));
    libc::close((*context).async_fd);
    drop(Box::from_raw(context));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    _: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    if let Some(errno) = world().fault("ibv_query_device") {
        return errno;
    }
    let attr = &mut *attr;
    *attr = std::mem::zeroed();
    attr.vendor_id = if world().siw { 0x62_6d74 } else { 0xfa4e };
    attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B
        | IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_SRQ_RESIZE;
    (attr.max_qp, attr.max_qp_wr, attr.max_sge, attr.max_sge_rd) = (1024, 4096, 8, 1);
    (attr.max_cq, attr.max_cqe, attr.max_mr, attr.max_mw) = (1024, 65536, 65536, 1024);
    (attr.max_pd, attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (1024, 16, 16);
    (attr.max_srq, attr.max_srq_wr, attr.max_srq_sge) = (1024, 4096, 8);
    (attr.atomic_cap, attr.max_mr_size, attr.phys_port_cnt) = (1, 1 << 40, 1);
    attr.max_ah = 1024;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    _: *mut ibv_context,
    _: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    if let Some(errno) = world().fault("ibv_query_port") {
        return errno;
    }
    let attr = &mut *attr;
    (attr.state, attr.active_mtu, attr.max_msg_sz) = (IBV_PORT_ACTIVE, 5, 1 << 30);
    (attr.gid_tbl_len, attr.link_layer) = (2, IBV_LINK_LAYER_ETHERNET as u8);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    if !answer((*context).async_fd) {
        return -1;
    }
    let mut world = world();
    let queue = world.asynchronous.entry(context as usize).or_default();
    let Some((kind, object)) = queue.pop_front() else { return -1 };
    (*event).event_type = kind;
    (*event).element = match object {
        1 => event_element { port_num: 1 },
        object => event_element { qp: object as *mut ibv_qp },
    };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(_: *mut ibv_async_event) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let mut world = world();
    if world.fault("ibv_alloc_pd").is_some() {
        return null_mut();
    }
    Box::into_raw(Box::new(ibv_pd { context, handle: world.number() }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    if let Some(errno) = world().fault("ibv_dealloc_pd") {
        return errno;
    }
    drop(Box::from_raw(pd));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    ibv_reg_mr_iova2(pd, addr, length, addr as u64, access as c_uint)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let mut world = world();
    if world.fault("ibv_reg_mr").is_some() {
        return null_mut();
    }
    let key = world.number() << 8 | 0x11;
    world.keys.insert(
        key,
        Keyed {
            addr: iova,
            shift: (addr as u64).wrapping_sub(iova),
            len: length as u64,
            access,
            window: false,
            qp: 0,
            pd: pd as usize,
        },
    );
    Box::into_raw(Box::new(ibv_mr {
        context: (*pd).context,
        pd,
        addr,
        length,
        handle: key,
        lkey: key,
        rkey: key,
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    _: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut world = world();
    if world.fault("ibv_rereg_mr").is_some() {
        return -4;
    }
    let key = (*mr).lkey;
    world.keys.insert(
        key,
        Keyed {
            addr: addr as u64,
            shift: 0,
            len: length as u64,
            access: access as u32,
            window: false,
            qp: 0,
            pd: pd as usize,
        },
    );
    ((*mr).pd, (*mr).addr, (*mr).length) = (pd, addr, length);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_dereg_mr") {
        return errno;
    }
    world.keys.remove(&(*mr).lkey);
    drop(Box::from_raw(mr));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    if world().fault("ibv_create_comp_channel").is_some() {
        return null_mut();
    }
    Box::into_raw(Box::new(ibv_comp_channel { context, fd: bell(), refcnt: 0 }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    world().notices.remove(&(channel as usize));
    libc::close((*channel).fd);
    drop(Box::from_raw(channel));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let mut world = world();
    if world.fault("ibv_create_cq").is_some() {
        return null_mut();
    }
    let handle = world.number();
    let raw = Box::into_raw(Box::new(ibv_cq { context, channel, cq_context, handle, cqe }));
    world.cqs.insert(raw as usize, CqState::default());
    raw
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_resize_cq") {
        return errno;
    }
    let held = world.cqs.get(&(cq as usize)).map_or(0, |state| state.completions.len());
    if (cqe as usize) < held {
        return libc::EINVAL;
    }
    (*cq).cqe = cqe;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_destroy_cq") {
        return errno;
    }
    world.cqs.remove(&(cq as usize));
    if let Some(queue) = world.notices.get_mut(&((*cq).channel as usize)) {
        queue.retain(|other| *other != cq as usize);
    }
    drop(Box::from_raw(cq));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    if !answer((*channel).fd) {
        return -1;
    }
    let mut world = world();
    let queue = world.notices.entry(channel as usize).or_default();
    let Some(raw) = queue.pop_front() else { return -1 };
    *cq = raw as *mut ibv_cq;
    *cq_context = (**cq).cq_context;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let mut world = world();
    if world.fault("ibv_create_srq").is_some() {
        return null_mut();
    }
    let (context, srq_context, handle) = ((*pd).context, (*attr).srq_context, world.number());
    let raw = Box::into_raw(Box::new(ibv_srq { context, srq_context, pd, handle }));
    world.srqs.insert(raw as usize, Default::default());
    raw
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_modify_srq") {
        return errno;
    }
    if mask & IBV_SRQ_LIMIT != 0
        && let Some((_, limit)) = world.srqs.get_mut(&(srq as usize))
    {
        *limit = (*attr).srq_limit;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_destroy_srq") {
        return errno;
    }
    world.srqs.remove(&(srq as usize));
    drop(Box::from_raw(srq));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let mut world = world();
    if world.fault("ibv_create_qp").is_some() {
        return null_mut();
    }
    if (*attr).cap.max_inline_data > 128 {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    let qp_num = world.number();
    let raw = Box::into_raw(Box::new(ibv_qp {
        context: (*pd).context,
        qp_context: (*attr).qp_context,
        pd,
        send_cq: (*attr).send_cq,
        recv_cq: (*attr).recv_cq,
        srq: (*attr).srq,
        handle: qp_num,
        qp_num,
        state: 0,
        qp_type: (*attr).qp_type,
    }));
    let (recvs, qkey) = (Default::default(), ((*attr).qp_type == IBV_QPT_UD).then_some(0));
    let state = QpState { raw: raw as usize, recvs, peer: None, broken: false, allows: 0, qkey };
    world.qps.insert(qp_num, state);
    raw
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_modify_qp") {
        return errno;
    }
    if mask & IBV_QP_QKEY != 0
        && let Some(state) = world.qps.get_mut(&(*qp).qp_num)
    {
        state.qkey = Some((*attr).qkey);
    }
    if mask & IBV_QP_ACCESS_FLAGS != 0
        && let Some(state) = world.qps.get_mut(&(*qp).qp_num)
    {
        state.allows = (*attr).qp_access_flags;
    }
    if mask & IBV_QP_STATE != 0 {
        (*qp).state = (*attr).qp_state;
        if (*attr).qp_state == IBV_QPS_ERR {
            world.flush((*qp).qp_num);
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let mut world = world();
    if let Some(errno) = world.fault("ibv_destroy_qp") {
        return errno;
    }
    let number = (*qp).qp_num;
    world.qps.remove(&number);
    drop(Box::from_raw(qp));
    crate::cm::lost(&mut world, number);
    0
}
