//! `it_ia_query`: limits and capabilities, as one block that C frees.
//!
//! The blocks that C has are listed here, so that freeing a foreign one, or one twice, does nothing.
//! Any thread.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ual::vp_api::{Capabilities, ConnectionModel, DatagramAttrs, PortInfo, RnicAttrs, Transport};
use ual::{Evd, Ia};

use super::boundary;
use super::failure::Failure;
use super::ia::IaObject;
use super::object;
use super::path;
use super::ptr::{Out, Plain};
use super::status::{self, Status};
use super::types::*;

/// What a block consists of. C has a pointer to the one element of `info`, which points into the
/// others; none of them grows, so nothing moves.
struct Block {
    info: Vec<it_ia_info_t>,
    _name: Vec<c_char>,
    _spigots: Vec<it_spigot_info_t>,
    _addresses: Vec<Vec<it_net_addr_t>>,
}

// SAFETY: the pointers in `info` point into the vectors that move along with it.
unsafe impl Send for Block {}

/// Blocks that C has, by their address.
fn blocks() -> MutexGuard<'static, BTreeMap<usize, Block>> {
    static BLOCKS: OnceLock<Mutex<BTreeMap<usize, Block>>> = OnceLock::new();
    BLOCKS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ia_query(
    ia_handle: it_ia_handle_t,
    ia_info: *mut *mut it_ia_info_t,
) -> Status {
    // SAFETY: same pointer, same contract.
    unsafe { query(ia_handle, ia_info, std_abi::IT_MAX_PRIV_DATA) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ia_query_zrl(
    ia_handle: it_ia_handle_t,
    ia_info: *mut *mut it_ia_info_t,
) -> Status {
    // SAFETY: same pointer, same contract.
    unsafe { query(ia_handle, ia_info, zrl::IT_MAX_PRIV_DATA) }
}

/// # Safety
/// `ia_info` obeys the contract of a C caller.
unsafe fn query(
    ia_handle: it_ia_handle_t,
    ia_info: *mut *mut it_ia_info_t,
    max_private_data: usize,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(ia_info, "ia_info") }?;
        let ports = ia.inner.ports().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        let mut block = compose(&ia.inner, &ports, max_private_data);
        let info = block.info.as_mut_ptr();
        blocks().insert(info.addr(), block);
        out.write(info);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ia_info_free(ia_info: *mut it_ia_info_t) {
    // No status: a block that is not ours, or was freed before, is ignored.
    let _ = boundary::call(|| {
        drop(blocks().remove(&ia_info.addr()));
        Ok(())
    });
}

fn compose(ia: &Ia, ports: &[PortInfo], max_private_data: usize) -> Block {
    let attrs = ia.attrs();
    let addresses = |port: &PortInfo| {
        let usable = port.addresses.iter().filter(|ip| !path::is_link_local(ip));
        usable.map(|ip| path::net_addr(*ip)).collect()
    };
    let mut addresses: Vec<Vec<it_net_addr_t>> = ports.iter().map(addresses).collect();
    let numbered = ports.iter().zip(&mut addresses).enumerate();
    let mut spigots: Vec<_> =
        numbered.map(|(id, (port, addresses))| spigot(ia, id, port, addresses)).collect();
    let mut name: Vec<c_char> = ia.device().bytes().map(|octet| octet as c_char).collect();
    name.push(0);
    let private_data = ia.private_data(ia.policy());
    let info = it_ia_info_t {
        ia_name: name.as_mut_ptr(),
        connect_private_data_len: private_data.connect.min(max_private_data),
        accept_private_data_len: private_data.accept.min(max_private_data),
        reject_private_data_len: private_data.reject.min(max_private_data),
        num_spigots: spigots.len(),
        spigot_info: spigots.as_mut_ptr(),
        affiliated_err_evd: evd_handle(ia.affiliated_evd().as_deref()),
        unaffiliated_err_evd: evd_handle(ia.unaffiliated_evd().as_deref()),
        transport_type: transport_type(ia.transport()),
        supported_service_types: services(ia),
        ud_req_private_data_len: of_datagrams(ia, |most| most.max_private_request)
            .min(max_private_data),
        ud_rep_private_data_len: of_datagrams(ia, |most| most.max_private_reply)
            .min(max_private_data),
        ..capabilities(attrs)
    };
    Block { info: vec![info], _name: name, _spigots: spigots, _addresses: addresses }
}

fn services(ia: &Ia) -> it_transport_service_type_t {
    if ia.datagram_attrs().is_some() { IT_RC_SERVICE | IT_UD_SERVICE } else { IT_RC_SERVICE }
}

/// A limit of datagrams, 0 if there are none.
fn of_datagrams(ia: &Ia, limit: impl Fn(&DatagramAttrs) -> u32) -> usize {
    ia.datagram_attrs().map_or(0, limit) as usize
}

fn evd_handle(evd: Option<&Evd>) -> it_evd_handle_t {
    object::handle(evd.map_or(0, |evd| evd.tag().get()))
}

fn spigot(
    ia: &Ia,
    spigot_id: usize,
    port: &PortInfo,
    addresses: &mut Vec<it_net_addr_t>,
) -> it_spigot_info_t {
    let attrs = ia.attrs();
    it_spigot_info_t {
        spigot_id,
        max_rc_send_len: attrs.max_message as usize,
        max_rc_rdma_len: attrs.max_message as usize,
        // 0 where there are none.
        max_ud_send_len: ia.max_datagram(spigot_id as u32).unwrap_or(0) as usize,
        spigot_online: boolean(port.online),
        active_side_conn_qual: IT_IANA_PORT | IT_IANA_LR_PORT,
        passive_side_conn_qual: IT_IANA_PORT,
        num_net_addr: addresses.len(),
        net_addr: addresses.as_mut_ptr(),
    }
}

/// What does not depend on the ports, the policy or the objects of an adapter.
fn capabilities(attrs: &RnicAttrs) -> it_ia_info_t {
    let streams = attrs.connection_model == ConnectionModel::LlpStream;
    let has = |capability| boolean(attrs.capabilities.contains(capability));
    let (sw_major_version, sw_minor_version) = version();
    it_ia_info_t {
        api_major_version: 2,
        api_minor_version: 1,
        sw_major_version,
        sw_minor_version,
        // Copies are fastest from one cache line on.
        dto_alignment_hint: 64,
        ep_work_queues_resizable: has(Capabilities::QP_RESIZE),
        private_data_support: IT_TRUE,
        ird_ord_ia_support: IT_TRUE,
        ird_ord_suppressible: IT_TRUE,
        spigot_online_support: IT_TRUE,
        spigot_offline_support: IT_TRUE,
        srq_support: has(Capabilities::SRQ),
        soft_hi_watermark_support: has(Capabilities::RECV_LIMIT),
        srq_resizable: has(Capabilities::SRQ_RESIZE),
        socket_conversion_support: boolean(streams),
        rdma_read_ird_modifiable: IT_TRUE,
        rmr_types_supported: rmr_types(attrs.capabilities),
        addr_mode_relative_support: has(Capabilities::ZERO_BASED),
        rdma_read_requires_remote_write: boolean(
            !attrs.capabilities.contains(Capabilities::READ_SINK_LOCAL_WRITE),
        ),
        rdma_read_local_extensions: has(Capabilities::READ_SINK_STAG),
        dto_evd_overflow_detection: has(Capabilities::CQ_OVERRUN_EVENT),
        atomic_support: has(Capabilities::ATOMICS),
        lmr_link_support: has(Capabilities::FAST_REGISTER),
        post_send_unlink_remote_support: has(Capabilities::INVALIDATE),
        narrow_rmr_unlink_support: has(Capabilities::INVALIDATE | Capabilities::NARROW_MW),
        wide_rmr_unlink_support: has(Capabilities::INVALIDATE | Capabilities::WIDE_MW),
        unlink_fence_support: has(Capabilities::INVALIDATE),
        iobl_types_supported: IT_IOBL_PAGE_LIST | IT_IOBL_BLOCK_LIST | IT_IOBL_VE_PAGE_LIST,
        // Everything else is false, none or 0: three-way handshakes, hard watermarks.
        ..it_ia_info_t::zeroed()
    }
}

fn rmr_types(capabilities: Capabilities) -> it_rmr_type_t {
    let kinds =
        [(Capabilities::NARROW_MW, IT_RMR_TYPE_NARROW), (Capabilities::WIDE_MW, IT_RMR_TYPE_WIDE)];
    let there = kinds.into_iter().filter(|(kind, _)| capabilities.contains(*kind));
    there.fold(IT_RMR_TYPE_DEFAULT, |types, (_, kind)| types | kind)
}

/// RoCE is InfiniBand's transport, too.
pub(crate) fn transport_type(transport: Transport) -> it_transport_type_t {
    match transport {
        Transport::Iwarp => IT_IWARP_TCP_TRANSPORT,
        Transport::InfiniBand => IT_IB_TRANSPORT,
        Transport::Other => IT_VENDOR_TRANSPORT,
    }
}

/// Major and minor version of this library.
fn version() -> (u32, u32) {
    let part = |text: &str| text.parse().unwrap_or_default();
    (part(env!("CARGO_PKG_VERSION_MAJOR")), part(env!("CARGO_PKG_VERSION_MINOR")))
}
