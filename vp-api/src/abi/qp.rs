//! Conversion of queue pairs and shared receive queues between Rust and C: attributes, changes and state.
//! Stateless.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::types::Sized32;
use super::{codes, events, grow, net, text, types as c};
use crate::{
    Access, CqId, FpduSize, LlpStream, LocalStream, PdId, QpChange, QpCounters, QpId, QpInfo,
    QpInit, SrqId, SrqInfo, SrqInit, StreamParams, TcpInfo, Unready, VpError, VpResult, VpStatus,
};

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn init_to(init: &QpInit) -> c::QpInit {
    let privileged = if init.privileged { codes::flag::PRIVILEGED } else { 0 };
    let srq = if init.srq.is_some() { codes::flag::SRQ } else { 0 };
    let (hold, hold_octets, hold_time_ns) = match init.unready {
        Unready::Terminate => (0, 0, 0),
        Unready::Hold { octets, time } => (codes::flag::HOLD, octets, ns(time)),
    };
    c::QpInit {
        flags: privileged | srq | hold,
        pd: init.pd.0,
        send_cq: init.send_cq.0,
        recv_cq: init.recv_cq.0,
        srq: init.srq.map_or(0, |s| s.0),
        send_depth: init.send_depth,
        recv_depth: init.recv_depth,
        max_send_sge: init.max_send_sge,
        max_recv_sge: init.max_recv_sge,
        max_inline: init.max_inline,
        ird: init.ird.into(),
        ord: init.ord.into(),
        allow: init.allow.bits(),
        recv_limit: init.recv_limit,
        hold_octets,
        hold_time_ns,
        ..c::QpInit::blank()
    }
}

pub(super) fn init_from(init: &c::QpInit) -> Option<QpInit> {
    let srq = init.flags & codes::flag::SRQ != 0;
    let known = codes::flag::SRQ | codes::flag::PRIVILEGED | codes::flag::HOLD;
    (init.flags & !known == 0).then_some(())?;
    let hold =
        Unready::Hold { octets: init.hold_octets, time: Duration::from_nanos(init.hold_time_ns) };
    let holds = init.flags & codes::flag::HOLD != 0;
    Some(QpInit {
        pd: PdId(init.pd),
        send_cq: CqId(init.send_cq),
        recv_cq: CqId(init.recv_cq),
        srq: srq.then_some(SrqId(init.srq)),
        send_depth: init.send_depth,
        recv_depth: init.recv_depth,
        max_send_sge: init.max_send_sge,
        max_recv_sge: init.max_recv_sge,
        max_inline: init.max_inline,
        ird: u16::try_from(init.ird).ok()?,
        ord: u16::try_from(init.ord).ok()?,
        allow: Access::from_bits(init.allow)?,
        privileged: init.flags & codes::flag::PRIVILEGED != 0,
        recv_limit: init.recv_limit,
        unready: if holds { hold } else { Unready::Terminate },
    })
}

pub(super) fn srq_init_to(init: &SrqInit) -> c::SrqInit {
    c::SrqInit {
        pd: init.pd.0,
        depth: init.depth,
        max_sge: init.max_sge,
        limit: init.limit,
        ..c::SrqInit::blank()
    }
}

pub(super) fn srq_init_from(init: &c::SrqInit) -> SrqInit {
    let pd = PdId(init.pd);
    SrqInit { pd, depth: init.depth, max_sge: init.max_sge, limit: init.limit }
}

pub(super) fn srq_info_to(info: &SrqInfo) -> c::SrqInfo {
    c::SrqInfo {
        pd: info.pd.0,
        depth: info.depth,
        max_sge: info.max_sge,
        limit: info.limit,
        posted: info.posted,
        ..c::SrqInfo::blank()
    }
}

pub(super) fn srq_info_from(info: &c::SrqInfo) -> SrqInfo {
    SrqInfo {
        pd: PdId(info.pd),
        depth: info.depth,
        max_sge: info.max_sge,
        limit: info.limit,
        posted: info.posted,
    }
}

