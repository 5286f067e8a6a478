//! Queue pairs that are reset and connected again while their last connection is still being ended.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use vp_api::*;
use warpline_patience::within;

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

/// Handles the end of a connection until it may return.
struct Slow {
    inside: mpsc::Sender<VpStatus>,
    may_return: Mutex<mpsc::Receiver<()>>,
    qp: OnceLock<Arc<dyn Qp>>,
}

impl AsyncHandler for Slow {
    fn on_event(&self, _: EventSource, _: AsyncEvent) {
        let refused = self.qp.get().unwrap().modify(QpChange::Idle).unwrap_err();
        self.inside.send(refused.status).unwrap();
        within("the handler to return", || self.may_return.lock().unwrap().recv()).unwrap();
    }
}

/// It waits while another thread tells the consumer of the end, and is refused in that handler.
#[test]
fn a_queue_pair_begins_anew_behind_the_event_of_its_end() {
    alone("anew::a_queue_pair_begins_anew_behind_the_event_of_its_end", || {
        let (far, near) = (End::new(4096), End::new(4096));
        let ((inside, told), (go, may_return)) = (mpsc::channel(), mpsc::channel());
        let slow = Slow { inside, may_return: Mutex::new(may_return), qp: OnceLock::new() };
        assert!(slow.qp.set(near.qp.clone()).is_ok());
        near.rnic().set_async_handler(Some(Arc::new(slow)));
        let to = far.listen("127.0.0.1:0");
        std::thread::scope(|scope| {
            scope.spawn(|| far.accept().unwrap());
            near.connect(to);
        });
        // The peer refuses it.
        let unknown = Remote { stag: Stag(0), to: 0 };
        near.post(1, SendOp::Write { remote: unknown }, near.sge(0, 8));
        assert_eq!(within("the event", || told.recv()), Ok(VpStatus::StillFlushing));
        std::thread::scope(|scope| {
            let anew = scope.spawn(|| near.qp.modify(QpChange::Idle));
            std::thread::yield_now();
            assert!(!anew.is_finished());
            go.send(()).unwrap();
            assert_eq!(anew.join().unwrap(), Ok(()));
        });
    });
}

/// A call that looks a queue pair up does not use it.
#[test]
fn a_queue_pair_is_destroyed_while_another_thread_looks_it_up() {
    alone("anew::a_queue_pair_is_destroyed_while_another_thread_looks_it_up", || {
        let rnic = open();
        let (cm, paths) = (rnic.native_cm().unwrap(), rnic.paths().unwrap());
        let pd = rnic.alloc_pd().unwrap();
        let cq = rnic.create_cq(&CqInit { depth: 8, handler: None }).unwrap();
        let (id, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let qp = QpId(id.load(Ordering::Acquire));
                    // It may be gone, and has no connection.
                    let _ = (cm.disconnect(qp), paths.number(qp));
                }
            });
            let destroyed: Vec<_> = (0..5000)
                .map(|_| {
                    let qp = rnic.create_qp(&QpInit::new(pd, cq.id(), cq.id())).unwrap().id();
                    id.store(qp.0, Ordering::Release);
                    std::thread::yield_now();
                    rnic.destroy_qp(qp)
                })
                .collect();
            is_over.store(true, Ordering::Release);
            assert_eq!(destroyed.into_iter().find(Result::is_err), None);
        });
    });
}
