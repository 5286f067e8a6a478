//! The structs and function tables of `rnicpi.h` in Rust, field by field. Plain data, no state.
//!
//! The header is the source of truth and documents the fields; `abi.txt` holds the layout of both.

#![allow(missing_docs)] // rnicpi.h says what each is

use std::ffi::{c_char, c_void};

/// A struct for which all zeros is a valid value.
///
/// # Safety
///
/// `repr(C)`; numbers, raw pointers, optional functions and such structs only.
pub unsafe trait Plain: Copy {
    /// All zeros.
    fn zeroed() -> Self {
        // SAFETY: the trait's promise.
        unsafe { std::mem::zeroed() }
    }
}

/// A struct that begins with its size in octets, a `u32`.
///
/// # Safety
///
/// The first field is `size: u32`.
pub unsafe trait Sized32: Plain {
    /// Size of the struct in this side's version.
    const SIZE: u32 = size_of::<Self>() as u32;
    /// The least size that makes sense in an argument: that of the field itself, or of the first version.
    const LEAST: u32;
    /// All zeros except the size.
    fn blank() -> Self;
}

macro_rules! structs {
    ($kind:ident: $($name:ident = $c:ident $(from $least:literal)? { $($field:ident: $ty:ty,)+ })+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $(pub $field: $ty,)+ }

            // SAFETY: the fields, listed above, are numbers, raw pointers, optional functions, and
            // structs of this file.
            unsafe impl Plain for $name {}
            structs!(@$kind $name $($least)?);
        )+
        #[cfg(test)]
        pub(super) mod $kind {
            /// A field: its name, offset and type.
            type Field = (&'static str, usize, &'static str);

            /// Each struct with its size and fields.
            pub(in crate::abi) fn layout() -> Vec<(&'static str, usize, Vec<Field>)> {
                use super::*;
                vec![$((
                    stringify!($c),
                    size_of::<$name>(),
                    vec![$((stringify!($field), std::mem::offset_of!($name, $field), stringify!($ty)),)+],
                ),)+]
            }
        }
    };
    (@fixed $name:ident) => {};
    (@growing $name:ident) => { structs!(@growing $name 4); };
    (@growing $name:ident $least:literal) => {
        // SAFETY: the list begins with `size: u32`, else `blank` would not compile or the layout
        // test would fail.
        unsafe impl Sized32 for $name {
            const LEAST: u32 = $least;
            fn blank() -> Self {
                Self { size: Self::SIZE, ..Self::zeroed() }
            }
        }
    };
}

pub type DeviceFn = unsafe extern "C" fn(*mut c_void, *const Device);
pub type PortFn = unsafe extern "C" fn(*mut c_void, *const Port);
pub type ServiceEventFn = unsafe extern "C" fn(*mut c_void, *const ServiceEvent);
pub type CmEventFn = unsafe extern "C" fn(*mut c_void, *const CmEvent);
pub type GetOpsFn = unsafe extern "C" fn(u32) -> *const ProviderOps;
pub type WrapFn =
    unsafe extern "C" fn(u32, *const ProviderOps, String, *mut Error) -> *const ProviderOps;

