//! Bring-up by path and the keys of queue pairs in wrappers: with the provider built in, and with the provider ABI
//! outside or inside of the wrapper (a layer that passes everything on).

use std::net::Ipv4Addr;
use std::sync::Arc;

use vp_api::*;
use vp_hooks::{Wrapper, stack, stats};
use vp_roce::{NAME, Roce};

use crate::forms::{layer, layer_of};
use crate::native::Host;
use crate::roce::is_alone;

/// A queue pair that is its own peer, and one for datagrams.
struct Ends {
    /// It closes with its last reference.
    _rnic: Arc<dyn Rnic>,
    paths: Arc<dyn Paths>,
    qp: Arc<dyn Qp>,
    ud: Arc<dyn UdQp>,
    host: Arc<Host>,
}

const SENDER: PathSender =
    PathSender { psn: 0xabc, ack_timeout: 14, retry_count: 6, rnr_retry: 7, ord: 1 };

impl Ends {
    fn new(wrappers: &[String]) -> Self {
        let wrappers: Vec<Wrapper> = wrappers.iter().map(|text| text.parse().unwrap()).collect();
        let host = Arc::new(Host::default());
        let rnic = stack(Arc::new(Roce), &wrappers).open(NAME, host.clone()).unwrap();
        let pd = rnic.alloc_pd().unwrap();
        let cq = rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap().id();
        let qp = rnic.create_qp(&QpInit::new(pd, cq, cq)).unwrap();
        let datagrams = rnic.datagrams().unwrap();
        let ud = datagrams.create_qp(&UdQpInit::new(pd, cq, cq)).unwrap();
        Self { paths: rnic.paths().unwrap(), _rnic: rnic, qp, ud, host }
    }

    fn number(&self) -> VpResult<u32> {
        self.paths.number(self.qp.id())
    }

    fn receive(&self) -> VpResult<()> {
        self.receive_from(Ipv4Addr::LOCALHOST)
    }

    fn receive_from(&self, remote: Ipv4Addr) -> VpResult<()> {
        let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let peer = PeerPath {
            local_gid: gid,
            remote_gid: remote.to_ipv6_mapped().octets(),
            qpn: 0xbeef,
            psn: 0xdef,
            mtu_code: 3,
            ird: 1,
            min_rnr_timer: 12,
        };
        self.paths.receive(self.qp.id(), &peer)
    }

    fn send(&self) -> VpResult<()> {
        self.paths.send(self.qp.id(), &SENDER)
    }
}

