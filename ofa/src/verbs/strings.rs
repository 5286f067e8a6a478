//! Names of constants, as in libibverbs; programs compare them (ibv_node_type_str(3),
//! ibv_port_state_str(3), ibv_event_type_str(3), ibv_wc_status_str(3)).

use std::ffi::{CStr, c_char, c_int, c_uint};

const NODES: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORTS: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

fn name<const N: usize>(
    names: &[&'static CStr; N],
    at: c_uint,
    none: &'static CStr,
) -> *const c_char {
    names.get(at as usize).unwrap_or(&none).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_node_type_str(node: c_int) -> *const c_char {
    name(&NODES, node.max(0) as c_uint, NODES[0])
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_port_state_str(state: c_uint) -> *const c_char {
    name(&PORTS, state, c"unknown")
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_event_type_str(event: c_uint) -> *const c_char {
    name(&EVENTS, event, c"unknown")
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_wc_status_str(status: c_uint) -> *const c_char {
    name(&STATUSES, status, c"unknown")
}
