//! Objects: in-use rules, lifetimes, handles, providers.

use std::sync::Arc;

use ual::vp_api::{
    self, Access, Addressing, AsyncEvent, Data, FastRegister, MwKind, Provider, Rnic, SendFlags,
    SendOp, SendWr, Services, Stag, VpError, VpResult, VpStatus,
};
use ual::{
    AcceptParams, Config, ConnectParams, EpInit, Error, EvdInit, Event, LmrInit, NOTIFY, Object,
    Region, Stream, Ual, config,
};

use crate::common::{HANG, LOCALHOST, Side, policy};
use crate::fake::{self, Behaviour};

#[test]
fn nothing_in_use_can_be_closed_and_everything_closes_once() {
    let side = Side::new(policy());
    let listen = side.listen(LOCALHOST);
    let ep = side.ep();
    let window = side.pz.create_rmr(MwKind::Narrow).unwrap();
    for refused in [
        side.ia.close(),
        side.pz.close(),
        side.completions.close(),
        side.connection.close(),
        side.requests.close(),
    ] {
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    }
    // The objects whose destruction was refused still work.
    side.post_recv(&ep, 1, 0, 10);
    ep.close().unwrap();
    listen.close().unwrap();
    window.close().unwrap();
    side.lmr.close().unwrap();
    for evd in [&side.completions, &side.connection, &side.requests] {
        evd.close().unwrap();
        assert!(matches!(evd.close(), Err(Error::Closed(Object::Evd))));
    }
    side.pz.close().unwrap();
    side.ia.close().unwrap();
    assert!(matches!(side.lmr.close(), Err(Error::Closed(Object::Lmr))));
    assert!(matches!(window.close(), Err(Error::Closed(Object::Rmr))));
    assert!(matches!(side.pz.close(), Err(Error::Closed(Object::Pz))));
    assert!(matches!(side.ia.close(), Err(Error::Closed(Object::Ia))));
    assert!(matches!(side.ia.create_pz(), Err(Error::Closed(Object::Ia))));
    assert!(matches!(side.pz.create_rmr(MwKind::Wide), Err(Error::Closed(Object::Pz))));
}

#[test]
fn dropping_is_closing() {
    let side = Side::new(policy());
    let ep = side.ep();
    let id = ep.id();
    assert!(side.ia.ep(id).is_some());
    drop(ep);
    assert!(side.ia.ep(id).is_none());
    // Each kind releases the objects that it used.
    let listen = side.listen(LOCALHOST);
    let window = side.pz.create_rmr(MwKind::Narrow).unwrap();
    let params = ual::SrqParams { depth: 8, max_sge: 1, low_watermark: 0 };
    let shared = side.pz.create_srq(params).unwrap();
    let Side { ia, pz, completions, requests, connection, lmr, .. } = side;
    drop((listen, window, shared, lmr));
    drop((completions, requests, connection));
    pz.close().unwrap();
    drop(ia.create_pz().unwrap());
    ia.close().unwrap();
}

/// A wait keeps its dispatcher.
#[test]
fn a_dispatcher_that_a_thread_waits_on_is_in_use() {
    let side = Side::new(policy());
    for evd in [&side.completions, &side.connection] {
        std::thread::scope(|scope| {
            let (name, named) = std::sync::mpsc::channel();
            let waiter = scope.spawn(move || {
                name.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                evd.wait(Some(HANG))
            });
            let stat = named.recv_timeout(HANG).unwrap().join("stat");
            warpline_patience::until("the waiter to sleep", || {
                std::fs::read_to_string(std::path::Path::new("/proc").join(&stat))
                    .unwrap()
                    .contains(") S ")
            });
            let refused = evd.close();
            evd.abort();
            assert!(matches!(refused, Err(Error::InUse { object: Object::Evd, users: 1 })));
            assert!(matches!(waiter.join().unwrap(), Err(Error::Aborted)));
        });
        evd.close().unwrap();
    }
}

#[test]
fn dispatchers_of_asynchronous_events_are_found_while_they_are_open() {
    let side = Side::new(policy());
    let evd = |stream| side.ia.create_evd(EvdInit::new(stream, 8)).unwrap();
    assert!(side.ia.affiliated_evd().is_none() && side.ia.unaffiliated_evd().is_none());
    let (of_objects, of_device) = (evd(Stream::Affiliated), evd(Stream::Unaffiliated));
    assert!(side.ia.affiliated_evd().is_some_and(|found| Arc::ptr_eq(&found, &of_objects)));
    assert!(side.ia.unaffiliated_evd().is_some_and(|found| Arc::ptr_eq(&found, &of_device)));
    of_objects.close().unwrap();
    of_device.close().unwrap();
    assert!(side.ia.affiliated_evd().is_none() && side.ia.unaffiliated_evd().is_none());
}

