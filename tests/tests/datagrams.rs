//! Tests of datagrams of `itapi`: over the bridge to rdma-core, with the test double of its libraries, and over RoCE on UDP
//! sockets.
//!
//! The loader uses the environment of the process's start, so each test runs itself again, with the test double
//! under the names of rdma-core.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use itapi::*;
use warpline_tests::skip;

/// Time-out of waits, to fail instead of hang.
const PATIENCE: Duration = Duration::from_secs(20);
/// Set in the child: the adapter.
const CHILD: &str = "WARPLINE_TEST_DATAGRAMS";

/// The adapter in the child; otherwise runs `test` there, over each adapter.
fn over_each(test: &str) -> Option<String> {
    if let Ok(adapter) = std::env::var(CHILD) {
        return Some(adapter);
    }
    over_the_stand_in(test);
    over_roce(test);
    None
}

/// Runs `test` with the test double of rdma-core's libraries.
fn over_the_stand_in(test: &str) {
    let program = std::env::current_exe().unwrap();
    let dir = program.with_file_name(format!("{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for soname in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink(program.with_file_name("libfake_verbs.so"), dir.join(soname)).unwrap();
    }
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", &dir);
    let done = passes(command, test, "fakeib0");
    std::fs::remove_dir_all(dir).unwrap();
    assert!(done, "over the test double");
}

/// Runs `test` with RoCE over UDP, in a network of its own: its port of an address belongs to one user of a network.
fn over_roce(test: &str) {
    let alone = ["--map-root-user", "--net"];
    let can = Command::new("unshare").args(alone).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip(test, warpline_skip::NO_NAMESPACES);
    }
    let mut command = Command::new("unshare");
    command.args(alone).args(["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap());
    assert!(passes(command, test, "vp_roce"), "over RoCE");
}

/// Runs `test` over `adapter`; false if it failed, with its output.
fn passes(mut command: Command, test: &str, adapter: &str) -> bool {
    let output =
        command.args(["--exact", test, "--nocapture"]).env(CHILD, adapter).output().unwrap();
    for shown in [&output.stdout, &output.stderr] {
        eprint!("{}", String::from_utf8_lossy(shown));
    }
    output.status.success()
}

/// An endpoint with its dispatcher.
struct Side {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    ep: UdEp,
}

impl Side {
    fn on(adapter: &str) -> Self {
        let ia = Ia::builder().device(adapter).open().unwrap();
        let (pz, evd) = (ia.pz().unwrap(), ia.evd(64).unwrap());
        let ep = pz.ud(&evd).depth(8, 8).build().unwrap();
        Self { ia, pz, evd, ep }
    }

    fn receive(&self, octets: usize) {
        self.ep.post_recv(self.pz.buffer(GRH_OCTETS + octets).unwrap()).unwrap();
    }

    /// The next datagram, and its sender.
    fn arrival(&self) -> (Vec<u8>, DatagramSource) {
        let arrived = self.evd.wait_success(PATIENCE).unwrap();
        assert_eq!((arrived.ep, arrived.operation), (self.ep.id(), Operation::Recv));
        let source = *arrived.source.clone().unwrap();
        (arrived.into_buffer().unwrap().to_vec()[GRH_OCTETS..].to_vec(), source)
    }

    fn send(&self, path: &DatagramPath, to: UdAddress, octets: &[u8]) {
        let there = self.pz.address_handle(path).unwrap();
        self.ep.post(&there, to, Work::send(octets)).unwrap();
        let sent = self.evd.wait_success(PATIENCE).unwrap();
        assert_eq!(sent.operation, Operation::Send);
        assert!(sent.source.is_none());
    }
}

/// Resolves the service of `there` to its endpoint.
fn resolve(here: &Side, there: &Side) -> (UdAddress, DatagramPath) {
    let listen = there.ia.listen_datagrams("127.0.0.1:0").unwrap();
    let service = here.ia.ud_service(listen.address(), b"weather").unwrap();
    assert_eq!(service.peer(), listen.address());
    service.request().unwrap();
    let request = listen.request().unwrap();
    assert_eq!(request.private_data(), b"weather");
    assert!(request.ends().remote.address.ip().is_loopback());
    request.accept(there.ep.address(), b"every minute").unwrap();
    match service.wait(PATIENCE).unwrap() {
        Some(ServiceReply::Resolved { address, path, private_data }) => {
            assert_eq!((address, &*private_data), (there.ep.address(), &b"every minute"[..]));
            (address, path)
        }
        other => panic!("{other:?}"),
    }
}

// [it_ep_ud_create] [it_post_sendto] [it_post_recvfrom] [it_address_handle_create]
// [it_ud_service_request] [it_ud_service_reply] [it_ud_service_request_handle_create]
#[test]
fn a_service_resolves_to_an_endpoint_that_replies() {
    let Some(adapter) = over_each("a_service_resolves_to_an_endpoint_that_replies") else { return };
    let (here, there) = (Side::on(&adapter), Side::on(&adapter));
    let (address, path) = resolve(&here, &there);
    there.receive(64);
    here.send(&path, address, b"what is it like?");
    let (question, source) = there.arrival();
    assert_eq!((&*question, source.qpn), (&b"what is it like?"[..], here.ep.address().qpn));
    here.receive(64);
    // The reply has no key: programs agree on it.
    let asker = UdAddress { qpn: source.qpn, qkey: here.ep.address().qkey };
    there.send(&source.path.unwrap(), asker, b"raining");
    let (answer, source) = here.arrival();
    assert_eq!((&*answer, source.qpn), (&b"raining"[..], address.qpn));
}

/// With every kind of dispatcher between the provider's queue and the application.
#[test]
fn every_kind_of_dispatcher_reports_the_source() {
    let Some(adapter) = over_each("every_kind_of_dispatcher_reports_the_source") else { return };
    let (here, there) = (Side::on(&adapter), Side::on(&adapter));
    let (address, path) = resolve(&here, &there);
    let qpn = here.ep.address().qpn;
    // Staged, since a quiet receive does not notify; the next one does.
    there.ep.post_recv_quiet(there.pz.buffer(GRH_OCTETS + 8).unwrap()).unwrap();
    there.receive(8);
    here.send(&path, address, b"quiet");
    here.send(&path, address, b"loud");
    assert_eq!(there.arrival().0, b"quiet");
    assert_eq!(there.arrival().1.qpn, qpn);
    // Several completions at once.
    for _ in 0..4 {
        there.receive(8);
        here.send(&path, address, b"one");
    }
    let mut all = Vec::new();
    warpline_patience::until("four datagrams", || {
        there.evd.poll_into(&mut all).unwrap();
        all.len() >= 4
    });
    assert!(all.iter().all(|one| one.source.as_ref().is_some_and(|from| from.qpn == qpn)));
    // An aggregate dispatcher.
    let any = AnyEvd::builder(&there.ia).build().unwrap();
    let evd = Evd::builder(&there.ia, 16).aggregate(&any).build().unwrap();
    let ep = there.pz.ud(&evd).build().unwrap();
    ep.post_recv(there.pz.buffer(GRH_OCTETS + 8).unwrap()).unwrap();
    here.send(&path, ep.address(), b"through");
    match any.wait(PATIENCE).unwrap() {
        Some((_, AnyEvent::Completion(one))) => assert_eq!(one.source.unwrap().qpn, qpn),
        other => panic!("{other:?}"),
    }
}

// [it_ud_service_reply] [it_ud_service_request_handle_free]
#[test]
fn a_service_refuses_with_a_reason() {
    let Some(adapter) = over_each("a_service_refuses_with_a_reason") else { return };
    use ServiceRefusal::{NoQueuePair, NotSupported, Redirected, Rejected};
    let (here, there) = (Side::on(&adapter), Side::on(&adapter));
    let listen = there.ia.listen_datagrams("127.0.0.1:0").unwrap();
    let service = here.ia.ud_service(listen.address(), b"").unwrap();
    let refused = |with: &[u8]| match service.wait(PATIENCE).unwrap() {
        Some(ServiceReply::Refused { why, private_data }) => {
            assert_eq!(private_data, with);
            why
        }
        other => panic!("{other:?}"),
    };
    for why in [NotSupported, Rejected, NoQueuePair, Redirected] {
        service.request().unwrap();
        listen.request().unwrap().reject(why, b"sorry").unwrap();
        assert_eq!(refused(b"sorry"), why);
    }
    // Dropped, with the request or with the listener.
    service.request().unwrap();
    drop(listen.request().unwrap());
    assert_eq!(refused(b""), Rejected);
    // Several requests at once, each with a reply.
    service.request().unwrap();
    service.request().unwrap();
    for _ in 0..2 {
        listen.request().unwrap().reject(NoQueuePair, b"").unwrap();
        assert_eq!(refused(b""), NoQueuePair);
    }
    // An unknown service; a cancelled request has no reply.
    let nobody = here.ia.ud_service("127.0.0.1:9", b"").unwrap();
    nobody.request().unwrap();
    let answer = nobody.wait(PATIENCE).unwrap().unwrap();
    assert!(!matches!(answer, ServiceReply::Resolved { .. }), "{answer}");
    service.request().unwrap();
    drop(service);
    let again = there.ia.listen_datagrams(listen.address());
    assert!(matches!(again, Err(Error::Access(AccessError::AddressInUse(_)))));
}

// [it_address_handle_modify] [it_address_handle_query] [it_address_handle_free] [it_ep_reset]
#[test]
fn invalid_datagram_requests_are_refused() {
    let Some(adapter) = over_each("invalid_datagram_requests_are_refused") else { return };
    let (here, there) = (Side::on(&adapter), Side::on(&adapter));
    let (address, path) = resolve(&here, &there);
    let way = here.pz.address_handle(&path).unwrap();
    assert_eq!(way.path().unwrap().remote_gid, path.remote_gid);
    way.modify(&DatagramPath { traffic_class: 3, ..path }).unwrap();
    assert_eq!(way.path().unwrap().traffic_class, 3);
    let status = |refused: Error| match refused {
        Error::Post { status, .. } => status,
        other => panic!("{other}"),
    };
    // Of another zone, another kind, too long.
    let foreign = here.ia.pz().unwrap().address_handle(&path).unwrap();
    let post = |way, work| here.ep.post(way, address, work).map_err(status);
    assert_eq!(post(&foreign, Work::send(b"")).unwrap_err(), VpStatus::InvalidPd);
    assert_eq!(post(&way, Work::immediate(7)).unwrap_err(), VpStatus::InvalidWr);
    let longest = here.ia.max_datagram(0).unwrap() as usize;
    let lmr = here.pz.lmr(longest + 1).register().unwrap();
    assert_eq!(post(&way, Work::send(&lmr)).unwrap_err(), VpStatus::InvalidSgl);
    assert!(here.ia.max_datagram(4711).is_err());
    let most = here.ia.datagram_attrs().unwrap();
    let long = vec![0; most.max_private_request as usize + 1];
    assert!(matches!(
        here.ia.ud_service("127.0.0.1:7", &long),
        Err(Error::Access(AccessError::PrivateDataTooLong { .. }))
    ));
    // A datagram with another key is lost; a stopped endpoint flushes, and works again after a reset.
    there.receive(8);
    here.send(&path, UdAddress { qkey: address.qkey ^ 1, ..address }, b"lost");
    assert!(there.evd.poll().unwrap().is_none());
    there.ep.stop().unwrap();
    assert_eq!(there.ep.query().unwrap().state, UdState::Error);
    let flushed = there.evd.wait(PATIENCE).unwrap().unwrap();
    assert_eq!((flushed.status, flushed.source.is_none()), (WcStatus::Flushed, true));
    there.ep.reset().unwrap();
    there.receive(8);
    here.send(&path, there.ep.address(), b"found");
    assert_eq!(there.arrival().0, b"found");
}