structs! { fixed:
    String = ri_string {
        data: *const c_char,
        len: usize,
    }
    Setting = ri_setting {
        key: String,
        value: String,
    }
    Keep = ri_keep {
        context: *mut c_void,
        retain: Option<unsafe extern "C" fn(*mut c_void)>,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    Address = ri_address {
        family: u16,
        port: u16,
        scope: u32,
        octets: [u8; 16],
    }
    Terminate = ri_terminate {
        sent: u8,
        layer: u8,
        etype: u8,
        code: u8,
    }
    Sge = ri_sge {
        stag: u32,
        len: u32,
        to: u64,
    }
    Range = ri_range {
        addr: *mut c_void,
        len: u64,
        owner: Keep,
    }
    UdAddress = ri_ud_address {
        qpn: u32,
        qkey: u32,
    }
    UdPath = ri_ud_path {
        port: u32,
        flow_label: u32,
        local_gid: [u8; 16],
        remote_gid: [u8; 16],
        local_lid: u16,
        remote_lid: u16,
        partition_key: u16,
        mtu_code: u8,
        rate: u8,
        packet_lifetime: u8,
        service_level: u8,
        subnet_local: u8,
        traffic_class: u8,
        hop_limit: u8,
        reserved: [u8; 3],
    }
}

structs! { growing:
    Error = ri_error {
        size: u32,
        reserved: u32,
        detail: [c_char; 504],
        remedy: [c_char; 256],
    }
    Services = ri_services {
        size: u32,
        reserved: u32,
        keep: Keep,
        log: Option<unsafe extern "C" fn(*mut c_void, u32, String, String)>,
        now_ns: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
        pin: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut Error) -> u32>,
        unpin: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64)>,
        settings: *const Setting,
        setting_count: u32,
        reserved_settings: u32,
    }
    Port = ri_port {
        size: u32,
        online: u32,
        mtu: u32,
        address_count: u32,
        addresses: *const Address,
        interface_name: String,
    }
    Device = ri_device {
        size: u32,
        port_count: u32,
        ports: *const *const Port,
        name: String,
        transport: u32,
        reserved: u32,
    }
    RnicAttrs = ri_rnic_attrs {
        size: u32,
        connection_model: u32,
        capabilities: u64,
        vendor: String,
        model: String,
        firmware: String,
        max_mr_octets: u64,
        max_qp: u32,
        max_wr_per_qp: u32,
        max_wr_per_srq: u32,
        max_sge_send: u32,
        max_sge_recv: u32,
        max_sge_write: u32,
        max_sge_read: u32,
        max_inline: u32,
        max_cq: u32,
        max_cqe: u32,
        max_srq: u32,
        max_pd: u32,
        max_mr: u32,
        max_mw: u32,
        max_ird: u32,
        max_ord: u32,
        max_message: u32,
        reserved: u32,
        max_private_connect: u32,
        max_private_accept: u32,
        max_private_reject: u32,
        reserved_private: u32,
    }
    AsyncEvent = ri_async_event {
        size: u32,
        source: u32,
        id: u32,
        event: u32,
        terminate: Terminate,
        online: u32,
    }
    AsyncHandler = ri_async_handler {
        size: u32,
        reserved: u32,
        keep: Keep,
        call: Option<unsafe extern "C" fn(*mut c_void, *const AsyncEvent)>,
    }
    MrInit = ri_mr_init {
        size: u32,
        pd: u32,
        range: Range,
        addressing: u32,
        access: u32,
        key: u32,
        pin: u32,
        base: u64,
    }
    SharedMrInit = ri_shared_mr_init {
        size: u32,
        original: u32,
        pd: u32,
        addressing: u32,
        access: u32,
        key: u32,
        base: u64,
    }
    MrInfo = ri_mr_info {
        size: u32,
        stag: u32,
        pd: u32,
        valid: u32,
        shared: u32,
        addressing: u32,
        addr: u64,
        len: u64,
        access: u32,
        bound_windows: u32,
        base: u64,
    }
    MwInfo = ri_mw_info {
        size: u32,
        id: u32,
        kind: u32,
        pd: u32,
        bound: u32,
        stag: u32,
        access: u32,
        has_region: u32,
        region: u32,
        addressing: u32,
        to: u64,
        len: u64,
        base: u64,
    }
    SendWr = ri_send_wr {
        size: u32,
        opcode: u32,
        wr_id: u64,
        flags: u32,
        count: u32,
        data: *const c_void,
        stag: u32,
        reserved: u32,
        to: u64,
        immediate: u64,
        extra: *const c_void,
    }
    Atomic = ri_atomic {
        size: u32,
        op: u32,
        operand: u64,
        operand_mask: u64,
        compare: u64,
        compare_mask: u64,
    }
    BindMw = ri_bind_mw {
        size: u32,
        window: u32,
        key: u32,
        region: u32,
        to: u64,
        len: u64,
        addressing: u32,
        access: u32,
        base: u64,
    }
    FastRegister = ri_fast_register {
        size: u32,
        stag: u32,
        range: Range,
        addressing: u32,
        access: u32,
        base: u64,
    }
    RecvWr = ri_recv_wr {
        size: u32,
        count: u32,
        wr_id: u64,
        sgl: *const Sge,
    }
    Wc = ri_wc {
        size: u32,
        opcode: u32,
        wr_id: u64,
        qp: u32,
        status: u32,
        flags: u32,
        octets: u32,
        immediate: u64,
        invalidated: u32,
        reserved: u32,
    }
    UdSource = ri_ud_source {
        size: u32,
        flags: u32,
        qpn: u32,
        reserved: u32,
        path: UdPath,
    }
    UdSendWr = ri_ud_send_wr {
        size: u32,
        flags: u32,
        wr_id: u64,
        data: *const c_void,
        count: u32,
        immediate: u32,
        ah: u32,
        to: UdAddress,
        reserved: u32,
    }
    CqInit = ri_cq_init {
        size: u32,
        depth: u32,
        keep: Keep,
        call: Option<unsafe extern "C" fn(*mut c_void, u32)>,
    }
    CqOps = ri_cq_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        depth: Option<unsafe extern "C" fn(*mut c_void) -> u32>,
        poll: Option<unsafe extern "C" fn(*mut c_void, *mut Wc, u32, u32, *mut u32) -> u32>,
        arm: Option<unsafe extern "C" fn(*mut c_void, u32) -> u32>,
        wait: Option<unsafe extern "C" fn(*mut c_void, u64, u64, *mut u32) -> u32>,
        interrupt: Option<unsafe extern "C" fn(*mut c_void)>,
        resize: Option<unsafe extern "C" fn(*mut c_void, u32, *mut u32, *mut Error) -> u32>,
        queued: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
        poll_from: Option<unsafe extern "C" fn(*mut c_void, *mut Wc, u32, *mut UdSource, u32, u32, *mut u32) -> u32>,
    }
    CqMade = ri_cq_made from 24 {
        size: u32,
        id: u32,
        cq: *mut c_void,
        ops: *const CqOps,
    }
    SrqInit = ri_srq_init {
        size: u32,
        pd: u32,
        depth: u32,
        max_sge: u32,
        limit: u32,
    }
    SrqInfo = ri_srq_info {
        size: u32,
        pd: u32,
        depth: u32,
        max_sge: u32,
        limit: u32,
        posted: u32,
    }
    SrqOps = ri_srq_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        post_recv: Option<unsafe extern "C" fn(*mut c_void, *const RecvWr, u32, *mut u32) -> u32>,
        modify: Option<unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut SrqInfo, *mut Error) -> u32>,
        query: Option<unsafe extern "C" fn(*mut c_void, *mut SrqInfo, *mut Error) -> u32>,
    }
    SrqMade = ri_srq_made from 24 {
        size: u32,
        id: u32,
        srq: *mut c_void,
        ops: *const SrqOps,
    }
    QpInit = ri_qp_init {
        size: u32,
        flags: u32,
        pd: u32,
        send_cq: u32,
        recv_cq: u32,
        srq: u32,
        send_depth: u32,
        recv_depth: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline: u32,
        ird: u32,
        ord: u32,
        allow: u32,
        recv_limit: u32,
        hold_octets: u32,
        hold_time_ns: u64,
    }
    Stream = ri_stream {
        size: u32,
        socket: i32,
        received: *const u8,
        received_len: u64,
        last_message: *const u8,
        last_message_len: u64,
        role: u32,
        flags: u32,
        ird: u32,
        ord: u32,
        rtr: u32,
        fpdu_octets: u32,
        nudge_ns: u64,
        probe_ns: u64,
        close_timeout_ns: u64,
        memory: i32,
        doorbell: i32,
        peer_doorbell: i32,
        side: u32,
    }
    QpChange = ri_qp_change {
        size: u32,
        kind: u32,
        stream: *const Stream,
        which: u32,
        ord: u32,
        ird: u32,
        send_depth: u32,
        recv_depth: u32,
        recv_limit: u32,
        allow: u32,
        reserved: u32,
    }
    QpInfo = ri_qp_info {
        size: u32,
        id: u32,
        state: u32,
        send_depth: u32,
        recv_depth: u32,
        sends_outstanding: u32,
        recvs_outstanding: u32,
        sends_lost: u32,
        recvs_lost: u32,
        recv_limit: u32,
        ird: u32,
        ord: u32,
        has_terminate: u32,
        terminate: Terminate,
        local: Address,
        remote: Address,
        fpdus_sent: u64,
        fpdus_received: u64,
        octets_sent: u64,
        octets_received: u64,
        send_calls: u64,
        recv_calls: u64,
        send_stalls: u64,
        ord_stalls: u64,
        tcp_mss: u32,
        tcp_congestion_window: u32,
        tcp_retransmitted: u32,
        reserved: u32,
        tcp_rtt_ns: u64,
        tcp_rtt_variation_ns: u64,
        carrier: u32,
        tcp_unsent: u32,
        tcp_busy_ns: u64,
        tcp_rwnd_limited_ns: u64,
        tcp_sndbuf_limited_ns: u64,
        tcp_delivery_rate: u64,
        tcp_min_rtt_ns: u64,
    }
    QpOps = ri_qp_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        post_send: Option<unsafe extern "C" fn(*mut c_void, *const SendWr, u32, *mut u32) -> u32>,
        post_recv: Option<unsafe extern "C" fn(*mut c_void, *const RecvWr, u32, *mut u32) -> u32>,
        modify: Option<unsafe extern "C" fn(*mut c_void, *const QpChange, *mut Error) -> u32>,
        query: Option<unsafe extern "C" fn(*mut c_void, *mut QpInfo, *mut Error) -> u32>,
    }
    QpMade = ri_qp_made from 24 {
        size: u32,
        id: u32,
        qp: *mut c_void,
        ops: *const QpOps,
    }
    CmParams = ri_cm_params {
        size: u32,
        ird: u32,
        ord: u32,
        private_len: u32,
        private_data: *const u8,
    }
    CmEvent = ri_cm_event {
        size: u32,
        kind: u32,
        listener: u64,
        request: u64,
        qp: u32,
        reserved: u32,
        peer: Address,
        params: *const CmParams,
        reason: String,
        local: Address,
    }
    CmOps = ri_cm_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        listen: Option<unsafe extern "C" fn(*mut c_void, *const Address, u32, *mut u64, *mut Address, *mut Error) -> u32>,
        unlisten: Option<unsafe extern "C" fn(*mut c_void, u64, *mut Error) -> u32>,
        connect: Option<unsafe extern "C" fn(*mut c_void, u32, *const Address, *const CmParams, *mut Error) -> u32>,
        accept: Option<unsafe extern "C" fn(*mut c_void, u64, u32, *const CmParams, *mut Error) -> u32>,
        reject: Option<unsafe extern "C" fn(*mut c_void, u64, *const u8, u32, *mut Error) -> u32>,
        disconnect: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        poll_event: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, Option<CmEventFn>)>,
        wait_event: Option<unsafe extern "C" fn(*mut c_void, u64, *mut u32, *mut Error) -> u32>,
    }
    CmMade = ri_cm_made from 24 {
        size: u32,
        reserved: u32,
        cm: *mut c_void,
        ops: *const CmOps,
    }
    UdQpInit = ri_ud_qp_init {
        size: u32,
        flags: u32,
        pd: u32,
        send_cq: u32,
        recv_cq: u32,
        send_depth: u32,
        recv_depth: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline: u32,
        port: u32,
        qkey: u32,
    }
    UdQpInfo = ri_ud_qp_info {
        size: u32,
        id: u32,
        state: u32,
        port: u32,
        address: UdAddress,
        send_depth: u32,
        recv_depth: u32,
        sends_outstanding: u32,
        recvs_outstanding: u32,
    }
    UdQpOps = ri_ud_qp_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        address: Option<unsafe extern "C" fn(*mut c_void, *mut UdAddress)>,
        post_send: Option<unsafe extern "C" fn(*mut c_void, *const UdSendWr, u32, *mut u32) -> u32>,
        post_recv: Option<unsafe extern "C" fn(*mut c_void, *const RecvWr, u32, *mut u32) -> u32>,
        modify: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        query: Option<unsafe extern "C" fn(*mut c_void, *mut UdQpInfo, *mut Error) -> u32>,
        set_qkey: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        reset: Option<unsafe extern "C" fn(*mut c_void, *mut Error) -> u32>,
    }
    UdQpMade = ri_ud_qp_made from 24 {
        size: u32,
        id: u32,
        qp: *mut c_void,
        ops: *const UdQpOps,
    }
    UdAttrs = ri_ud_attrs {
        size: u32,
        max_ah: u32,
        max_private_request: u32,
        max_private_reply: u32,
        usual_qkey: u32,
    }
    AhInfo = ri_ah_info {
        size: u32,
        pd: u32,
        path: UdPath,
    }
    ServiceEvent = ri_service_event {
        size: u32,
        kind: u32,
        token: u64,
        request: u64,
        peer: Address,
        port: u32,
        why: u32,
        address: UdAddress,
        path: UdPath,
        private_len: u32,
        reserved: u32,
        private_data: *const u8,
        reason: String,
    }
    ServiceHandler = ri_service_handler {
        size: u32,
        reserved: u32,
        keep: Keep,
        call: Option<unsafe extern "C" fn(*mut c_void, *const ServiceEvent)>,
    }
    UdOps = ri_ud_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        attrs: Option<unsafe extern "C" fn(*mut c_void, *mut UdAttrs)>,
        max_payload: Option<unsafe extern "C" fn(*mut c_void, u32, *mut u32, *mut Error) -> u32>,
        create_qp: Option<unsafe extern "C" fn(*mut c_void, *const UdQpInit, *mut UdQpMade, *mut Error) -> u32>,
        destroy_qp: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        create_ah: Option<unsafe extern "C" fn(*mut c_void, u32, *const UdPath, *mut u32, *mut Error) -> u32>,
        query_ah: Option<unsafe extern "C" fn(*mut c_void, u32, *mut AhInfo, *mut Error) -> u32>,
        destroy_ah: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        set_service_handler: Option<unsafe extern "C" fn(*mut c_void, *const ServiceHandler)>,
        listen: Option<unsafe extern "C" fn(*mut c_void, u64, *const Address, u32, *mut Address, *mut Error) -> u32>,
        unlisten: Option<unsafe extern "C" fn(*mut c_void, u64, *mut Error) -> u32>,
        resolve: Option<unsafe extern "C" fn(*mut c_void, u64, *const Address, *const u8, u32, *mut Error) -> u32>,
        cancel: Option<unsafe extern "C" fn(*mut c_void, u64, *mut Error) -> u32>,
        accept: Option<unsafe extern "C" fn(*mut c_void, u64, *const UdAddress, *const u8, u32, *mut Error) -> u32>,
        reject: Option<unsafe extern "C" fn(*mut c_void, u64, u32, *const u8, u32, *mut Error) -> u32>,
    }
    UdMade = ri_ud_made from 24 {
        size: u32,
        reserved: u32,
        ud: *mut c_void,
        ops: *const UdOps,
    }
    PeerPath = ri_peer_path from 56 {
        size: u32,
        qpn: u32,
        local_gid: [u8; 16],
        remote_gid: [u8; 16],
        psn: u32,
        mtu_code: u32,
        ird: u32,
        min_rnr_timer: u32,
    }
    PathSender = ri_path_sender from 24 {
        size: u32,
        psn: u32,
        ack_timeout: u32,
        retry_count: u32,
        rnr_retry: u32,
        ord: u32,
    }
    PathOps = ri_path_ops {
        size: u32,
        reserved: u32,
        release: Option<unsafe extern "C" fn(*mut c_void)>,
        number: Option<unsafe extern "C" fn(*mut c_void, u32, *mut u32, *mut Error) -> u32>,
        receive: Option<unsafe extern "C" fn(*mut c_void, u32, *const PeerPath, *mut Error) -> u32>,
        send: Option<unsafe extern "C" fn(*mut c_void, u32, *const PathSender, *mut Error) -> u32>,
    }
    PathsMade = ri_paths_made from 24 {
        size: u32,
        reserved: u32,
        paths: *mut c_void,
        ops: *const PathOps,
    }
    VendorCalls = ri_vendor_calls {
        size: u32,
        reserved: u32,
        table: *const c_void,
        context: *mut c_void,
    }
    RnicOps = ri_rnic_ops {
        size: u32,
        reserved: u32,
        close: Option<unsafe extern "C" fn(*mut c_void)>,
        attrs: Option<unsafe extern "C" fn(*mut c_void, *mut RnicAttrs)>,
        ports: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, Option<PortFn>)>,
        set_async_handler: Option<unsafe extern "C" fn(*mut c_void, *const AsyncHandler)>,
        alloc_pd: Option<unsafe extern "C" fn(*mut c_void, *mut u32, *mut Error) -> u32>,
        dealloc_pd: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        create_cq: Option<unsafe extern "C" fn(*mut c_void, *const CqInit, *mut CqMade, *mut Error) -> u32>,
        destroy_cq: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        create_srq: Option<unsafe extern "C" fn(*mut c_void, *const SrqInit, *mut SrqMade, *mut Error) -> u32>,
        destroy_srq: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        create_qp: Option<unsafe extern "C" fn(*mut c_void, *const QpInit, *mut QpMade, *mut Error) -> u32>,
        destroy_qp: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        register_mr: Option<unsafe extern "C" fn(*mut c_void, *const MrInit, *mut u32, *mut Error) -> u32>,
        reregister_mr: Option<unsafe extern "C" fn(*mut c_void, u32, *const MrInit, *mut u32, *mut Error) -> u32>,
        register_shared_mr: Option<unsafe extern "C" fn(*mut c_void, *const SharedMrInit, *mut u32, *mut Error) -> u32>,
        alloc_stag: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut u32, *mut Error) -> u32>,
        query_mr: Option<unsafe extern "C" fn(*mut c_void, u32, *mut MrInfo, *mut Error) -> u32>,
        dealloc_stag: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        alloc_mw: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *mut u32, *mut Error) -> u32>,
        query_mw: Option<unsafe extern "C" fn(*mut c_void, u32, *mut MwInfo, *mut Error) -> u32>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Error) -> u32>,
        native_cm: Option<unsafe extern "C" fn(*mut c_void, *mut CmMade, *mut Error) -> u32>,
        datagrams: Option<unsafe extern "C" fn(*mut c_void, *mut UdMade, *mut Error) -> u32>,
        vendor_calls: Option<unsafe extern "C" fn(*mut c_void, String, *mut VendorCalls, *mut Error) -> u32>,
        lead: Option<unsafe extern "C" fn(*mut c_void, i32, u64, *mut u32) -> u32>,
        paths: Option<unsafe extern "C" fn(*mut c_void, *mut PathsMade, *mut Error) -> u32>,
    }
    RnicMade = ri_rnic_made {
        size: u32,
        reserved: u32,
        rnic: *mut c_void,
        ops: *const RnicOps,
    }
    ProviderOps = ri_provider_ops {
        size: u32,
        reserved: u32,
        context: *mut c_void,
        devices: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, Option<DeviceFn>, *mut Error) -> u32>,
        open: Option<unsafe extern "C" fn(*mut c_void, String, *const Services, *mut RnicMade, *mut Error) -> u32>,
    }
    ProviderDescriptor = ri_provider_descriptor {
        size: u32,
        magic: u32,
        major: u16,
        minor: u16,
        reserved: u32,
        name: *const c_char,
        version: *const c_char,
        capabilities: u64,
    }
}

// SAFETY: a descriptor is constant data; its strings are, too.
unsafe impl Sync for ProviderDescriptor {}
