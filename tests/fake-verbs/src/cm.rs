//! Test double of librdmacm's connection manager. 127.0.0.1 belongs to `fakeib0`, IPv6 addresses to `fakeiw0`.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;

use ibv_sys::*;

use crate::datagram;
use crate::objects::{ibv_free_device_list, ibv_get_device_list, ibv_open_device};
use crate::world::{IdState, World, answer, bell, ring, set_errno, world};

/// An event, with the memory that it points to.
#[repr(C)]
struct Event {
    public: rdma_cm_event,
    octets: Vec<u8>,
}

fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// librdmacm opens its own context of every device, once.
unsafe fn context_of(iwarp: bool) -> *mut ibv_context {
    static OPEN: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let open = OPEN.get_or_init(|| {
        let mut number = 0;
        let list = ibv_get_device_list(&mut number);
        let all = (0..number as usize).map(|n| ibv_open_device(*list.add(n)) as usize).collect();
        ibv_free_device_list(list);
        all
    });
    open.get(usize::from(iwarp)).map_or(null_mut(), |context| *context as *mut ibv_context)
}

/// Adds an event for an id.
pub unsafe fn add_event(
    world: &mut World,
    id: usize,
    listener: usize,
    kind: c_uint,
    status: c_int,
    octets: &[u8],
    reads: (u8, u8),
) {
    let fill = |param: &mut cm_param, octets: *const c_void, len| {
        let conn = &mut param.conn;
        (conn.private_data, conn.private_data_len) = (octets, len);
        (conn.responder_resources, conn.initiator_depth) = reads;
    };
    tell_with(world, (id, listener), (kind, status), octets, fill);
}

/// Adds an event for an id; `fill` gets the private data.
pub unsafe fn tell_with(
    world: &mut World,
    (id, listener): (usize, usize),
    (kind, status): (c_uint, c_int),
    octets: &[u8],
    fill: impl FnOnce(&mut cm_param, *const c_void, u8),
) {
    let of = if listener != 0 { listener } else { id };
    if !world.ids.contains_key(&of) {
        return;
    }
    let mut event = Box::new(Event { public: zeroed(), octets: octets.to_vec() });
    let of = of as *mut rdma_cm_id;
    let public = &mut event.public;
    (public.id, public.listen_id) = (id as *mut rdma_cm_id, listener as *mut rdma_cm_id);
    (public.event, public.status) = (kind, status);
    fill(&mut public.param, event.octets.as_ptr().cast(), event.octets.len() as u8);
    let channel = (*of).channel;
    world.pending.entry(channel as usize).or_default().push_back(Box::into_raw(event) as usize);
    ring((*channel).fd);
}

/// Ends the connection of a destroyed queue pair.
pub unsafe fn lost(world: &mut World, qp_num: u32) {
    let of_it = |(at, id): (&usize, &IdState)| (id.qp_num == qp_num && id.up).then_some(*at);
    if let Some(id) = world.ids.iter().find_map(of_it) {
        part(world, id);
    }
}