/// Plays `play` with this wrapper alone, and with the ABI on either side of it.
fn in_every_place(test: &str, wrapper: &str, play: impl Fn(&Ends)) {
    if !is_alone(&format!("paths::{test}")) {
        return;
    }
    play(&Ends::new(&[wrapper.to_owned()]));
    let Some(library) = layer(test) else {
        return warpline_skip::skip(test, warpline_skip::missing("gcc"));
    };
    let border = format!("layer:{}", library.display());
    play(&Ends::new(&[border.clone(), wrapper.to_owned()]));
    play(&Ends::new(&[wrapper.to_owned(), border]));
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

#[test]
fn bring_up_is_traced() {
    in_every_place("bring_up_is_traced", "trace", |ends| {
        let number = ends.number().unwrap();
        assert!(ends.send().is_err());
        ends.receive().unwrap();
        ends.send().unwrap();
        ends.ud.set_qkey(0x1234).unwrap();
        let (qp, ud) = (format!("qp {}: ", ends.qp.id().0), format!("qp {}: ", ends.ud.id().0));
        for parts in [
            &[&*qp, "path_number", &format!("-> {number}")][..],
            &[&qp, "path_send", "-> error: ", "does not receive by path"],
            &[&qp, "path_receive", "qpn 0xbeef at ::ffff:127.0.0.1", "psn 0xdef", "-> ok"],
            &[&qp, "path_send", "psn 0xabc", "retries 6", "ORD 1", "-> ok"],
            &[&ud, "set_qkey 0x1234 -> ok"],
        ] {
            assert!(ends.host.logged(parts), "{parts:?}: {:#?}", ends.host);
        }
    });
}

#[test]
fn bring_up_is_counted() {
    in_every_place("bring_up_is_counted", "stats", |ends| {
        ends.number().unwrap();
        ends.number().unwrap();
        assert!(ends.send().is_err());
        ends.receive().unwrap();
        ends.send().unwrap();
        ends.ud.set_qkey(1).unwrap();
        let all = stats::snapshots();
        for (verb, calls, refused) in
            [("path_number", 2, 0), ("path_receive", 1, 0), ("path_send", 2, 1), ("set_qkey", 1, 0)]
        {
            let mut of_verb = all.iter().filter_map(|s| s.verb(verb));
            let found = of_verb.any(|stats| (stats.calls, stats.refused) == (calls, refused));
            assert!(found, "{verb}: {all:#?}");
        }
    });
}

#[test]
fn bring_up_can_be_refused_by_name() {
    let rules = "fault:path_number@2=InsufficientResources;path_receive@1=InvalidAddress;\
                 path_send@1=InvalidIrdOrd;set_qkey@2=CannotChange";
    in_every_place("bring_up_can_be_refused_by_name", rules, |ends| {
        let number = ends.number().unwrap();
        assert_eq!(ends.number().unwrap_err().status, VpStatus::InsufficientResources);
        assert_eq!(ends.number(), Ok(number));
        // What is refused by a rule does not reach the provider.
        assert_eq!(ends.receive().unwrap_err().status, VpStatus::InvalidAddress);
        ends.receive().unwrap();
        assert_eq!(ends.send().unwrap_err().status, VpStatus::InvalidIrdOrd);
        assert_eq!(ends.qp.query().unwrap().state, QpState::Idle);
        ends.send().unwrap();
        assert_eq!(ends.qp.query().unwrap().state, QpState::Rts);
        ends.ud.set_qkey(7).unwrap();
        assert_eq!(ends.ud.set_qkey(8).unwrap_err().status, VpStatus::CannotChange);
        assert_eq!(ends.ud.address().qkey, 7);
    });
}

/// The C source implements `ri_path_ops` and `set_qkey`, and calls those of the provider inside: values and errors cross
/// from Rust to C and from C to Rust, and back.
#[test]
fn bring_up_crosses_an_implementation_in_c() {
    const TEST: &str = "bring_up_crosses_an_implementation_in_c";
    if !is_alone(&format!("paths::{TEST}")) {
        return;
    }
    let Some(library) = layer_of(TEST, "paths") else {
        return warpline_skip::skip(TEST, warpline_skip::missing("gcc"));
    };
    let ends = Ends::new(&[format!("layer:{}", library.display())]);
    let refused = |done: VpResult<()>, status, detail: &str| {
        let error = done.unwrap_err();
        assert_eq!(error.status, status, "{error}");
        assert!(error.to_string().contains(detail), "{error}");
    };
    let number = ends.number().unwrap();
    assert_eq!(ends.number(), Ok(number));
    // Errors of the provider inside, through C.
    refused(ends.send(), VpStatus::InvalidState, "does not receive by path");
    let unknown = ends.paths.number(QpId(0xffff)).map(drop);
    refused(unknown, VpStatus::InvalidHandle, "");
    // Errors of C.
    let other = Ipv4Addr::new(127, 0, 0, 2);
    refused(ends.receive_from(other), VpStatus::InvalidAddress, "C takes only loopback");
    ends.receive().unwrap();
    refused(ends.receive(), VpStatus::InvalidState, "");
    let sender = PathSender { psn: 0xab_cdef, ..SENDER };
    let sent = ends.paths.send(ends.qp.id(), &sender);
    refused(sent, VpStatus::InvalidModifier, "C takes no PSN of 0xabcdef");
    assert_eq!(ends.qp.query().unwrap().state, QpState::Idle);
    ends.send().unwrap();
    let info = ends.qp.query().unwrap();
    assert_eq!((info.state, info.ord), (QpState::Rts, SENDER.ord));

    refused(ends.ud.set_qkey(0), VpStatus::CannotChange, "C takes no key of 0");
    ends.ud.set_qkey(0x1234).unwrap();
    assert_eq!(ends.ud.address().qkey, 0x1234);
    drop(ends);
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}
