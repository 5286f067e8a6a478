//! Datagrams in wrappers: with the provider built in, and with the provider ABI outside or inside of
//! the wrapper (a layer that passes everything on).

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use kal_shim::Region;
use vp_api::*;
use vp_hooks::{Wrapper, stack, stats};
use vp_verbs::{Libraries, Machine, Verbs};

use crate::forms::layer;
use crate::native::{HANG, Host};

/// Passes events on.
struct Ears(Mutex<Sender<ServiceEvent>>);

impl ServiceHandler for Ears {
    fn on_service(&self, event: ServiceEvent) {
        // The receiver is gone once the test is over.
        let _ = self.0.lock().unwrap().send(event);
    }
}

/// A queue pair for datagrams on a device of the stand-in for rdma-core, and the way to itself.
struct Post {
    /// It closes with its last reference.
    _rnic: Arc<dyn Rnic>,
    ud: Arc<dyn Datagrams>,
    events: Receiver<ServiceEvent>,
    pd: PdId,
    cq: Arc<dyn Cq>,
    qp: Arc<dyn UdQp>,
    path: DatagramPath,
    /// Room for a header.
    room: Sge,
    _region: Region,
    host: Arc<Host>,
}

impl Post {
    fn new(wrappers: &[String]) -> Self {
        let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
        let libraries = Libraries { verbs: fake.clone(), rdmacm: fake };
        let verbs = Arc::new(Verbs::with(libraries, Machine::default()));
        let wrappers: Vec<Wrapper> = wrappers.iter().map(|text| text.parse().unwrap()).collect();
        let host = Arc::new(Host::default());
        let rnic = stack(verbs, &wrappers).open("fakeib0", host.clone()).unwrap();
        let (pd, ud) = (rnic.alloc_pd().unwrap(), rnic.datagrams().unwrap());
        let cq = rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap();
        let qp = ud.create_qp(&UdQpInit::new(pd, cq.id(), cq.id())).unwrap();
        let (to, events) = channel();
        ud.set_service_handler(Some(Arc::new(Ears(Mutex::new(to)))));
        let mut path = DatagramPath::default();
        path.remote_gid[10..].copy_from_slice(&[255, 255, 127, 0, 0, 1]);
        let region = Region::new(GRH_OCTETS).unwrap();
        let (range, addressing) = (region.mem_range(), Addressing::Absolute);
        let init = MrInit { pd, range, addressing, access: Access::LOCAL, key: 0, pin: false };
        let stag = rnic.register_mr(&init).unwrap();
        let room = Sge { stag, len: GRH_OCTETS as u32, to: region.addr() };
        Self { _rnic: rnic, ud, events, pd, cq, qp, path, room, _region: region, host }
    }

    fn ah(&self) -> VpResult<AhId> {
        self.ud.create_ah(self.pd, &self.path)
    }

    /// Asks itself.
    fn request(&self) -> VpResult<u64> {
        let at = self.ud.listen(1, (Ipv4Addr::LOCALHOST, 0).into(), 4)?;
        self.ud.resolve(2, at, b"secret")?;
        match self.event() {
            ServiceEvent::Request { request, .. } => Ok(request),
            other => panic!("{other:?}"),
        }
    }

    fn event(&self) -> ServiceEvent {
        self.events.recv_timeout(HANG).unwrap()
    }

    /// Sends itself a message of no octets.
    fn send(&self, ah: AhId) -> Result<(), PostFailure> {
        let (data, flags) = (Data::Sgl(&[]), SendFlags::SIGNALED);
        let (solicited, immediate, to) = (true, None, self.qp.address());
        self.qp.post_send(&[UdSendWr { wr_id: 5, data, flags, solicited, immediate, ah, to }])
    }

    /// The senders of the completions of one poll; 0: none.
    fn polled(&self) -> Vec<u32> {
        let (mut out, mut from) = ([WorkCompletion::BLANK; 8], [None; 8]);
        let count = self.cq.poll_from(&mut out, &mut from).unwrap();
        from.iter().take(count).map(|from| from.map_or(0, |from| from.qpn)).collect()
    }

    fn logged(&self, parts: &[&str]) {
        assert!(self.host.logged(parts), "{parts:?}: {:#?}", self.host);
    }
}