/// Reports the end of the connection to both ends.
unsafe fn part(world: &mut World, id: usize) {
    let Some(state) = world.ids.get_mut(&id).filter(|state| state.up) else { return };
    state.up = false;
    let (number, peer) = (state.qp_num, state.peer);
    world.flush(number);
    add_event(world, id, 0, RDMA_CM_EVENT_DISCONNECTED, 0, &[], (0, 0));
    if let Some(peer) = peer {
        part(world, peer);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    if world().fault("rdma_create_event_channel").is_some() {
        return null_mut();
    }
    Box::into_raw(Box::new(rdma_event_channel { fd: bell() }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let left = world().pending.remove(&(channel as usize)).unwrap_or_default();
    left.into_iter().for_each(|event| drop(Box::from_raw(event as *mut Event)));
    libc::close((*channel).fd);
    drop(Box::from_raw(channel));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    let mut world = world();
    if world.fault("rdma_create_id").is_some() {
        return -1;
    }
    let mut new: Box<rdma_cm_id> = Box::new(zeroed());
    (new.channel, new.context, new.ps) = (channel, context, ps);
    *id = Box::into_raw(new);
    let datagrams = ps == RDMA_PS_UDP;
    world.ids.insert(*id as usize, IdState { datagrams, ..IdState::default() });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let mut world = world();
    part(&mut world, id as usize);
    let channel = (*id).channel as usize;
    // Events that it has not taken are dropped.
    let left = world.pending.remove(&channel).unwrap_or_default();
    for event in left {
        let about = &(*(event as *mut Event)).public;
        if about.id == id || about.listen_id == id {
            drop(Box::from_raw(event as *mut Event));
            answer((*(*id).channel).fd);
        } else {
            world.pending.entry(channel).or_default().push_back(event);
        }
    }
    world.ids.remove(&(id as usize));
    drop(Box::from_raw(id));
    0
}

/// Binds to the device that an address belongs to.
unsafe fn settle(id: *mut rdma_cm_id, address: *const libc::sockaddr) -> Result<bool, c_int> {
    let sin = *address.cast::<libc::sockaddr_in>();
    let iwarp = match (c_int::from(sin.sin_family), u32::from_be(sin.sin_addr.s_addr)) {
        (libc::AF_INET, 0x7f00_0001) => false,
        (libc::AF_INET6, _) => true,
        _ => return Err(libc::ENODEV),
    };
    ((*id).verbs, (*id).port_num) = (context_of(iwarp), 1);
    Ok(iwarp)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
) -> c_int {
    if world().fault("rdma_bind_addr").is_some() {
        return -1;
    }
    let iwarp = match settle(id, address) {
        Ok(iwarp) => iwarp,
        Err(errno) => return fail(errno),
    };
    let mut world = world();
    let asked = u16::from_be((*address.cast::<libc::sockaddr_in>()).sin_port);
    let port = if asked == 0 { 20000 + (world.number() % 40_000) as u16 } else { asked };
    let datagrams = (*id).ps == RDMA_PS_UDP;
    let taken = |state: &IdState| {
        state.listening && (state.port, state.iwarp, state.datagrams) == (port, iwarp, datagrams)
    };
    if world.ids.values().any(taken) {
        return fail(libc::EADDRINUSE);
    }
    if let Some(state) = world.ids.get_mut(&(id as usize)) {
        (state.port, state.iwarp) = (port, iwarp);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    world().ids.get(&(id as usize)).map_or(0, |state| state.port.to_be())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, _: c_int) -> c_int {
    let mut world = world();
    if world.fault("rdma_listen").is_some() {
        return -1;
    }
    if let Some(state) = world.ids.get_mut(&(id as usize)) {
        state.listening = true;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _: c_int,
) -> c_int {
    if world().fault("rdma_resolve_addr").is_some() {
        return -1;
    }
    let settled = settle(id, to);
    let mut world = world();
    let sin = *to.cast::<libc::sockaddr_in>();
    // The larger kind of address fits the caller's storage.
    let destination = &raw mut (*id).route.addr.dst_storage;
    destination.cast::<libc::sockaddr_in6>().write(*to.cast::<libc::sockaddr_in6>());
    // All devices are of one machine: this end has the same address and its own port.
    (*id).route.addr.src_storage = (*id).route.addr.dst_storage;
    let source = (&raw mut (*id).route.addr.src_storage).cast::<libc::sockaddr_in>();
    (*source).sin_port = (40000 + world.number() as u16 % 20000).to_be();
    let kind = match settled {
        Ok(iwarp) => {
            if let Some(state) = world.ids.get_mut(&(id as usize)) {
                (state.iwarp, state.port) = (iwarp, u16::from_be(sin.sin_port));
            }
            RDMA_CM_EVENT_ADDR_RESOLVED
        }
        Err(_) => RDMA_CM_EVENT_ADDR_ERROR,
    };
    let status = if settled.is_ok() { 0 } else { -libc::ENODEV };
    add_event(&mut world, id as usize, 0, kind, status, &[], (0, 0));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    let mut world = world();
    if world.fault("rdma_resolve_route").is_some() {
        return -1;
    }
    add_event(&mut world, id as usize, 0, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, &[], (0, 0));
    0
}

unsafe fn octets(param: &rdma_conn_param, padded: usize, iwarp: bool) -> Vec<u8> {
    let at = param.private_data.cast::<u8>();
    let mut out = std::slice::from_raw_parts(at, param.private_data_len.into()).to_vec();
    if !iwarp {
        out.resize(padded, 0);
    }
    out
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let mut world = world();
    if world.fault("rdma_connect").is_some() {
        return -1;
    }
    let param = &*param;
    let Some(state) = world.ids.get_mut(&(id as usize)) else { return fail(libc::EINVAL) };
    state.qp_num = param.qp_num;
    let (port, iwarp, datagrams) = (state.port, state.iwarp, state.datagrams);
    let is_it = |state: &IdState| {
        state.listening && (state.port, state.iwarp, state.datagrams) == (port, iwarp, datagrams)
    };
    let found = world.ids.iter().find_map(|(at, state)| is_it(state).then_some(*at));
    let Some(listener) = found else {
        if datagrams {
            datagram::unanswered(&mut world, id as usize, 1, &[]);
            return 0;
        }
        let status = if iwarp { -libc::ECONNREFUSED } else { 8 };
        add_event(&mut world, id as usize, 0, RDMA_CM_EVENT_REJECTED, status, &[], (0, 0));
        return 0;
    };
    let parent = listener as *mut rdma_cm_id;
    let mut new: Box<rdma_cm_id> = Box::new(zeroed());
    (new.channel, new.context, new.verbs) = ((*parent).channel, (*parent).context, (*id).verbs);
    new.ps = (*parent).ps;
    let route = &(*id).route.addr;
    let back = (route.dst_storage, route.src_storage);
    new.port_num = 1;
    (new.route.addr.src_storage, new.route.addr.dst_storage) = back;
    let new = Box::into_raw(new) as usize;
    let peer = Some(id as usize);
    world.ids.insert(new, IdState { iwarp, peer, datagrams, ..IdState::default() });
    if let Some(state) = world.ids.get_mut(&(id as usize)) {
        state.peer = Some(new);
    }
    let data = octets(param, if datagrams { datagram::QUESTION } else { 56 }, iwarp);
    // The parameters as the other end sees them.
    let reads = (param.initiator_depth, param.responder_resources);
    add_event(&mut world, new, listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &data, reads);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let mut world = world();
    if world.fault("rdma_accept").is_some() {
        return -1;
    }
    let param = &*param;
    let at = id as usize;
    let Some((peer, iwarp)) = world.ids.get(&at).and_then(|s| Some((s.peer?, s.iwarp))) else {
        return fail(libc::EINVAL);
    };
    if (*id).ps == RDMA_PS_UDP {
        let data = octets(param, datagram::ANSWER, false);
        datagram::answered(&mut world, peer, param.qp_num, &data);
        return 0;
    }
    let Some(other) = world.ids.get(&peer).map(|state| state.qp_num) else {
        return fail(libc::ECONNRESET);
    };
    for (number, peer) in [(param.qp_num, other), (other, param.qp_num)] {
        if let Some(qp) = world.qps.get_mut(&number) {
            qp.peer = Some(peer);
        }
    }
    for (id, number) in [(at, param.qp_num), (peer, other)] {
        if let Some(state) = world.ids.get_mut(&id) {
            (state.qp_num, state.up) = (number, true);
        }
    }
    let data = octets(param, 196, iwarp);
    let reads = (param.initiator_depth, param.responder_resources);
    if iwarp {
        add_event(&mut world, peer, 0, RDMA_CM_EVENT_ESTABLISHED, 0, &data, reads);
        add_event(&mut world, at, 0, RDMA_CM_EVENT_ESTABLISHED, 0, &[], (0, 0));
    } else {
        add_event(&mut world, peer, 0, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &data, reads);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let mut world = world();
    if world.fault("rdma_establish").is_some() {
        return -1;
    }
    if let Some(peer) = world.ids.get(&(id as usize)).and_then(|state| state.peer) {
        add_event(&mut world, peer, 0, RDMA_CM_EVENT_ESTABLISHED, 0, &[], (0, 0));
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    let mut world = world();
    if world.fault("rdma_reject").is_some() {
        return -1;
    }
    let Some((peer, iwarp)) = world.ids.get(&(id as usize)).and_then(|s| Some((s.peer?, s.iwarp)))
    else {
        return fail(libc::EINVAL);
    };
    let mut data = std::slice::from_raw_parts(data.cast::<u8>(), len.into()).to_vec();
    if (*id).ps == RDMA_PS_UDP {
        data.resize(datagram::ANSWER, 0);
        datagram::unanswered(&mut world, peer, 2, &data);
        return 0;
    }
    if !iwarp {
        data.resize(148, 0);
    }
    let status = if iwarp { -libc::ECONNRESET } else { 28 };
    add_event(&mut world, peer, 0, RDMA_CM_EVENT_REJECTED, status, &data, (0, 0));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(_: *mut rdma_cm_id, _: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let mut world = world();
    if world.fault("rdma_disconnect").is_some() {
        return -1;
    }
    part(&mut world, id as usize);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    _: *mut rdma_cm_id,
    _: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    if world().fault("rdma_init_qp_attr").is_some() {
        return -1;
    }
    *mask = IBV_QP_STATE;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if !answer((*channel).fd) {
        return -1;
    }
    let mut world = world();
    match world.pending.entry(channel as usize).or_default().pop_front() {
        Some(next) => {
            *event = next as *mut rdma_cm_event;
            0
        }
        None => fail(libc::EAGAIN),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    drop(Box::from_raw(event.cast::<Event>()));
    0
}
