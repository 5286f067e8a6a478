//! Datagrams over the bridge to hardware, with the stand-in for rdma-core below: services, address
//! handles, endpoints, and the source of received datagrams.
//!
//! The loader reads its search path when a process begins, so each test runs itself again, with the
//! stand-in under the names of rdma-core.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use kal_shim::reactor::{Interest, readable, ready_within};
use ual::resource::{Datagram, Serves, UdEp, UdEpInit, UdServiceInit};
use ual::vp_api::{
    Data, DatagramPath, GRH_OCTETS, RecvWr, SendFlags, ServiceRefusal, Sge, UdAddress, VpStatus,
};
use ual::{
    AsyncSource, Config, Error, EvdInit, Event, ListenInit, NOTIFY, Object, ServiceReply,
    ServiceRequest, Stream, Ual,
};

use crate::common::{HANG, LOCALHOST, Side, policy};

/// Set in the child.
const CHILD: &str = "UAL_TEST_DATAGRAMS";

/// True in the child, which has the stand-in; else runs `test` there.
fn over_the_stand_in(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let dir = program.with_file_name(format!("ual-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for soname in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink(program.with_file_name("libfake_verbs.so"), dir.join(soname)).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["--exact", &format!("datagrams::{test}"), "--nocapture"]);
    let output = command.env("LD_LIBRARY_PATH", &dir).env(CHILD, "1").output().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    false
}

fn side() -> Side {
    let ual = Ual::with_config(Config { policy: policy(), ..Config::default() });
    Side::on(ual.open("fakeib0").unwrap())
}

fn ep(side: &Side) -> Arc<UdEp> {
    side.pz.create_ud_ep(UdEpInit::new(&side.completions)).unwrap()
}

fn listen(side: &Side, serves: Serves, port: u16) -> ual::Result<Arc<ual::Listen>> {
    let init = ListenInit::new(SocketAddr::new(LOCALHOST, port), &side.requests);
    side.ia.listen(ListenInit { serves, ..init })
}

fn service(side: &Side, peer: SocketAddr) -> Arc<ual::resource::UdService> {
    let (evd, private_data) = (side.connection.clone(), b"who?".to_vec());
    side.ia.create_ud_service(UdServiceInit { peer, evd, private_data }).unwrap()
}

fn asked(side: &Side) -> ServiceRequest {
    match side.requests.wait(Some(HANG)).unwrap() {
        Event::ServiceRequest(request) => *request,
        other => panic!("{other:?}"),
    }
}

fn wait_reply(side: &Side) -> ServiceReply {
    match side.connection.wait(Some(HANG)).unwrap() {
        Event::ServiceReply { reply, .. } => *reply,
        other => panic!("{other:?}"),
    }
}

/// The destination of `there`, as its service replies.
fn resolve(here: &Side, there: &Side, far: &UdEp) -> (UdAddress, DatagramPath) {
    let listen = listen(there, Serves::Datagrams, 0).unwrap();
    let service = service(here, listen.addresses()[0]);
    service.request().unwrap();
    let request = asked(there);
    assert_eq!((request.private_data.as_slice(), request.listener), (&b"who?"[..], listen.id()));
    assert_eq!(request.port, listen.addresses()[0].port());
    ual::cm::reply(request.request, Ok(far.address()), b"me").unwrap();
    match wait_reply(here) {
        ServiceReply::Resolved { address, path, private_data } => {
            assert_eq!((address, private_data.as_slice()), (far.address(), &b"me"[..]));
            (address, path)
        }
        other => panic!("{other}"),
    }
}

fn datagram<'a>(wr_id: u64, sgl: &'a [Sge], to: UdAddress) -> Datagram<'a> {
    Datagram { wr_id, data: Data::Sgl(sgl), flags: SendFlags::SIGNALED, solicited: false, to }
}

const OCTETS: u32 = GRH_OCTETS as u32 + 16;

