//! The queue pair behind an identifier that has none of the application's: the connection manager connects queue
//! pairs, and the application wants its private data exchanged only. No work of the application uses it.
//!
//! Where the provider has InfiniBand's messages, they name the application's number, and the last one establishes
//! the end that accepted. On iWARP, whose start-up has two messages, a Send without octets has that meaning.
//!
//! Owned by the endpoint of one connection. If the peer dies, the connection manager reports the end.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use kal_os::lock;
use vp_api::{
    CmMessages, Cq, CqHandler, CqId, CqInit, Data, PdId, Qp, QpInit, RecvWr, SendFlags, SendOp,
    SendWr, Unready, WcOpcode, WcStatus, WorkCompletion,
};

use crate::adapter::Adapter;
use crate::caps;
use crate::errno::{EINVAL, Errno};

/// Entries of its completion queue: one for each of its two requests.
const DEPTH: u32 = 2;

/// A queue pair of the provider that stands for an exchange of messages.
pub(super) struct Carrier {
    adapter: Arc<Adapter>,
    messages: Option<Arc<dyn CmMessages>>,
    pd: PdId,
    cq: Arc<dyn Cq>,
    qp: Arc<dyn Qp>,
    signal: Arc<Signal>,
}

/// What an identifier implements for its carrier.
pub(super) trait Confirmed: Send + Sync {
    /// The peer's application has established the connection.
    fn on_confirmed(self: Arc<Self>);
}

/// Reports the peer's Send to the identifier.
struct Signal {
    id: Weak<dyn Confirmed>,
    cq: OnceLock<Weak<dyn Cq>>,
    /// The Send came.
    came: Mutex<bool>,
}

impl Signal {
    /// Whether the Send has come by now.
    fn has_come(&self) -> bool {
        let mut came = lock(&self.came);
        let mut found = [WorkCompletion::BLANK; DEPTH as usize];
        let cq = self.cq.get().and_then(Weak::upgrade);
        let count = cq.map_or(0, |cq| cq.poll(&mut found).unwrap_or(0));
        *came |= found[..count]
            .iter()
            .any(|one| one.opcode == WcOpcode::Recv && one.status == WcStatus::Success);
        *came
    }
}

impl CqHandler for Signal {
    fn on_completion(&self, _: CqId) {
        if let (true, Some(id)) = (self.has_come(), self.id.upgrade()) {
            id.on_confirmed();
        }
    }
}

impl Carrier {
    /// Makes one whose messages name `number`, if they can.
    ///
    /// # Errors
    /// Those of the provider's verbs.
    pub(super) fn new(
        id: Weak<dyn Confirmed>,
        adapter: &Arc<Adapter>,
        number: u32,
    ) -> Result<Self, Errno> {
        let rnic = adapter.rnic();
        let (cq, came) = (OnceLock::new(), Mutex::default());
        let signal = Arc::new(Signal { id, cq, came });
        let pd = rnic.alloc_pd()?;
        let handler: Arc<dyn CqHandler> = signal.clone();
        let cq = rnic.create_cq(&CqInit { depth: DEPTH, handler: Some(handler) });
        let cq = cq.inspect_err(|_| drop(rnic.dealloc_pd(pd)))?;
        // Always empty before.
        let _ = signal.cq.set(Arc::downgrade(&cq));
        let attrs = adapter.attrs();
        let init = QpInit {
            send_depth: 1,
            recv_depth: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            ird: caps::max_reads(attrs.max_ird) as u16,
            ord: caps::max_reads(attrs.max_ord) as u16,
            unready: Unready::Terminate,
            ..QpInit::new(pd, cq.id(), cq.id())
        };
        let qp = rnic.create_qp(&init).inspect_err(|_| {
            // Nothing uses them.
            let _ = rnic.destroy_cq(cq.id());
            let _ = rnic.dealloc_pd(pd);
        })?;
        let messages = rnic.cm_messages();
        let made = Self { adapter: adapter.clone(), messages, pd, cq, qp, signal };
        match &made.messages {
            Some(messages) => messages.carry(made.qp.id(), number)?,
            None => {
                made.qp.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }])?;
                made.cq.arm(false)?;
            }
        }
        Ok(made)
    }

    /// The provider's queue pair.
    pub(super) fn qp(&self) -> &Arc<dyn Qp> {
        &self.qp
    }

    /// Whether the end that accepted is told in another way than by the connection manager's event.
    pub(super) fn is_by_send(&self) -> bool {
        self.messages.is_none()
    }

    /// Whether the peer has established the connection, where that is by a Send.
    pub(super) fn is_confirmed(&self) -> bool {
        self.signal.has_come()
    }

    /// Establishes the connection at the end that accepted.
    ///
    /// # Errors
    /// EINVAL: it was established before, or is over.
    pub(super) fn establish(&self) -> Result<(), Errno> {
        if let Some(messages) = &self.messages {
            return messages.establish(self.qp.id()).map_err(|_| EINVAL);
        }
        let op = SendOp::Send { solicited: false, invalidate: None };
        let flags = SendFlags::empty();
        Ok(self.qp.post_send(&[SendWr { wr_id: 0, op, data: Data::Inline(&[]), flags }])?)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if !self.adapter.is_ours() {
            return;
        }
        let (rnic, qp) = (self.adapter.rnic(), self.qp.id());
        self.adapter.cm().forget(qp);
        // Nothing else refers to them.
        let _ = rnic.destroy_qp(qp);
        self.adapter.directory().remove_qp(qp);
        let _ = rnic.destroy_cq(self.cq.id());
        let _ = rnic.dealloc_pd(self.pd);
    }
}
