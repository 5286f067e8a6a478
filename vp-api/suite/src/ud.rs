//! Ends for datagrams, and their services. All waits are bounded.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::fail::{Fail, same};
use crate::rig::{Memory, Rig};

/// The datagrams of a device, with the events of its services.
pub(crate) struct Post<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) ud: Arc<dyn Datagrams>,
    recorder: Arc<Recorder>,
}

/// The handler of events.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<VecDeque<ServiceEvent>>,
    bell: Condvar,
}

impl ServiceHandler for Recorder {
    fn on_service(&self, event: ServiceEvent) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
        self.bell.notify_all();
    }
}

/// The reply of a service.
pub(crate) struct Answer {
    pub(crate) address: UdAddress,
    pub(crate) path: DatagramPath,
    pub(crate) private_data: Vec<u8>,
}

/// A request that arrived.
pub(crate) struct Asked {
    pub(crate) request: u64,
    pub(crate) private_data: Vec<u8>,
}

impl<'a> Post<'a> {
    pub(crate) fn open(rig: &'a Rig) -> Result<Self, Fail> {
        let none = "the capability is there, and there are no datagrams";
        let ud = rig.rnic.datagrams().ok_or(none)?;
        let recorder = Arc::new(Recorder::default());
        ud.set_service_handler(Some(recorder.clone()));
        Ok(Self { rig, ud, recorder })
    }

    /// Number of uses of its handler, including this one.
    pub(crate) fn uses(&self) -> usize {
        Arc::strong_count(&self.recorder)
    }

    /// Its handler alone.
    pub(crate) fn into_recorder(self) -> Arc<Recorder> {
        self.recorder
    }

    pub(crate) fn init(&self, pd: PdId, cq: CqId) -> UdQpInit {
        let limits = &self.rig.attrs;
        let mut init = UdQpInit::new(pd, cq, cq);
        init.send_depth = init.send_depth.min(limits.max_wr_per_qp);
        init.recv_depth = init.recv_depth.min(limits.max_wr_per_qp);
        init.max_send_sge = init.max_send_sge.min(limits.max_sge_send);
        init.max_recv_sge = init.max_recv_sge.min(limits.max_sge_recv);
        init.port = self.port();
        init
    }

    /// The port at which services are requested.
    fn port(&self) -> u32 {
        let address = self.rig.address();
        let ports = self.rig.rnic.ports().unwrap_or_default();
        ports.iter().position(|port| port.addresses.contains(&address)).unwrap_or(0) as u32
    }

    pub(crate) fn end(&self) -> Result<UdEnd<'_>, Fail> {
        self.end_with(None, |_| {})
    }

    pub(crate) fn end_with(
        &self,
        handler: Option<Arc<dyn CqHandler>>,
        wish: impl FnOnce(&mut UdQpInit),
    ) -> Result<UdEnd<'_>, Fail> {
        let rnic = &self.rig.rnic;
        let pd = rnic.alloc_pd()?;
        let cq = rnic.create_cq(&CqInit { depth: self.rig.attrs.max_cqe.min(512), handler })?;
        let mut init = self.init(pd, cq.id());
        wish(&mut init);
        Ok(UdEnd { post: self, pd, cq, qp: self.ud.create_qp(&init)? })
    }

    pub(crate) fn event(&self) -> Result<ServiceEvent, Fail> {
        let mut events = self.recorder.events.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = Instant::now();
        loop {
            if let Some(event) = events.pop_front() {
                return Ok(event);
            }
            let wait = self.rig.wait;
            if begin.elapsed() > wait {
                return Err(format!("no event of a service within {wait:?}").into());
            }
            let waited = self.recorder.bell.wait_timeout(events, wait);
            events = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn listen(&self, token: u64) -> Result<SocketAddr, Fail> {
        let address = self.ud.listen(token, SocketAddr::new(self.rig.address(), 0), 4)?;
        match address.port() {
            0 => Err("the service's real port is 0".into()),
            _ => Ok(address),
        }
    }

    /// Sends a request to the service with token 1, and waits until it arrives there.
    pub(crate) fn request(&self, token: u64, at: SocketAddr, data: &[u8]) -> Result<Asked, Fail> {
        self.ud.resolve(token, at, data)?;
        match self.event()? {
            ServiceEvent::Request { listener, request, peer, private_data, .. } => {
                same("service of the request", listener, 1)?;
                same("asker", peer.ip(), self.rig.address())?;
                Ok(Asked { request, private_data })
            }
            other => Err(format!("{other:?} where a request is expected").into()),
        }
    }

    pub(crate) fn wait_reply(&self, expected: u64) -> Result<Answer, Fail> {
        match self.event()? {
            ServiceEvent::Resolved { token, address, path, private_data } => {
                same("token of the reply", token, expected)?;
                Ok(Answer { address, path, private_data })
            }
            other => Err(format!("{other:?} where a reply is expected").into()),
        }
    }

    /// An address handle for `from`, and the address of `to`, found through a service.
    pub(crate) fn way(&self, from: &UdEnd<'_>, to: &UdEnd<'_>) -> Result<Way, Fail> {
        let at = self.listen(1)?;
        let asked = self.request(2, at, b"where")?;
        self.ud.accept(asked.request, to.qp.address(), b"here")?;
        let answer = self.wait_reply(2)?;
        self.ud.unlisten(1)?;
        same("address", answer.address, to.qp.address())?;
        Ok(Way { ah: self.ud.create_ah(from.pd, &answer.path)?, to: answer.address })
    }
}

/// The destination of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) ah: AhId,
    pub(crate) to: UdAddress,
}

