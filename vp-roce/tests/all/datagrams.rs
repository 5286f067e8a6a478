//! Datagrams between processes, and what a peer may send to a queue pair for datagrams.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use roce_proto::psn::Psn;
use roce_proto::ud::Outgoing;
use vp_api::*;

use crate::alone::{alone, other, part};
use crate::end::pattern;
use crate::peer::Peer;
use crate::ud_end::UdEnd;

const LEN: usize = 1000;

/// The other process of the test below: returns a datagram to its sender.
#[test]
fn returns() {
    if part().as_deref() != Some("return") {
        return;
    }
    let (end, at) = UdEnd::listening("127.0.0.2:0");
    end.recv(1, 0, LEN);
    println!("listening {at}");
    end.answer();
    let (wc, from) = end.completion();
    assert_eq!((wc.wr_id, wc.octets as usize), (1, GRH_OCTETS + LEN));
    let from = from.unwrap();
    let ah = end.ud.create_ah(end.pd, &from.path.unwrap()).unwrap();
    let to = UdAddress { qpn: from.qpn, qkey: wc.immediate.unwrap() as u32 };
    end.send(2, (ah, to), end.sge(GRH_OCTETS, LEN), None);
    assert_eq!(end.completion().0.wr_id, 2);
}

#[test]
fn a_datagram_goes_to_another_process_and_back() {
    alone("datagrams::a_datagram_goes_to_another_process_and_back", || {
        let end = UdEnd::new();
        let mut peer = other("datagrams::returns", "return");
        let there: SocketAddr = peer.says("listening").parse().unwrap();
        let way = end.resolve(there);
        end.recv(1, 4096, LEN);
        end.region.write_at(0, &pattern(LEN, 3)).unwrap();
        end.send(2, way, end.sge(0, LEN), Some(end.qp.address().qkey));
        let (sent, _) = end.completion();
        assert_eq!((sent.wr_id, sent.status), (2, WcStatus::Success));
        let (wc, from) = end.completion();
        assert_eq!((wc.wr_id, wc.status, wc.immediate), (1, WcStatus::Success, None));
        assert_eq!(from.unwrap().qpn, way.1.qpn);
        assert_eq!(end.read(4096 + GRH_OCTETS, LEN), pattern(LEN, 3));
        peer.ends();
    });
}

/// A queue pair of every port receives at each address, and a path may name its port by the local GID alone. The
/// key can change.
#[test]
fn a_queue_pair_of_every_port_receives_at_each_address_with_its_present_key() {
    let test =
        "datagrams::a_queue_pair_of_every_port_receives_at_each_address_with_its_present_key";
    alone(test, || {
        let end = UdEnd::new();
        let everywhere =
            UdQpInit { port: ANY_PORT, ..UdQpInit::new(end.pd, end.cq.id(), end.cq.id()) };
        let qp = end.ud.create_qp(&everywhere).unwrap();
        let gid = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        qp.set_qkey(0x77).unwrap();
        assert_eq!(qp.address().qkey, 0x77);
        for address in ["127.0.0.1", "::1"] {
            let (local_gid, remote_gid) = (gid(address), gid(address));
            let path =
                DatagramPath { port: ANY_PORT, local_gid, remote_gid, ..DatagramPath::default() };
            let ah = end.ud.create_ah(end.pd, &path).unwrap();
            qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[end.sge(4096, GRH_OCTETS + LEN)] }]).unwrap();
            let old = UdAddress { qkey: end.qp.address().qkey, ..qp.address() };
            end.send(2, (ah, old), end.sge(0, LEN), None);
            assert_eq!(end.completion().0.wr_id, 2);
            end.send(3, (ah, qp.address()), end.sge(0, LEN), Some(3));
            // It may arrive before its sender has queued the completion.
            let mut both = [end.completion(), end.completion()];
            both.sort_by_key(|(wc, _)| wc.wr_id);
            let [(wc, from), (sent, _)] = both;
            assert_eq!((wc.wr_id, sent.wr_id), (1, 3));
            assert_eq!(wc.immediate, Some(3), "the other key is dropped");
            assert_eq!(from.unwrap().path.unwrap().remote_gid, remote_gid);
        }
        let foreign = DatagramPath {
            port: ANY_PORT,
            local_gid: gid("192.0.2.1"),
            remote_gid: gid("127.0.0.1"),
            ..DatagramPath::default()
        };
        let refused = end.ud.create_ah(end.pd, &foreign).unwrap_err();
        assert_eq!(refused.status, VpStatus::InvalidAddress);
    });
}