#[test]
fn a_service_resolves_to_an_endpoint_and_receives_have_their_source() {
    if !over_the_stand_in("a_service_resolves_to_an_endpoint_and_receives_have_their_source") {
        return;
    }
    let (here, there) = (side(), side());
    let (near, far) = (ep(&here), ep(&there));
    let (to, path) = resolve(&here, &there, &far);
    let handle = here.pz.create_address_handle(&path).unwrap();
    assert_eq!(handle.path().unwrap().remote_gid, path.remote_gid);
    far.post_recv(&[RecvWr { wr_id: 1 | NOTIFY, sgl: &[there.sge(0, OCTETS)] }]).unwrap();
    near.post_send(&handle, &datagram(2 | NOTIFY, &[here.sge(0, 16)], to)).unwrap();
    assert_eq!((here.success().wr_id, near.take_sender(2 | NOTIFY)), (2, None));
    let arrived = there.success();
    assert_eq!((arrived.wr_id, arrived.octets, arrived.qp), (1, OCTETS, far.id()));
    let source = far.take_sender(1 | NOTIFY).unwrap();
    assert_eq!(source.qpn, near.address().qpn);
    assert!(source.path.is_some() && far.take_sender(1 | NOTIFY).is_none());
    // After an empty poll the descriptor becomes readable when a datagram arrives.
    let fd = there.completions.fd().unwrap();
    assert!(there.completions.dequeue().unwrap().is_none() && !readable(fd));
    far.post_recv(&[RecvWr { wr_id: 4 | NOTIFY, sgl: &[there.sge(0, OCTETS)] }]).unwrap();
    near.post_send(&handle, &datagram(5 | NOTIFY, &[here.sge(0, 16)], to)).unwrap();
    assert!(ready_within(fd, Interest::READ, HANG));
    assert_eq!((there.success().wr_id, here.success().wr_id), (4, 5));
    assert_eq!((there.completions.queued(), here.completions.queued()), (0, 0));
    // A completion without notification stays until it is polled, and wakes no thread: a receive as well as a send.
    far.post_recv(&[RecvWr { wr_id: 6, sgl: &[there.sge(0, OCTETS)] }]).unwrap();
    near.post_send(&handle, &datagram(7 | NOTIFY, &[here.sge(0, 16)], to)).unwrap();
    assert_eq!(here.success().wr_id, 7);
    warpline_patience::until("the quiet receive", || there.completions.queued() == 1);
    assert!(matches!(there.completions.wait(Some(Duration::ZERO)), Err(Error::Timeout(_))));
    assert!(there.completions.dequeue().unwrap().is_some());
    near.post_send(&handle, &datagram(3, &[], to)).unwrap();
    warpline_patience::until("the quiet completion", || here.completions.queued() == 1);
    assert!(matches!(here.completions.wait(Some(Duration::ZERO)), Err(Error::Timeout(_))));
    match here.completions.dequeue().unwrap() {
        Some(Event::Completion(completion)) => assert_eq!(completion.wr_id, 3),
        other => panic!("{other:?}"),
    }
}

#[test]
fn objects_of_datagrams_close_once_and_after_them() {
    if !over_the_stand_in("objects_of_datagrams_close_once_and_after_them") {
        return;
    }
    let (here, there) = (side(), side());
    let (near, far) = (ep(&here), ep(&there));
    let (to, path) = resolve(&here, &there, &far);
    let handle = here.pz.create_address_handle(&path).unwrap();
    // The first that is posted there causes no notification, so it ends no wait.
    far.post_recv(&[RecvWr { wr_id: 8, sgl: &[there.sge(0, OCTETS)] }]).unwrap();
    near.post_send(&handle, &datagram(9, &[here.sge(0, 16)], to)).unwrap();
    for side in [&here, &there] {
        warpline_patience::until("a quiet completion", || side.completions.queued() == 1);
        assert!(matches!(side.completions.wait(Some(Duration::ZERO)), Err(Error::Timeout(_))));
        assert!(side.completions.dequeue().unwrap().is_some());
    }
    let refused = |handle: &ual::resource::AddressHandle| {
        near.post_send(handle, &datagram(1 | NOTIFY, &[], to)).unwrap_err().status
    };
    let foreign = there.pz.create_address_handle(&path).unwrap();
    assert_eq!(refused(&foreign), VpStatus::InvalidPd);
    let zone = here.ia.create_pz().unwrap();
    let of_another_zone = zone.create_address_handle(&path).unwrap();
    assert_eq!(refused(&of_another_zone), VpStatus::InvalidPd);
    assert!(matches!(zone.close(), Err(Error::InUse { .. })));
    drop(of_another_zone);
    zone.close().unwrap();
    handle.modify(&DatagramPath { hop_limit: 7, ..path }).unwrap();
    assert_eq!(handle.path().unwrap().hop_limit, 7);
    handle.close().unwrap();
    assert!(matches!(handle.close(), Err(Error::Closed(Object::AddressHandle))));
    assert!(matches!(handle.modify(&path), Err(Error::Closed(_))));
    assert_eq!(refused(&handle), VpStatus::InvalidHandle);
    assert!(matches!(here.completions.close(), Err(Error::InUse { .. })));
    for (tag, number) in [(near.tag(), 1), (handle.tag(), 2)] {
        tag.set(number);
    }
    assert_eq!((near.tag().get(), handle.tag().get()), (1, 2));
    assert!(here.ia.ud_ep(near.id()).is_some_and(|found| Arc::ptr_eq(&found, &near)));
    let before = near.query().unwrap().state;
    near.stop().unwrap();
    assert_ne!(near.query().unwrap().state, before);
    near.reset().unwrap();
    assert_eq!(near.query().unwrap().state, before);
    near.close().unwrap();
    assert!(here.ia.ud_ep(near.id()).is_none());
    assert!(matches!(near.close(), Err(Error::Closed(Object::Ep))));
    here.completions.close().unwrap();
    // To drop it closes it.
    drop(far);
    there.completions.close().unwrap();
}

