//! The native connection model in wrappers: with the provider built in, and with the provider ABI
//! outside or inside of the wrapper (a layer that passes everything on).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vp_api::*;
use vp_hooks::{Wrapper, stack, stats};
use vp_verbs::{Libraries, Machine, Verbs};

use crate::forms::layer;

/// A wait that takes longer is a hang.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// Services that keep the log.
#[derive(Default, Debug)]
pub(crate) struct Host(Mutex<Vec<String>>);

impl Services for Host {
    fn log(&self, _: LogLevel, target: &str, message: &str) {
        self.0.lock().unwrap().push(format!("{target}: {message}"));
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

impl Host {
    pub(crate) fn logged(&self, parts: &[&str]) -> bool {
        let lines = self.0.lock().unwrap();
        lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

/// Two QPs on one device of the stand-in for rdma-core.
struct Pair {
    /// It closes with its last reference.
    _rnic: Arc<dyn Rnic>,
    cm: Arc<dyn NativeCm>,
    near: Arc<dyn Qp>,
    far: Arc<dyn Qp>,
    host: Arc<Host>,
}

impl Pair {
    fn new(wrappers: &[String]) -> Self {
        let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
        let libraries = Libraries { verbs: fake.clone(), rdmacm: fake };
        let verbs = Arc::new(Verbs::with(libraries, Machine::default()));
        let wrappers: Vec<Wrapper> = wrappers.iter().map(|text| text.parse().unwrap()).collect();
        let host = Arc::new(Host::default());
        let rnic = stack(verbs, &wrappers).open("fakeib0", host.clone()).unwrap();
        let pd = rnic.alloc_pd().unwrap();
        let cq = rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap();
        let qp = || rnic.create_qp(&QpInit::new(pd, cq.id(), cq.id())).unwrap();
        let (near, far) = (qp(), qp());
        Self { cm: rnic.native_cm().unwrap(), _rnic: rnic, near, far, host }
    }

    fn listen(&self) -> (u64, SocketAddr) {
        self.cm.listen((Ipv4Addr::LOCALHOST, 0).into(), 4).unwrap()
    }

    fn connect(&self, to: SocketAddr) -> VpResult<()> {
        self.cm.connect(self.near.id(), to, params(b"call"))
    }

    fn accept(&self, request: u64) -> VpResult<()> {
        self.cm.accept(request, self.far.id(), params(b"answer"))
    }

    /// The next event; how many polls brought none before it.
    fn next(&self) -> (NativeEvent, u32) {
        let mut polls = 0;
        loop {
            match self.cm.poll_event() {
                Some(event) => return (event, polls),
                None => polls += 1,
            }
            assert!(self.cm.wait_event(Some(HANG)).unwrap(), "no event");
        }
    }

    fn request(&self) -> u64 {
        match self.next().0 {
            NativeEvent::Request { request, params, .. } => {
                assert_eq!(params.private_data, b"call");
                request
            }
            other => panic!("{other:?}"),
        }
    }

    fn established(&self) {
        let mut open = vec![self.near.id(), self.far.id()];
        while !open.is_empty() {
            match self.next().0 {
                NativeEvent::Established { qp, .. } => open.retain(|id| *id != qp),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn params(data: &[u8]) -> NativeParams {
    NativeParams { private_data: data.to_vec(), ird: 2, ord: 2 }
}

/// Plays `play` with this wrapper alone, and with the ABI on either side of it.
fn in_every_place(test: &str, wrapper: &str, play: impl Fn(&Pair)) {
    play(&Pair::new(&[wrapper.to_owned()]));
    let Some(library) = layer(test) else {
        return warpline_skip::skip(test, warpline_skip::missing("gcc"));
    };
    let border = format!("layer:{}", library.display());
    play(&Pair::new(&[border.clone(), wrapper.to_owned()]));
    play(&Pair::new(&[wrapper.to_owned(), border]));
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

#[test]
fn a_refused_connect_leaves_the_qp_for_another() {
    in_every_place("native-connect", "fault:connect@1=InvalidAddress", |pair| {
        let (_, address) = pair.listen();
        let error = pair.connect(address).unwrap_err();
        assert_eq!(error.status, VpStatus::InvalidAddress);
        assert!(error.detail.contains("`connect@1=InvalidAddress`"), "{error}");
        assert_eq!(pair.near.query().unwrap().state, QpState::Idle);
        pair.connect(address).unwrap();
        let request = pair.request();
        pair.accept(request).unwrap();
        pair.established();
    });
}

#[test]
fn a_refused_accept_leaves_the_request() {
    in_every_place("native-accept", "fault:accept@1=InsufficientResources", |pair| {
        pair.connect(pair.listen().1).unwrap();
        let request = pair.request();
        let error = pair.accept(request).unwrap_err();
        assert_eq!(error.status, VpStatus::InsufficientResources);
        assert_eq!(pair.far.query().unwrap().state, QpState::Idle);
        pair.accept(request).unwrap();
        pair.established();
    });
}

#[test]
fn every_verb_of_the_manager_can_be_refused() {
    let rules = "fault:listen@1=Os;unlisten@1=InvalidHandle;reject@1=Defect;\
                 disconnect@1=InvalidState;wait_event@1=Interrupted";
    in_every_place("native-verbs", rules, |pair| {
        let refusal = |result: VpResult<()>| result.unwrap_err().status;
        let listen = pair.cm.listen((Ipv4Addr::LOCALHOST, 0).into(), 1).map(|_| ());
        assert_eq!(refusal(listen), VpStatus::Os);
        let (listener, address) = pair.listen();
        assert_eq!(refusal(pair.cm.unlisten(listener)), VpStatus::InvalidHandle);
        assert_eq!(refusal(pair.cm.reject(7, b"")), VpStatus::Defect);
        let waited = pair.cm.wait_event(Some(HANG)).map(|_| ());
        assert_eq!(refusal(waited), VpStatus::Interrupted);
        pair.connect(address).unwrap();
        pair.accept(pair.request()).unwrap();
        pair.established();
        assert_eq!(refusal(pair.cm.disconnect(pair.near.id())), VpStatus::InvalidState);
        assert_eq!(pair.near.query().unwrap().state, QpState::Rts);
        pair.cm.disconnect(pair.near.id()).unwrap();
    });
}

#[test]
fn late_events_come_in_order_and_wake_every_waiter() {
    in_every_place("native-late", "fault:delay-event@1=5;delay-event@3=2", |pair| {
        pair.connect(pair.listen().1).unwrap();
        let (event, polls) = pair.next();
        let NativeEvent::Request { request, .. } = event else { panic!("{event:?}") };
        assert!(polls >= 5, "{polls}");
        pair.accept(request).unwrap();
        pair.established();
        assert!(pair.host.logged(&["by `delay-event@3=2`", "Established"]));
    });
}

#[test]
fn lost_and_repeated_events() {
    in_every_place("native-lost", "fault:drop-event@2;duplicate-event@3", |pair| {
        pair.connect(pair.listen().1).unwrap();
        pair.accept(pair.request()).unwrap();
        // One end never gets its established event, the other gets two.
        let (first, second) = (pair.next().0, pair.next().0);
        assert!(matches!(first, NativeEvent::Established { .. }));
        assert_eq!(first, second);
        assert_eq!(pair.cm.poll_event(), None);
    });
}

#[test]
fn the_manager_is_traced() {
    in_every_place("native-trace", "trace", |pair| {
        let (listener, address) = pair.listen();
        pair.connect(address).unwrap();
        let request = pair.request();
        pair.cm.reject(request, b"no").unwrap();
        assert!(matches!(pair.next().0, NativeEvent::Rejected { .. }));
        pair.cm.unlisten(listener).unwrap();
        let port = address.port().to_string();
        for parts in [
            &["listen", "backlog 4"][..],
            &["connect", &port, "4 octets"],
            &["poll_event -> request", "4 octets"],
            &["reject", "2 octets of private data"],
            &["poll_event", "rejected, 2 octets"],
            &["unlisten"],
        ] {
            assert!(pair.host.logged(parts), "{parts:?}: {:#?}", pair.host.0.lock().unwrap());
        }
    });
}

#[test]
fn the_manager_is_counted() {
    in_every_place("native-stats", "stats:every=1", |pair| {
        pair.cm.reject(99, b"").unwrap_err();
        pair.connect(pair.listen().1).unwrap();
        pair.accept(pair.request()).unwrap();
        pair.established();
        let all = stats::snapshots();
        let of = |verb: &str| all.iter().filter_map(move |s| s.verb(verb)).collect::<Vec<_>>();
        // Books of RNICs of other tests may be there, too.
        let once = |verb: &str, refused| {
            of(verb).iter().any(|stats| (stats.calls, stats.refused) == (1, refused))
        };
        assert!(once("listen", 0) && once("connect", 0) && once("accept", 0), "{all:#?}");
        assert!(once("reject", 1), "{all:#?}");
    });
}