// [IBUD-01] [IBUD-02] [IBUD-03]
#[test]
fn only_what_is_whole_and_has_the_key_and_fits_arrives() {
    alone("datagrams::only_what_is_whole_and_has_the_key_and_fits_arrives", || {
        let end = UdEnd::new();
        let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::LOCALHOST.into());
        let UdAddress { qpn, qkey } = end.qp.address();
        let good = Outgoing {
            destination: qpn,
            source: 0x1234,
            qkey,
            psn: Psn::new(0),
            immediate: Some(5),
            solicited: false,
            len: 20,
        };
        // Without a receive.
        peer.send_datagram(good, &[1; 20]);
        // It is handled before what follows, and so are the next ones.
        let barrier = |peer: &Peer| {
            let marks = UdEnd::new();
            marks.recv(1, 0, 0);
            let UdAddress { qpn, qkey } = marks.qp.address();
            let mark = Outgoing { destination: qpn, qkey, immediate: None, len: 0, ..good };
            peer.send_datagram(mark, &[]);
            assert_eq!(marks.completion().0.status, WcStatus::Success);
        };
        barrier(&peer);
        end.recv(7, 0, 40);
        peer.send_datagram(Outgoing { qkey: qkey ^ 1, ..good }, &[2; 20]);
        // Too long for the receive, which stays posted; and for the path.
        peer.send_datagram(Outgoing { len: 44, ..good }, &[3; 44]);
        peer.send_datagram(Outgoing { len: 5000, ..good }, &[4; 5000]);
        // One bit wrong in each octet that the invariant CRC covers.
        let mut whole = good.headers().emit().as_slice().to_vec();
        whole.extend([5; 20]);
        peer.seal(&mut whole);
        for at in (0..whole.len()).filter(|at| *at != 4) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (peer.random.next() % 8);
            peer.raw(&damaged);
        }
        // Packets of a connection.
        for opcode in 0..=0x17 {
            let mut packet = vec![0; 60];
            packet[0] = opcode;
            packet[4..8].copy_from_slice(&qpn.to_be_bytes());
            peer.seal(&mut packet);
            peer.raw(&packet);
        }
        barrier(&peer);
        let info = end.qp.query().unwrap();
        assert_eq!((info.state, info.recvs_outstanding), (UdState::Operational, 1));
        peer.send_datagram(good, &[6; 20]);
        let (wc, from) = end.completion();
        assert_eq!((wc.wr_id, wc.status), (7, WcStatus::Success));
        assert_eq!((wc.octets, wc.immediate), (60, Some(5)));
        let from = from.unwrap();
        let path = from.path.unwrap();
        assert_eq!((from.qpn, from.grh), (0x1234, true));
        assert_eq!(path.remote_gid[10..], [255, 255, 127, 0, 0, 3]);
        assert_eq!(path.local_gid[10..], [255, 255, 127, 0, 0, 1]);
        // 20 octets of zeros, and the IPv4 header.
        let header = end.read(0, GRH_OCTETS);
        assert_eq!(header[..20], [0; 20]);
        assert_eq!((header[20], header[29]), (0x45, 17));
        assert_eq!(header[32..], [127, 0, 0, 3, 127, 0, 0, 1]);
        assert_eq!(end.read(GRH_OCTETS, 20), [6; 20]);
        // Each is counted: one without a receive and one longer than it; and the damaged ones, of which those with
        // another number reached no queue pair.
        let [stray, damaged, unready, _] =
            end.record.dropped.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(unready, 2);
        assert!(stray >= 26 && damaged >= 30, "{stray} {damaged}");
    });
}