impl Way {
    /// A signaled send.
    pub(crate) fn send<'b>(&self, wr_id: u64, sgl: &'b [Sge]) -> UdSendWr<'b> {
        UdSendWr {
            wr_id,
            data: Data::Sgl(sgl),
            flags: SendFlags::SIGNALED,
            solicited: false,
            immediate: None,
            ah: self.ah,
            to: self.to,
        }
    }
}

/// A queue pair for datagrams with its CQ and PD.
pub(crate) struct UdEnd<'a> {
    pub(crate) post: &'a Post<'a>,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<dyn Cq>,
    pub(crate) qp: Arc<dyn UdQp>,
}

impl UdEnd<'_> {
    pub(crate) fn memory(&self, len: usize) -> Result<Memory, Fail> {
        self.post.rig.memory(self.pd, len, Access::LOCAL, Addressing::Absolute)
    }

    pub(crate) fn recv(&self, wr_id: u64, sgl: &[Sge]) -> Result<(), Fail> {
        Ok(self.qp.post_recv(&[RecvWr { wr_id, sgl }])?)
    }

    /// The next completion, and its source.
    pub(crate) fn completion(&self) -> Result<(WorkCompletion, Option<DatagramSource>), Fail> {
        let begin = Instant::now();
        let (mut out, mut from) = ([WorkCompletion::BLANK], [None]);
        while self.cq.poll_from(&mut out, &mut from)? == 0 {
            let wait = self.post.rig.wait;
            if begin.elapsed() > wait {
                return Err(format!("no completion within {wait:?}").into());
            }
            self.cq.wait(Duration::ZERO, Some(wait))?;
        }
        Ok((out[0], from[0]))
    }

    /// The completion of a send, which must be a success.
    pub(crate) fn sent(&self, wr_id: u64, opcode: WcOpcode) -> Result<(), Fail> {
        let (wc, from) = self.completion()?;
        let found = (wc.wr_id, wc.opcode, wc.status, wc.qp);
        same("completion", found, (wr_id, opcode, WcStatus::Success, self.qp.id()))?;
        same("source of a send", from, None)
    }

    /// The completion of a receive, which must be a success with this many octets of message.
    pub(crate) fn received(
        &self,
        wr_id: u64,
        len: usize,
    ) -> Result<(WorkCompletion, DatagramSource), Fail> {
        let (wc, from) = self.completion()?;
        let found = (wc.wr_id, wc.opcode, wc.status, wc.qp);
        same("completion", found, (wr_id, WcOpcode::Recv, WcStatus::Success, self.qp.id()))?;
        same("octets", wc.octets as usize, GRH_OCTETS + len)?;
        Ok((wc, from.ok_or("a received datagram has no source")?))
    }
}
