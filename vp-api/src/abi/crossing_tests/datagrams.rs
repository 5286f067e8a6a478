//! Tests that datagrams cross the C interface: a provider that returns its arguments, and the expected results.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::echo::Log;
use super::{Side, recvs, samples, sges};
use crate::*;

/// The datagrams of the echo.
pub(super) fn echo(log: &Log) -> Arc<dyn Datagrams> {
    Arc::new(Ud { log: log.clone(), attrs: attrs(), handler: Mutex::default() })
}

fn attrs() -> DatagramAttrs {
    DatagramAttrs {
        max_ah: 1,
        max_private_request: 5,
        max_private_reply: 3,
        usual_qkey: 4,
        max_groups: 0,
        max_members: 0,
    }
}

fn path() -> DatagramPath {
    DatagramPath {
        port: 1,
        local_gid: [2; 16],
        remote_gid: [3; 16],
        local_lid: 4,
        remote_lid: 5,
        partition_key: 6,
        mtu_code: 7,
        rate: 8,
        packet_lifetime: 9,
        service_level: 10,
        subnet_local: true,
        flow_label: 11,
        traffic_class: 12,
        hop_limit: 13,
    }
}

/// The source of a completion that has this many from itself on.
pub(super) fn source(left: usize) -> Option<DatagramSource> {
    let path = left.is_multiple_of(2).then(path);
    let grh = left.is_multiple_of(4);
    (!left.is_multiple_of(3)).then_some(DatagramSource { qpn: 100 + left as u32, grh, path })
}

const ADDRESS: UdAddress = UdAddress { qpn: 0x77, qkey: 0x88 };

fn info(state: UdState) -> UdQpInfo {
    UdQpInfo {
        id: QpId(14),
        state,
        address: ADDRESS,
        port: 1,
        send_depth: 2,
        recv_depth: 3,
        sends_outstanding: 4,
        recvs_outstanding: 5,
    }
}

fn peer() -> SocketAddr {
    "[2001:db8::2]:7".parse().unwrap()
}

fn events() -> Vec<ServiceEvent> {
    let (token, private_data) = (1 << 40, vec![1, 0, 2]);
    let request = ServiceEvent::Request {
        listener: token,
        request: 1 << 41,
        peer: peer(),
        port: 3,
        private_data: private_data.clone(),
    };
    let (address, path) = (ADDRESS, path());
    let resolved =
        ServiceEvent::Resolved { token, address, path, private_data: private_data.clone() };
    let failed = ServiceEvent::Failed { token, reason: "no reply".into() };
    use ServiceRefusal::*;
    let refused = [NotSupported, Rejected, NoQueuePair, Redirected]
        .map(|why| ServiceEvent::Refused { token, why, private_data: private_data.clone() });
    [request, resolved, failed].into_iter().chain(refused).collect()
}

struct Ud {
    log: Log,
    attrs: DatagramAttrs,
    handler: Mutex<Option<Arc<dyn ServiceHandler>>>,
}

impl Datagrams for Ud {
    fn attrs(&self) -> &DatagramAttrs {
        &self.attrs
    }
    fn max_payload(&self, port: u32) -> VpResult<u32> {
        Ok(1000 + port)
    }
    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn crate::UdQp>> {
        self.log.record("create_qp", init);
        Ok(Arc::new(UdQp { log: self.log.clone(), state: Mutex::new(UdState::Operational) }))
    }
    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.log.record("destroy_qp", &qp);
        Ok(())
    }
    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId> {
        self.log.record("create_ah", &(pd, path));
        Ok(AhId(15))
    }
    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo> {
        self.log.record("query_ah", &ah);
        Ok(AhInfo { pd: PdId(11), path: path() })
    }
    fn destroy_ah(&self, ah: AhId) -> VpResult<()> {
        self.log.record("destroy_ah", &ah);
        Err(VpError::new(VpStatus::InvalidHandle, "it is gone"))
    }
    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        if let Some(handler) = &handler {
            events().into_iter().for_each(|event| handler.on_service(event));
        }
        *self.handler.lock().unwrap() = handler;
    }
    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr> {
        self.log.record("listen", &(token, address, backlog));
        Ok(SocketAddr::new(address.ip(), 4791))
    }
    fn unlisten(&self, token: u64) -> VpResult<()> {
        self.log.record("unlisten", &token);
        Ok(())
    }
    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()> {
        self.log.record("resolve", &(token, peer, private_data));
        Ok(())
    }
    fn cancel(&self, token: u64) -> VpResult<()> {
        self.log.record("cancel", &token);
        Ok(())
    }
    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()> {
        self.log.record("accept", &(request, answer, private_data));
        Ok(())
    }
    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()> {
        self.log.record("reject", &(request, why, private_data));
        Ok(())
    }
}

struct UdQp {
    log: Log,
    state: Mutex<UdState>,
}

impl crate::UdQp for UdQp {
    fn id(&self) -> QpId {
        QpId(14)
    }
    fn address(&self) -> UdAddress {
        ADDRESS
    }
    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        wrs.iter().for_each(|wr| self.log.record("post_send", wr));
        match wrs.iter().position(|wr| wr.wr_id == u64::MAX) {
            Some(posted) => Err(PostFailure { posted, status: VpStatus::InvalidSgl }),
            None => Ok(()),
        }
    }
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        wrs.iter().for_each(|wr| self.log.record("post_recv", wr));
        Ok(())
    }
    fn modify(&self, to: UdState) -> VpResult<()> {
        *self.state.lock().unwrap() = to;
        Ok(())
    }
    fn set_qkey(&self, qkey: u32) -> VpResult<()> {
        self.log.record("set_qkey", &qkey);
        Ok(())
    }
    fn reset(&self) -> VpResult<()> {
        *self.state.lock().unwrap() = UdState::Operational;
        Ok(())
    }
    fn query(&self) -> VpResult<UdQpInfo> {
        Ok(info(*self.state.lock().unwrap()))
    }
}

