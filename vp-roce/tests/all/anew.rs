//! Queue pairs that are reset and connected again while their last connection is still being ended.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use vp_api::*;

use crate::alone::alone;
use crate::end::{End, open};

/// Resets a queue pair and connects it again, in the notification of its flushed requests.
struct Again {
    cm: Arc<dyn NativeCm>,
    qp: OnceLock<Arc<dyn Qp>>,
    to: SocketAddr,
}

impl Again {
    fn connect(&self) {
        let params = NativeParams { private_data: Vec::new(), ird: 4, ord: 4 };
        self.cm.connect(self.qp.get().unwrap().id(), self.to, params).unwrap();
    }
}

impl CqHandler for Again {
    fn on_completion(&self, _: CqId) {
        self.qp.get().unwrap().modify(QpChange::Idle).unwrap();
        self.connect();
    }
}

#[test]
fn a_connection_is_not_disconnected_by_the_end_of_the_one_before() {
    alone("anew::a_connection_is_not_disconnected_by_the_end_of_the_one_before", || {
        let (far, rnic) = (End::new(4096), open());
        let (cm, to) = (rnic.native_cm().unwrap(), far.listen("127.0.0.1:0"));
        let again = Arc::new(Again { cm, qp: OnceLock::new(), to });
        let cq = rnic.create_cq(&CqInit { depth: 8, handler: Some(again.clone()) }).unwrap();
        let pd = rnic.alloc_pd().unwrap();
        let qp = rnic.create_qp(&QpInit::new(pd, cq.id(), cq.id())).unwrap();
        let qp = again.qp.get_or_init(|| qp);
        again.connect();
        far.accept();
        qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
        cq.arm(false).unwrap();
        qp.modify(QpChange::Error).unwrap();
        assert_eq!(far.event(), NativeEvent::Disconnected { qp: far.qp.id() });
        far.renewed().accept();
    });
}
