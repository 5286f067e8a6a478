//! Test values in which no two fields are equal, so that a mix-up is noticed.

use std::net::SocketAddr;
use std::time::Duration;

use crate::*;

pub(super) fn ports() -> Vec<PortInfo> {
    let addresses = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    let none = PortInfo { interface: "é0".into(), online: false, mtu: 0, addresses: vec![] };
    vec![PortInfo { interface: "eth0".into(), online: true, mtu: 1500, addresses }, none]
}

pub(super) fn devices() -> Vec<DeviceInfo> {
    let [first, second] = <[PortInfo; 2]>::try_from(ports()).unwrap();
    vec![
        DeviceInfo {
            name: "one".into(),
            transport: Transport::Iwarp,
            ports: vec![first, second.clone()],
        },
        DeviceInfo {
            name: "two".into(),
            transport: Transport::InfiniBand,
            ports: vec![second.clone()],
        },
        DeviceInfo { name: "three".into(), transport: Transport::Other, ports: vec![second] },
    ]
}

pub(super) fn attrs() -> RnicAttrs {
    let mut a = RnicAttrs::new("Vendor", "", ConnectionModel::Native);
    a.firmware = "1.2.3".into();
    a.capabilities = Capabilities::all();
    (a.max_qp, a.max_wr_per_qp, a.max_wr_per_srq, a.max_sge_send) = (1, 2, 3, 4);
    (a.max_sge_recv, a.max_sge_write, a.max_sge_read, a.max_inline) = (5, 6, 7, 8);
    (a.max_cq, a.max_cqe, a.max_srq, a.max_pd) = (9, 10, 11, 12);
    (a.max_mr, a.max_mr_octets, a.max_mw, a.max_message) = (13, 1 << 40, 14, u32::MAX);
    (a.max_ird, a.max_ord) = (15, 16);
    (a.max_private_connect, a.max_private_accept, a.max_private_reject) = (17, 18, 19);
    a
}

fn terminate(sent: bool) -> Terminate {
    Terminate::new(sent, 1, 2, 5)
}

pub(super) fn events() -> Vec<(EventSource, AsyncEvent)> {
    let qp = EventSource::Qp(QpId(1));
    vec![
        (qp, AsyncEvent::Established),
        (qp, AsyncEvent::CloseComplete),
        (qp, AsyncEvent::TerminateReceived(terminate(false))),
        (qp, AsyncEvent::TerminateSent(terminate(true))),
        (qp, AsyncEvent::ConnectionReset),
        (qp, AsyncEvent::ConnectionLost),
        (qp, AsyncEvent::BadClose),
        (qp, AsyncEvent::RecvLimit),
        (EventSource::Cq(CqId(2)), AsyncEvent::CqOverrun),
        (EventSource::Srq(SrqId(3)), AsyncEvent::SrqLimit),
        (EventSource::Port(4), AsyncEvent::PortState { online: true }),
        (EventSource::Port(5), AsyncEvent::PortState { online: false }),
        (EventSource::Rnic, AsyncEvent::Catastrophic),
    ]
}

pub(super) fn mr_info() -> MrInfo {
    MrInfo {
        stag: Stag::new(0x1234, 0x5a),
        pd: PdId(11),
        valid: true,
        shared: true,
        addr: 1 << 40,
        len: 1 << 33,
        addressing: Addressing::Based(u64::MAX - 7),
        access: Access::all(),
        bound_windows: 4,
    }
}

/// Bound, except window 1, which is unbound.
pub(super) fn mw_info(id: MwId) -> MwInfo {
    let bound = id != MwId(1);
    MwInfo {
        id,
        kind: MwKind::Narrow,
        pd: PdId(11),
        stag: bound.then_some(Stag::new(0x77, 3)),
        access: if bound { Access::REMOTE_READ } else { Access::empty() },
        region: bound.then_some(Stag::new(0x1234, 0x5a)),
        to: u64::from(bound) << 41,
        len: u64::from(bound) * 5,
        addressing: Addressing::Based(1 << 63),
    }
}