/// Calls `with` with the change in its C form. The callee owns the socket of a stream.
pub(super) fn lend_change<R>(change: QpChange, with: impl FnOnce(&c::QpChange) -> R) -> R {
    let mut out = c::QpChange::blank();
    out.kind = match change {
        QpChange::Rts(stream) => return lend_stream(*stream, with),
        QpChange::Closing => codes::change::CLOSING,
        QpChange::Drain => codes::change::DRAIN,
        QpChange::Allow(rights) => {
            out.allow = rights.bits();
            codes::change::ALLOW
        }
        QpChange::Terminate => codes::change::TERMINATE,
        QpChange::Error => codes::change::ERROR,
        QpChange::Idle => codes::change::IDLE,
        QpChange::Discard => codes::change::DISCARD,
        QpChange::Limits { ord, ird, send_depth, recv_depth, recv_limit } => {
            let (ord, ird) = (ord.map(u32::from), ird.map(u32::from));
            let values = [ord, ird, send_depth, recv_depth, recv_limit];
            let named = values.iter().zip(codes::change::WHICH).filter(|(v, _)| v.is_some());
            out.which = named.map(|(_, bit)| bit).sum();
            [out.ord, out.ird, out.send_depth, out.recv_depth, out.recv_limit] =
                values.map(Option::unwrap_or_default);
            codes::change::LIMITS
        }
    };
    with(&out)
}

fn lend_stream<R>(stream: LlpStream, with: impl FnOnce(&c::QpChange) -> R) -> R {
    let LlpStream { socket, received, last_message, params: p, local } = stream;
    let flags = [
        (p.crc, codes::stream::CRC),
        (p.markers_tx, codes::stream::MARKERS_TX),
        (p.markers_rx, codes::stream::MARKERS_RX),
        (p.extensions, codes::stream::EXTENSIONS),
        (p.send_immediates, codes::stream::SEND_IMMEDIATES),
        (local.is_some(), codes::stream::LOCAL),
    ];
    let ([memory, doorbell, peer_doorbell], side) = local.map_or(([-1; 3], 0), |local| {
        let LocalStream { memory, side, doorbell, peer_doorbell } = local;
        let given = [memory, doorbell, peer_doorbell].map(IntoRawFd::into_raw_fd);
        (given, codes::side_code(side))
    });
    let lent = c::Stream {
        socket: socket.into_raw_fd(),
        received: received.as_ptr(),
        received_len: received.len() as u64,
        last_message: last_message.as_ptr(),
        last_message_len: last_message.len() as u64,
        role: codes::role_code(p.role),
        flags: flags.iter().filter(|(on, _)| *on).map(|(_, bit)| bit).sum(),
        ird: p.ird.into(),
        ord: p.ord.into(),
        rtr: p.rtr.map_or(0, codes::rtr_code),
        fpdu_octets: match p.fpdu {
            FpduSize::Emss => 0,
            FpduSize::Octets(octets) => octets.into(),
        },
        nudge_ns: p.kick_after.map_or(0, ns),
        probe_ns: p.probe_after.map_or(0, ns),
        close_timeout_ns: ns(p.close_timeout),
        memory,
        doorbell,
        peer_doorbell,
        side,
        ..c::Stream::blank()
    };
    with(&c::QpChange { kind: codes::change::RTS, stream: &lent, ..c::QpChange::blank() })
}