/// Plays `play` with this wrapper alone, and with the ABI on either side of it.
fn in_every_place(test: &str, wrapper: &str, play: impl Fn(&Post)) {
    play(&Post::new(&[wrapper.to_owned()]));
    let Some(library) = layer(test) else {
        return warpline_skip::skip(test, warpline_skip::missing("gcc"));
    };
    let border = format!("layer:{}", library.display());
    play(&Post::new(&[border.clone(), wrapper.to_owned()]));
    play(&Post::new(&[wrapper.to_owned(), border]));
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

#[test]
fn verbs_and_events_are_traced() {
    in_every_place("datagrams-trace", "trace", |post| {
        let ah = post.ah().unwrap();
        post.send(ah).unwrap();
        let request = post.request().unwrap();
        post.ud.accept(request, post.qp.address(), b"secret").unwrap();
        assert!(matches!(post.event(), ServiceEvent::Resolved { .. }));
        post.ud.destroy_ah(ah).unwrap();
        let qpn = format!("qpn {:#x}", post.qp.address().qpn);
        for parts in [
            &["ud: create_qp", "-> qp"][..],
            &["ud: create_ah", "-> ah"],
            &["post_send", "by ah", "solicited"],
            &["listen_service", "backlog 4 token 1"],
            &["resolve_service", "token 2, 6 octets of private data"],
            &["ud: event: request", "at token 1 from 127.0.0.1", "octets of private data"],
            &["accept_service", "6 octets of private data"],
            &["ud: event: token 2 resolved", &qpn],
            &["destroy_ah"],
        ] {
            post.logged(parts);
        }
        assert!(!post.host.logged(&["secret"]));
    });
}

#[test]
fn verbs_are_counted() {
    in_every_place("datagrams-stats", "stats:every=1", |post| {
        let ah = post.ah().unwrap();
        post.send(ah).unwrap();
        post.send(ah).unwrap();
        post.ud.cancel(99).unwrap_err();
        let all = stats::snapshots();
        let counted = |verb: &str, calls, refused| {
            let mut of_verb = all.iter().filter_map(|s| s.verb(verb));
            let found = of_verb.any(|stats| (stats.calls, stats.refused) == (calls, refused));
            assert!(found, "{verb}: {all:#?}");
        };
        counted("create_ah", 1, 0);
        counted("post_send", 2, 0);
        counted("cancel_service", 1, 1);
    });
}

#[test]
fn any_verb_can_be_refused() {
    let rules = "fault:create_qp@2=InUse;create_ah@2=InvalidAddress;post_send@2=QueueFull;\
                 resolve_service@1=Os;listen_service@2=InvalidAddress;max_ah=1";
    in_every_place("datagrams-fault", rules, |post| {
        assert_eq!(post.ud.attrs().max_ah, 1);
        let ah = post.ah().unwrap();
        assert_eq!(post.ah().unwrap_err().status, VpStatus::InvalidAddress);
        assert_eq!(post.ah().unwrap_err().status, VpStatus::InsufficientResources);
        post.send(ah).unwrap();
        assert_eq!(post.send(ah).unwrap_err().status, VpStatus::TooManyWrs);
        let init = UdQpInit::new(post.pd, post.cq.id(), post.cq.id());
        assert_eq!(post.ud.create_qp(&init).err().unwrap().status, VpStatus::InUse);
        assert_eq!(post.request().unwrap_err().status, VpStatus::Os);
        assert_eq!(post.request().unwrap_err().status, VpStatus::InvalidAddress);
        post.ud.destroy_ah(ah).unwrap();
        post.ah().unwrap();
    });
}

#[test]
fn late_and_repeated_completions_keep_their_sources() {
    // The first is of a send, the second of a receive.
    let rules = "fault:delay-completion@2=3;duplicate-completion@4";
    in_every_place("datagrams-late", rules, |post| {
        let (ah, own) = (post.ah().unwrap(), post.qp.address().qpn);
        for _ in 0..2 {
            post.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[post.room] }]).unwrap();
        }
        post.send(ah).unwrap();
        let first: Vec<_> = (0..2).flat_map(|_| post.polled()).collect();
        assert_eq!(first.len(), 1);
        let rest: Vec<_> = (0..4).flat_map(|_| post.polled()).collect();
        let mut both = [first, rest].concat();
        both.sort();
        assert_eq!(both, [0, own]);
        post.send(ah).unwrap();
        let mut again: Vec<_> = (0..4).flat_map(|_| post.polled()).collect();
        again.sort();
        assert!(again == [0, 0, own] || again == [0, own, own], "{again:?}");
    });
}