#[test]
fn objects_are_found_by_their_ids_while_they_are_open() {
    let side = Side::new(policy());
    let ep = side.ep();
    let params = ual::SrqParams { depth: 8, max_sge: 1, low_watermark: 0 };
    let shared = side.pz.create_srq(params).unwrap();
    assert!(side.ia.ep(ep.id()).is_some_and(|found| Arc::ptr_eq(&found, &ep)));
    assert!(side.ia.srq(shared.id()).is_some_and(|found| Arc::ptr_eq(&found, &shared)));
    let evd = side.ia.create_evd(EvdInit::new(Stream::Completion, 8)).unwrap();
    let is_it = |cq| side.ia.evd(cq).is_some_and(|found| Arc::ptr_eq(&found, &evd));
    let cq = (0..1 << 20).map(vp_api::CqId).find(|cq| is_it(*cq)).unwrap();
    evd.close().unwrap();
    assert!(side.ia.evd(cq).is_none());
    ep.close().unwrap();
    shared.close().unwrap();
    assert!(side.ia.ep(ep.id()).is_none() && side.ia.srq(shared.id()).is_none());
}

#[test]
fn an_adapter_has_the_policy_it_was_opened_with_and_datagrams_if_its_provider_has() {
    let side = Side::new(ual::Policy { dscp: 7, ..policy() });
    assert_eq!((side.ia.policy().dscp, side.ia.policies().default.dscp), (7, 7));
    assert!(side.ia.datagram_attrs().is_none());
    let unsupported = side.ia.max_datagram(0).unwrap_err().verb_status();
    assert_eq!(unsupported, Some(VpStatus::Unsupported));
}

#[test]
fn a_dropped_listener_listens_no_more() {
    let side = Side::new(policy());
    let listen = side.listen(LOCALHOST);
    let address = listen.addresses()[0];
    drop(listen);
    warpline_patience::until("a connection to be refused", || {
        std::net::TcpStream::connect(address).is_err()
    });
}

#[test]
fn limits_of_an_endpoint_change_and_its_state_does_not() {
    let side = Side::new(policy());
    let ep = side.ep();
    let limits = |ord, send_depth| vp_api::QpChange::Limits {
        ord: Some(ord),
        ird: Some(3),
        send_depth: Some(send_depth),
        recv_depth: None,
        recv_limit: None,
    };
    ep.modify(limits(2, 20)).unwrap();
    let info = ep.qp_info().unwrap();
    assert_eq!((info.ord, info.ird, info.send_depth), (2, 3, 20));
    assert!(ep.modify(limits(u16::MAX, 20)).is_err());
    assert!(matches!(ep.modify(vp_api::QpChange::Error), Err(Error::InvalidArgument(_))));
    // They apply in the negotiation.
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    assert_eq!(server.request().peer_ird_ord, Some((3, 2)));
}

// A refusal names the state of the endpoint, and the states in which the call is allowed.
#[test]
fn a_refusal_names_the_state() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, _passive) = crate::common::connect(&client, &server, &listen);
    let refused = active.connect(ConnectParams::new(listen.addresses()[0])).unwrap_err();
    assert!(refused.to_string().contains("connected"), "{refused}");
    let fresh = client.ep();
    let refused = fresh.disconnect(ual::Disconnect::Graceful).unwrap_err();
    assert!(refused.to_string().contains("unconnected"), "{refused}");
    use ual::EpState::*;
    let states =
        [Unconnected, ActivePending, PassivePending, Connected, Nonoperational, PassiveWait];
    let names: std::collections::BTreeSet<_> = states.into_iter().map(|s| s.name()).collect();
    assert!(names.len() == states.len() && !names.contains(""), "{names:?}");
}

#[test]
fn providers_are_known_by_their_names() {
    let known = fake::ual(Behaviour::RefuseStreams, policy()).known();
    assert_eq!(known, [("fake".to_owned(), None)]);
    let built_in = Ual::with_config(Config::default()).known();
    assert!(built_in.contains(&("vp_softrdma".to_owned(), None)), "{built_in:?}");
}