#[test]
fn a_wait_for_datagrams_ends_as_any_other() {
    if !over_the_stand_in("a_wait_for_datagrams_ends_as_any_other") {
        return;
    }
    let side = side();
    let attrs = side.ia.datagram_attrs().unwrap();
    assert!(attrs.max_ah > 0 && attrs.max_private_request > 0);
    assert!(side.ia.max_datagram(0).unwrap() > 1);
    assert!(side.completions.depth() >= 4096);
    let short = Some(Duration::from_millis(1));
    warpline_patience::within("a wait to be over", || {
        assert!(matches!(side.completions.wait(short), Err(Error::Timeout(_))));
        assert!(!side.completions.wait_ready(short).unwrap());
    });
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| side.completions.wait(None));
        warpline_patience::until("the interrupted wait to end", || {
            side.completions.interrupt();
            waiter.is_finished()
        });
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
}

#[test]
fn services_are_refused_given_up_and_listened_for_once() {
    if !over_the_stand_in("services_are_refused_given_up_and_listened_for_once") {
        return;
    }
    let (here, there) = (side(), side());
    let offered = listen(&there, Serves::Datagrams, 0).unwrap();
    let address = offered.addresses()[0];
    let asking = service(&here, address);
    asking.tag().set(9);
    assert_eq!((asking.tag().get(), asking.init().peer), (9, address));
    asking.request().unwrap();
    let request = asked(&there).request;
    ual::cm::reply(request, Err(ServiceRefusal::NoQueuePair), b"none").unwrap();
    match wait_reply(&here) {
        ServiceReply::Refused { why, private_data } => {
            assert_eq!((why, private_data.as_slice()), (ServiceRefusal::NoQueuePair, &b"none"[..]));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        ual::cm::reply(request, Err(ServiceRefusal::Rejected), b""),
        Err(Error::Closed(_))
    ));
    // Its port is in use for datagrams; a listener for both at this port cannot try another.
    let both = listen(&there, Serves::Both, address.port());
    assert!(matches!(both, Err(Error::AddressInUse(_))), "{both:?}");
    // No room for the request: it is not reported, and its sender gets a refusal at once.
    let narrow = there.ia.create_evd(EvdInit::new(Stream::Request, 1)).unwrap();
    let any = ListenInit::new(SocketAddr::new(LOCALHOST, 0), &narrow);
    let crowded = there.ia.listen(ListenInit { serves: Serves::Datagrams, ..any }).unwrap();
    let busy = service(&here, crowded.addresses()[0]);
    busy.request().unwrap();
    warpline_patience::until("the first request", || narrow.queued() == 1);
    busy.request().unwrap();
    assert!(matches!(wait_reply(&here), ServiceReply::Refused { .. }));
    // Closed during a request, it gets no event.
    asking.request().unwrap();
    let request = asked(&there).request;
    asking.close().unwrap();
    assert!(matches!(asking.request(), Err(Error::Closed(Object::Service))));
    assert!(matches!(asking.close(), Err(Error::Closed(Object::Service))));
    let _ = ual::cm::reply(request, Err(ServiceRefusal::Rejected), b"");
    drop(busy);
    assert_eq!(here.connection.queued(), 0);
    here.connection.close().unwrap();
}

/// Makes the stand-in raise `IBV_EVENT_QP_FATAL` for its newest queue pair.
fn raise_fatal() {
    // SAFETY: a text with its NUL; the library is loaded under this name already.
    let stand_in = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: a library that stays, and a text with its NUL.
    let raise = unsafe { libc::dlsym(stand_in, c"fake_async".as_ptr()) };
    assert!(!raise.is_null());
    // SAFETY: the type that it has in the stand-in.
    let raise: unsafe extern "C" fn(u32) = unsafe { std::mem::transmute(raise) };
    // SAFETY: it accepts any kind of event.
    unsafe { raise(1) };
}

#[test]
fn events_of_a_datagram_endpoint_are_reported() {
    if !over_the_stand_in("events_of_a_datagram_endpoint_are_reported") {
        return;
    }
    let here = side();
    let events = here.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let near = ep(&here);
    raise_fatal();
    let event = events.wait(Some(HANG)).unwrap();
    let expected = AsyncSource::Ep(near.id());
    assert!(matches!(event, Event::Affiliated { source, .. } if source == expected), "{event:?}");
}