/// Converts a change. Takes ownership of the socket of a stream in any case.
///
/// # Safety
///
/// `change` points to one as the header demands; the caller must own the socket in it.
pub(super) unsafe fn change_from(change: *const c::QpChange) -> VpResult<QpChange> {
    // SAFETY: the caller's promise.
    let change = unsafe { grow::read(change) };
    let meaningless = |what: &str| VpError::new(VpStatus::InvalidModifier, what);
    Ok(match change.kind {
        codes::change::RTS => {
            if change.stream.is_null() {
                return Err(meaningless("ri_qp_change.stream is NULL; RI_QP_TO_RTS needs one"));
            }
            // SAFETY: the caller's promise.
            let stream = unsafe { stream_from(change.stream) };
            QpChange::Rts(Box::new(stream.ok_or_else(|| {
                meaningless("ri_stream has no socket, or a role, RTR or number out of range")
            })?))
        }
        codes::change::CLOSING => QpChange::Closing,
        codes::change::DRAIN => QpChange::Drain,
        codes::change::ALLOW => {
            let rights = Access::from_bits(change.allow);
            QpChange::Allow(
                rights.ok_or_else(|| meaningless("ri_qp_change.allow has no such right"))?,
            )
        }
        codes::change::TERMINATE => QpChange::Terminate,
        codes::change::ERROR => QpChange::Error,
        codes::change::IDLE => QpChange::Idle,
        codes::change::DISCARD => QpChange::Discard,
        codes::change::LIMITS => {
            limits_from(&change).ok_or_else(|| meaningless("IRD and ORD are at most 65535"))?
        }
        _ => return Err(meaningless("ri_qp_change.kind is none of RI_QP_*")),
    })
}

fn limits_from(change: &c::QpChange) -> Option<QpChange> {
    let bits = codes::change::WHICH;
    let named = |at: usize, value: u32| (change.which & bits[at] != 0).then_some(value);
    let small = |value: Option<u32>| value.map(u16::try_from).transpose().ok();
    Some(QpChange::Limits {
        ord: small(named(0, change.ord))?,
        ird: small(named(1, change.ird))?,
        send_depth: named(2, change.send_depth),
        recv_depth: named(3, change.recv_depth),
        recv_limit: named(4, change.recv_limit),
    })
}

/// # Safety
///
/// As for [`change_from`].
unsafe fn stream_from(stream: *const c::Stream) -> Option<LlpStream> {
    // SAFETY: the caller's promise.
    let s = unsafe { grow::read(stream) };
    (s.socket >= 0).then_some(())?;
    // SAFETY: an open descriptor that the caller gives away.
    let socket = unsafe { OwnedFd::from_raw_fd(s.socket) };
    let local = match s.flags & codes::stream::LOCAL {
        0 => None,
        // SAFETY: the caller's promise: with the flag the others are given away, too.
        _ => Some(unsafe { local_from(&s) }?),
    };
    let some = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
    let params = StreamParams {
        role: codes::role(s.role)?,
        crc: s.flags & codes::stream::CRC != 0,
        markers_tx: s.flags & codes::stream::MARKERS_TX != 0,
        markers_rx: s.flags & codes::stream::MARKERS_RX != 0,
        ird: u16::try_from(s.ird).ok()?,
        ord: u16::try_from(s.ord).ok()?,
        rtr: if s.rtr == 0 { None } else { Some(codes::rtr(s.rtr)?) },
        fpdu: match s.fpdu_octets {
            0 => FpduSize::Emss,
            octets => FpduSize::Octets(u16::try_from(octets).ok()?),
        },
        extensions: s.flags & codes::stream::EXTENSIONS != 0,
        send_immediates: s.flags & codes::stream::SEND_IMMEDIATES != 0,
        kick_after: some(s.nudge_ns),
        probe_after: some(s.probe_ns),
        close_timeout: Duration::from_nanos(s.close_timeout_ns),
    };
    // SAFETY: the caller's promise.
    let received = unsafe { text::octets(s.received, s.received_len) };
    // SAFETY: the same.
    let last_message = unsafe { text::octets(s.last_message, s.last_message_len) };
    Some(LlpStream { socket, received, last_message, params, local })
}