#[test]
fn objects_carry_the_number_of_the_face_above() {
    let side = Side::new(policy());
    assert_eq!(side.lmr.tag().get(), 0);
    let (ep, listen) = (side.ep(), side.listen(LOCALHOST));
    let window = side.pz.create_rmr(MwKind::Narrow).unwrap();
    let params = ual::SrqParams { depth: 8, max_sge: 1, low_watermark: 0 };
    let shared = side.pz.create_srq(params).unwrap();
    let tags = || {
        [
            side.ia.tag(),
            side.pz.tag(),
            side.lmr.tag(),
            side.completions.tag(),
            ep.tag(),
            listen.tag(),
            window.tag(),
            shared.tag(),
        ]
    };
    tags().into_iter().zip(1..).for_each(|(tag, number)| tag.set(number));
    assert!(tags().into_iter().map(|tag| tag.get()).eq(1..=8));
}

#[test]
fn memory_lives_until_it_is_deregistered() {
    let side = Side::new(policy());
    let region = Region::new(4096).unwrap();
    let (addr, range) = (region.addr(), region.mem_range());
    drop(region);
    let lmr = side.pz.create_lmr(LmrInit::new(range, Access::LOCAL)).unwrap();
    let info = lmr.query().unwrap();
    assert_eq!((info.addr, info.len, info.valid), (addr, 4096, true));
    let other = Region::new(8192).unwrap();
    let mut init = LmrInit::new(other.mem_range(), Access::LOCAL | Access::REMOTE_READ);
    init.addressing = Addressing::ZeroBased;
    let pz = side.ia.create_pz().unwrap();
    lmr.modify(&pz, init).unwrap();
    assert_eq!(lmr.query().unwrap().len, 8192);
    assert!(matches!(pz.close(), Err(Error::InUse { .. })));
    let shared = lmr.share(&side.pz, Addressing::Absolute, Access::LOCAL_READ, 9).unwrap();
    assert_eq!(shared.stag().key(), 9);
    lmr.close().unwrap();
    shared.close().unwrap();
    pz.close().unwrap();
    let wrong = LmrInit::new(other.mem_range(), Access::REMOTE_WRITE);
    let error = side.pz.create_lmr(wrong).unwrap_err();
    assert_eq!(error.verb_status(), Some(VpStatus::InvalidAccess));
}

// RDMAC 9.2.6: a reregistration that fails may destroy the region. It can still be closed, and an object that
// has its STag index by then is not changed.
#[test]
fn a_region_that_was_lost_can_be_closed() {
    let ual = fake::ual(Behaviour::LoseMemory, policy());
    let ia = ual.open_any().unwrap();
    let pz = ia.create_pz().unwrap();
    let memory = Region::new(64).unwrap();
    let init = || LmrInit::new(memory.mem_range(), Access::LOCAL);
    let lmr = pz.create_lmr(init()).unwrap();
    let lost = lmr.modify(&pz, init()).unwrap_err();
    assert_eq!(lost.verb_status(), Some(VpStatus::InsufficientResources));
    assert_eq!(lmr.query().unwrap_err().verb_status(), Some(VpStatus::InvalidStag));
    assert!(matches!(lmr.modify(&pz, init()), Err(Error::Closed(Object::Lmr))));
    lmr.close().unwrap();
    pz.close().unwrap();
}

#[test]
fn a_refused_modify_changes_nothing() {
    let (side, other) = (Side::new(policy()), Side::new(policy()));
    let (stag, before) = (side.lmr.stag(), side.lmr.query().unwrap());
    let init = |access| LmrInit::new(side.region.mem_range(), access);
    let status = |result: ual::Result<()>| result.unwrap_err().verb_status();
    let rights = side.lmr.modify(&side.pz, init(Access::REMOTE_WRITE));
    assert_eq!(status(rights), Some(VpStatus::InvalidAccess));
    assert_eq!(status(side.lmr.modify(&other.pz, init(Access::LOCAL))), Some(VpStatus::InvalidPd));
    let shared = side.lmr.share(&other.pz, Addressing::Absolute, Access::LOCAL, 0);
    assert_eq!(status(shared.map(drop)), Some(VpStatus::InvalidPd));
    assert_eq!((side.lmr.stag(), side.lmr.query().unwrap()), (stag, before));
}