pub(super) fn completions() -> Vec<WorkCompletion> {
    const OPCODES: [WcOpcode; 11] = [
        WcOpcode::Send,
        WcOpcode::Write,
        WcOpcode::Read,
        WcOpcode::BindMw,
        WcOpcode::FastRegister,
        WcOpcode::InvalidateLocal,
        WcOpcode::Recv,
        WcOpcode::Atomic,
        WcOpcode::Immediate,
        WcOpcode::WriteImmediate,
        WcOpcode::RecvImmediate,
    ];
    let one = |(n, opcode): (usize, WcOpcode)| WorkCompletion {
        wr_id: u64::MAX - n as u64,
        qp: QpId(n as u32),
        opcode,
        status: if n % 2 == 0 { WcStatus::Success } else { WcStatus::Flushed },
        solicited: n % 3 == 0,
        octets: 1000 + n as u32,
        invalidated: (n % 4 == 0).then_some(Stag(n as u32)),
        immediate: (n % 5 == 0).then_some(1 << 60 | n as u64),
    };
    OPCODES.into_iter().enumerate().map(one).collect()
}

pub(super) fn srq_info() -> SrqInfo {
    SrqInfo { pd: PdId(11), depth: 1, max_sge: 2, limit: 3, posted: 4 }
}

pub(super) fn qp_info() -> QpInfo {
    let mut info = QpInfo::new(QpId(13));
    info.state = QpState::Terminate;
    (info.send_depth, info.recv_depth) = (1, 2);
    (info.sends_outstanding, info.recvs_outstanding) = (3, 4);
    (info.sends_lost, info.recvs_lost, info.recv_limit) = (5, 6, 7);
    (info.ird, info.ord) = (8, 9);
    info.terminate = Some(terminate(true));
    info.local = Some("192.0.2.1:1".parse().unwrap());
    info.remote = Some("[2001:db8::1%3]:2".parse().unwrap());
    info.tcp = Some(TcpInfo {
        mss: 1460,
        rtt: Duration::from_nanos(10),
        rtt_variation: Duration::from_nanos(11),
        congestion_window: 12,
        retransmitted: 13,
        busy: Duration::from_nanos(24),
        rwnd_limited: Duration::from_nanos(25),
        sndbuf_limited: Duration::from_nanos(26),
        delivery_rate: 27,
        min_rtt: Duration::from_nanos(29),
        unsent: 28,
    });
    info.carrier = Carrier::Local;
    info.counters = QpCounters {
        fpdus_sent: 14,
        fpdus_received: 15,
        octets_sent: 16,
        octets_received: 17,
        send_calls: 18,
        recv_calls: 19,
        send_stalls: 20,
        ord_stalls: 21,
    };
    info
}

pub(super) fn params(private_data: &[u8]) -> NativeParams {
    NativeParams { private_data: private_data.into(), ird: 3, ord: 4 }
}

pub(super) fn native_events() -> Vec<NativeEvent> {
    let (qp, peer): (QpId, SocketAddr) = (QpId(13), "[2001:db8::2]:7".parse().unwrap());
    let (listener, request) = (1 << 40, 1 << 41);
    let local = "[fe80::1%5]:8".parse().unwrap();
    vec![
        NativeEvent::Request {
            listener,
            request,
            peer,
            local: Some(local),
            params: params(&[0, 1, 0]),
        },
        NativeEvent::Request { listener, request, peer, local: None, params: params(&[]) },
        NativeEvent::Established { qp, local: Some(local), params: params(b"") },
        NativeEvent::Established { qp, local: None, params: params(b"") },
        NativeEvent::Rejected { qp, private_data: b"no".into() },
        NativeEvent::Failed { qp, reason: "no listener".into() },
        NativeEvent::Disconnected { qp },
    ]
}