#[test]
fn verbs_of_datagrams_cross() {
    let side = Side::new();
    let ud = side.rnic.datagrams().unwrap();
    assert_eq!(*ud.attrs(), attrs());
    assert_eq!(ud.max_payload(5).unwrap(), 1005);
    assert_eq!(ud.create_ah(PdId(11), &path()).unwrap(), AhId(15));
    side.logged(&format!("create_ah {:?}", (PdId(11), path())));
    assert_eq!(ud.query_ah(AhId(15)).unwrap(), AhInfo { pd: PdId(11), path: path() });
    side.logged("query_ah AhId(15)");
    let gone = VpError::new(VpStatus::InvalidHandle, "it is gone");
    assert_eq!(ud.destroy_ah(AhId(15)).unwrap_err(), gone);
    side.logged("destroy_ah AhId(15)");
    let address = "192.0.2.1:0".parse().unwrap();
    assert_eq!(ud.listen(7, address, 5).unwrap(), "192.0.2.1:4791".parse().unwrap());
    side.logged(&format!("listen {:?}", (7, address, 5)));
    ud.unlisten(7).unwrap();
    side.logged("unlisten 7");
    ud.resolve(8, peer(), b"who").unwrap();
    side.logged(&format!("resolve {:?}", (8, peer(), b"who")));
    ud.cancel(8).unwrap();
    side.logged("cancel 8");
    ud.accept(9, ADDRESS, b"").unwrap();
    side.logged(&format!("accept {:?}", (9, ADDRESS, b"")));
    ud.reject(9, ServiceRefusal::NoQueuePair, b"no").unwrap();
    side.logged(&format!("reject {:?}", (9, ServiceRefusal::NoQueuePair, b"no")));
}

#[derive(Default)]
struct Ears(Mutex<Vec<ServiceEvent>>);

impl ServiceHandler for Ears {
    fn on_service(&self, event: ServiceEvent) {
        self.0.lock().unwrap().push(event);
    }
}

#[test]
fn events_of_services_cross_and_handlers_are_released() {
    let side = Side::new();
    let (ud, ears) = (side.rnic.datagrams().unwrap(), Arc::new(Ears::default()));
    ud.set_service_handler(Some(ears.clone()));
    assert_eq!(*ears.0.lock().unwrap(), events());
    assert_eq!(Arc::strong_count(&ears), 2);
    ud.set_service_handler(None);
    assert_eq!(Arc::strong_count(&ears), 1);
}

#[test]
fn queue_pairs_for_datagrams_cross() {
    let side = Side::new();
    let ud = side.rnic.datagrams().unwrap();
    let init = UdQpInit { port: 2, ..UdQpInit::new(PdId(11), CqId(9), CqId(8)) };
    let keyed = UdQpInit { qkey: Some(0), ..init.clone() };
    ud.create_qp(&keyed).unwrap();
    side.logged(&format!("create_qp {keyed:?}"));
    let qp = ud.create_qp(&init).unwrap();
    side.logged(&format!("create_qp {init:?}"));
    assert_eq!((qp.id(), qp.address()), (QpId(14), ADDRESS));
    for state in [UdState::Error, UdState::Operational] {
        qp.modify(state).unwrap();
        assert_eq!(qp.query().unwrap(), info(state));
    }
    qp.modify(UdState::Error).unwrap();
    qp.reset().unwrap();
    assert_eq!(qp.query().unwrap(), info(UdState::Operational));
    qp.set_qkey(0x8765_4321).unwrap();
    side.logged("set_qkey 2271560481");
    ud.destroy_qp(QpId(14)).unwrap();
    side.logged("destroy_qp QpId(14)");
    let (sges, octets) = (sges(), *b"octets that go inline");
    let mut wrs: Vec<_> = (0..20)
        .map(|n| UdSendWr {
            wr_id: n as u64,
            data: if n % 3 == 0 { Data::Inline(&octets[..n]) } else { Data::Sgl(&sges[..n % 6]) },
            flags: if n % 2 == 0 { SendFlags::SIGNALED } else { SendFlags::empty() },
            solicited: n % 5 == 0,
            immediate: (n % 4 == 0).then_some(n as u32),
            ah: AhId(n as u32),
            to: UdAddress { qpn: 50 + n as u32, qkey: 70 + n as u32 },
        })
        .collect();
    for count in [0, 1, wrs.len()] {
        qp.post_send(&wrs[..count]).unwrap();
        wrs[..count].iter().for_each(|wr| side.logged(&format!("post_send {wr:?}")));
    }
    wrs[11].wr_id = u64::MAX;
    let refused = qp.post_send(&wrs).unwrap_err();
    assert_eq!(refused, PostFailure { posted: 11, status: VpStatus::InvalidSgl });
    side.host.0.lock().unwrap().clear();
    qp.post_recv(&recvs(&sges)).unwrap();
    recvs(&sges).iter().for_each(|wr| side.logged(&format!("post_recv {wr:?}")));
}

#[test]
fn sources_cross_with_their_completions() {
    let side = Side::new();
    let all = samples::completions();
    for room in [0, 1, all.len(), all.len() + 70] {
        let cq = side.rnic.create_cq(&CqInit { depth: 7, handler: None }).unwrap();
        let mut out = vec![WorkCompletion::BLANK; room];
        let mut from = vec![None; room];
        let count = cq.poll_from(&mut out, &mut from).unwrap();
        assert_eq!(out[..count], all[..room.min(all.len())]);
        for (n, from) in from.iter().enumerate().take(count) {
            assert_eq!(*from, source(all.len() - n));
        }
    }
}