// IT-API it_lmr_create_unlinked, it_lmr_link, it_lmr_unlink, twice; and the endpoint's watermark.
#[test]
fn a_region_is_linked_and_unlinked_again_and_again() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = client.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let listen = server.listen(LOCALHOST);
    let mut init = EpInit::new(&client.completions, &client.connection);
    (init.privileged, init.recv_high_watermark) = (true, 1);
    let ep = client.pz.create_ep(init).unwrap();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let peer = server.ep();
    peer.accept(server.request().request, AcceptParams::default()).unwrap();
    client.established();
    server.established();
    let lmr = client.pz.create_lmr_unlinked(true).unwrap();
    let memory = Region::new(100).unwrap();
    for key in [3, 4] {
        assert!(!lmr.query().unwrap().valid);
        let stag = Stag::new(lmr.stag().index(), key);
        let link = FastRegister {
            stag,
            range: memory.mem_range(),
            addressing: Addressing::ZeroBased,
            access: Access::LOCAL | Access::REMOTE,
        };
        let post = |wr_id, op, flags| {
            let wr = SendWr { wr_id: wr_id | NOTIFY, op, data: Data::Sgl(&[]), flags };
            ep.post_send(&[wr]).unwrap();
            assert_eq!(client.success().wr_id, wr_id);
        };
        post(1, SendOp::FastRegister(link.into()), SendFlags::SIGNALED);
        let info = lmr.query().unwrap();
        assert_eq!((info.valid, info.stag, info.len), (true, stag, 100));
        assert_eq!(info.addressing, Addressing::ZeroBased);
        let fenced = SendFlags::SIGNALED | SendFlags::LOCAL_FENCE;
        post(2, SendOp::InvalidateLocal { stag }, fenced);
    }
    lmr.close().unwrap();
    // Two messages that are not polled are more than one.
    for wr_id in 0..2 {
        client.post_recv(&ep, wr_id, 0, 10);
        server.send(&peer, wr_id, 0, 10);
    }
    match affiliated.wait(Some(HANG)).unwrap() {
        Event::Affiliated { event: AsyncEvent::RecvLimit, .. } => {}
        other => panic!("{other:?}"),
    }
}

// IT-API it_lmr_flush_to_mem, it_lmr_refresh_from_mem.
#[test]
fn only_octets_of_the_region_are_synchronised() {
    let side = Side::new(policy());
    let memory = Region::new(100).unwrap();
    let mut init = LmrInit::new(memory.mem_range(), Access::LOCAL);
    let absolute = side.pz.create_lmr(init.clone()).unwrap();
    init.addressing = Addressing::ZeroBased;
    let relative = side.pz.create_lmr(init).unwrap();
    let unlinked = side.pz.create_lmr_unlinked(false).unwrap();
    for (lmr, base) in [(&absolute, memory.addr()), (&relative, 0)] {
        for (to, len) in [(0, 100), (99, 1), (100, 0)] {
            lmr.sync(base + to, len).unwrap();
        }
        for (to, len) in
            [(base + 1, 100), (base + 101, 0), (u64::MAX, 2), (base.wrapping_sub(1), 1)]
        {
            let error = lmr.sync(to, len).unwrap_err();
            assert_eq!(error.verb_status(), Some(VpStatus::InvalidAddress));
        }
    }
    assert!(unlinked.sync(0, 0).is_err());
}

/// A provider that cannot be used here.
struct Broken;

impl Provider for Broken {
    fn name(&self) -> &str {
        "broken"
    }
    fn version(&self) -> &str {
        "0"
    }
    fn devices(&self) -> Result<Vec<vp_api::DeviceInfo>, vp_api::Unavailable> {
        let (reason, remedy) = ("no device".into(), "buy one".into());
        Err(vp_api::Unavailable { reason, remedy })
    }
    fn open(&self, _: &str, _: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        Err(VpError::new(VpStatus::Unsupported, "broken"))
    }
}

#[test]
fn a_broken_provider_is_listed_with_its_reason_and_affects_no_other() {
    let ual = Ual::with_providers(vec![Arc::new(Broken)], Config::default());
    let listing = &ual.providers()[0];
    assert_eq!(listing.name, "broken");
    assert!(listing.devices.is_err());
    for (error, part) in [
        (ual.open("broken").unwrap_err(), "buy one"),
        (ual.open("other").unwrap_err(), "no device `other`"),
        (ual.open_any().unwrap_err(), "none of broken"),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn devices_open_by_their_names_and_providers_can_be_disabled() {
    let ual = Ual::with_config(Config::default());
    let listing = &ual.providers()[0];
    let device = &listing.devices.as_ref().unwrap()[0];
    let ia = ual.open(&device.name).unwrap();
    assert_eq!((ia.device(), ia.provider()), (&*device.name, &*listing.name));
    assert!(ia.attrs().max_qp > 0);
    let names = ual.providers().into_iter().map(|p| p.name).collect();
    let disabled = config::Providers { disabled: names, ..Default::default() };
    let none = Ual::with_config(Config { providers: disabled, ..Config::default() });
    let listed = none.providers();
    let why = listed.iter().map(|p| p.devices.as_ref().unwrap_err().to_string());
    assert!(why.clone().count() > 0 && why.clone().all(|why| why.contains("disables it")));
    assert!(none.open_any().is_err());
}