/// The shared memory of a stream. Takes ownership of its descriptors in any case.
///
/// # Safety
///
/// Descriptors that are not negative are open, and the caller owns them.
unsafe fn local_from(s: &c::Stream) -> Option<LocalStream> {
    let taken = |fd: RawFd| {
        // SAFETY: the caller's promise.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let [memory, doorbell, peer_doorbell] = [s.memory, s.doorbell, s.peer_doorbell].map(taken);
    Some(LocalStream {
        memory: memory?,
        side: codes::side(s.side)?,
        doorbell: doorbell?,
        peer_doorbell: peer_doorbell?,
    })
}

macro_rules! same_fields {
    (info: $($info:ident)+; counters: $($counter:ident)+) => {
        pub(super) fn info_to(info: &QpInfo) -> c::QpInfo {
            let tcp = info.tcp.unwrap_or_default();
            c::QpInfo {
                id: info.id.0,
                state: codes::state_code(info.state),
                ird: info.ird.into(),
                ord: info.ord.into(),
                has_terminate: info.terminate.is_some().into(),
                terminate: info.terminate.map_or(c::Plain::zeroed(), events::terminate_to),
                local: net::address_to(info.local),
                remote: net::address_to(info.remote),
                tcp_mss: tcp.mss,
                tcp_congestion_window: tcp.congestion_window,
                tcp_retransmitted: tcp.retransmitted,
                tcp_rtt_ns: ns(tcp.rtt),
                tcp_rtt_variation_ns: ns(tcp.rtt_variation),
                tcp_unsent: tcp.unsent,
                tcp_busy_ns: ns(tcp.busy),
                tcp_rwnd_limited_ns: ns(tcp.rwnd_limited),
                tcp_sndbuf_limited_ns: ns(tcp.sndbuf_limited),
                tcp_delivery_rate: tcp.delivery_rate,
                tcp_min_rtt_ns: ns(tcp.min_rtt),
                carrier: codes::carrier_code(info.carrier),
                $($info: info.$info,)+
                $($counter: info.counters.$counter,)+
                ..c::QpInfo::blank()
            }
        }

        /// `None` for an unknown state.
        pub(super) fn info_from(info: &c::QpInfo) -> Option<QpInfo> {
            let small = |number: u32| number.min(u16::MAX.into()) as u16;
            Some(QpInfo {
                // Not in the C interface; asynchronous events report it.
                ended: None,
                round_trip: None,
                // A local stream does not cross, either. A carrier that this version does not know is another kind
                // of TCP.
                carrier: codes::carrier(info.carrier).unwrap_or_default(),
                id: QpId(info.id),
                state: codes::state(info.state)?,
                ird: small(info.ird),
                ord: small(info.ord),
                terminate: (info.has_terminate != 0)
                    .then(|| events::terminate_from(info.terminate)),
                local: net::address_from(&info.local),
                remote: net::address_from(&info.remote),
                tcp: (info.tcp_mss != 0).then(|| tcp_from(info)),
                counters: QpCounters { $($counter: info.$counter,)+ },
                $($info: info.$info,)+
            })
        }
    };
}

same_fields! {
    info: send_depth recv_depth sends_outstanding recvs_outstanding sends_lost recvs_lost recv_limit;
    counters: fpdus_sent fpdus_received octets_sent octets_received send_calls recv_calls
        send_stalls ord_stalls
}

fn tcp_from(info: &c::QpInfo) -> TcpInfo {
    TcpInfo {
        mss: info.tcp_mss,
        rtt: Duration::from_nanos(info.tcp_rtt_ns),
        rtt_variation: Duration::from_nanos(info.tcp_rtt_variation_ns),
        congestion_window: info.tcp_congestion_window,
        retransmitted: info.tcp_retransmitted,
        busy: Duration::from_nanos(info.tcp_busy_ns),
        rwnd_limited: Duration::from_nanos(info.tcp_rwnd_limited_ns),
        sndbuf_limited: Duration::from_nanos(info.tcp_sndbuf_limited_ns),
        delivery_rate: info.tcp_delivery_rate,
        min_rtt: Duration::from_nanos(info.tcp_min_rtt_ns),
        unsent: info.tcp_unsent,
    }
}
