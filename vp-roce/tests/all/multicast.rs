//! Multicast groups of queue pairs for datagrams, in several processes and of several users; and shared receive queues.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use vp_api::*;
use warpline_patience::until;

use crate::alone::{alone, beside_strangers, other, part, stranger};
use crate::end::pattern;
use crate::ud_end::UdEnd;

const LEN: usize = 1000;
const GROUP: &str = "239.1.2.3";

fn gid(text: &str) -> [u8; 16] {
    match text.parse().unwrap() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The path to a group from the loopback.
fn to(end: &UdEnd, group: &str) -> VpResult<AhId> {
    let (local_gid, remote_gid) = (gid("127.0.0.1"), gid(group));
    let path = DatagramPath { port: ANY_PORT, local_gid, remote_gid, ..DatagramPath::default() };
    end.ud.create_ah(end.pd, &path)
}

/// Everybody who is attached with this key.
fn all(of: &UdEnd) -> UdAddress {
    UdAddress { qpn: MULTICAST_QPN, qkey: of.qp.address().qkey }
}

/// A member in another process: attaches, and gets one datagram.
#[test]
fn listens() {
    if part().as_deref() != Some("listen") {
        return;
    }
    let end = UdEnd::new();
    end.recv(1, 0, LEN);
    end.qp.attach(gid(GROUP)).unwrap();
    println!("attached;");
    let (wc, from) = end.completion();
    assert_eq!((wc.octets as usize, wc.immediate), (GRH_OCTETS + LEN, Some(7)));
    assert_eq!(end.read(GRH_OCTETS, LEN), pattern(LEN, 3));
    // The header names the group.
    assert_eq!(end.read(32, 8), [127, 0, 0, 1, 239, 1, 2, 3]);
    assert!(end.ud.create_ah(end.pd, &from.unwrap().path.unwrap()).is_ok(), "the path back");
    println!("received;");
    std::thread::park();
}

fn sends_to(mut members: [crate::alone::Other; 2]) {
    let end = UdEnd::new();
    let ah = to(&end, GROUP).unwrap();
    end.region.write_at(0, &pattern(LEN, 3)).unwrap();
    for member in &mut members {
        member.says("attached");
    }
    end.send(2, (ah, all(&end)), end.sge(0, LEN), Some(7));
    assert_eq!(end.completion().0.wr_id, 2);
    for member in &mut members {
        member.says("received");
    }
    // One that is killed takes its membership along, and the other goes on.
    members[0].kill();
    end.send(3, (ah, all(&end)), end.sge(0, LEN), Some(7));
    assert_eq!(end.completion().0.wr_id, 3);
    assert!(members[1].runs());
}

// [IBUD-04]
#[test]
fn a_datagram_for_a_group_reaches_each_process() {
    alone("multicast::a_datagram_for_a_group_reaches_each_process", || {
        sends_to([other("multicast::listens", "listen"), other("multicast::listens", "listen")]);
    });
}

#[test]
fn a_process_of_another_user_has_the_group_too() {
    beside_strangers("multicast::a_process_of_another_user_has_the_group_too", || {
        // Its address is another one than the stranger's.
        let end = UdEnd::new();
        let mut member = stranger("multicast::joins_alone", "join");
        member.says("attached");
        end.qp.attach(gid(GROUP)).unwrap();
        end.recv(1, 4096, LEN);
        member.says("sent");
        assert_eq!(end.completion().0.wr_id, 1);
    });
}

/// Another user's process: attaches, and sends to the group from an address of its own until it is ended.
#[test]
fn joins_alone() {
    if part().as_deref() != Some("join") {
        return;
    }
    let rnic = crate::end::open();
    let (pd, ud) = (rnic.alloc_pd().unwrap(), rnic.datagrams().unwrap());
    let (local_gid, remote_gid) = (gid("127.0.0.9"), gid(GROUP));
    let path = DatagramPath { port: ANY_PORT, local_gid, remote_gid, ..DatagramPath::default() };
    let ah = ud.create_ah(pd, &path).unwrap();
    let cq = rnic.create_cq(&CqInit { depth: 1024, handler: None }).unwrap();
    let qp = ud.create_qp(&UdQpInit { port: ANY_PORT, ..UdQpInit::new(pd, cq.id(), cq.id()) });
    let qp = qp.unwrap();
    qp.attach(gid(GROUP)).unwrap();
    println!("attached;");
    let to = UdAddress { qpn: MULTICAST_QPN, qkey: qp.address().qkey };
    let (data, flags) = (Data::Inline(&[]), SendFlags::SIGNALED);
    let wr = UdSendWr { wr_id: 1, data, flags, solicited: false, immediate: None, ah, to };
    println!("sent;");
    loop {
        qp.post_send(&[wr]).unwrap();
        let mut out = [WorkCompletion::BLANK];
        until("a completion", || cq.poll(&mut out).unwrap() == 1);
    }
}

/// Each queue pair gets a copy, the sender's too, until it is detached or destroyed.
#[test]
fn each_attached_queue_pair_gets_a_copy() {
    alone("multicast::each_attached_queue_pair_gets_a_copy", || {
        let ends = [UdEnd::new(), UdEnd::new(), UdEnd::new()];
        let group = gid(GROUP);
        for end in &ends[..2] {
            end.qp.attach(group).unwrap();
            end.qp.attach(group).unwrap();
        }
        ends.iter().for_each(|end| (1..4).for_each(|n| end.recv(n, 4096, LEN)));
        let from = &ends[0];
        let ah = to(from, GROUP).unwrap();
        let send = |way| {
            from.send(9, way, from.sge(0, LEN), None);
        };
        send((ah, all(from)));
        let mut both = [from.completion().0.wr_id, from.completion().0.wr_id];
        both.sort_unstable();
        assert_eq!(both, [1, 9], "one copy, and the end of the send");
        assert_eq!(ends[1].completion().0.wr_id, 1);
        // With another key, or for the queue pair itself, at the group's address.
        let wrong = UdAddress { qkey: 5, ..all(from) };
        send((ah, wrong));
        send((ah, from.qp.address()));
        assert_eq!([from.completion().0.wr_id, from.completion().0.wr_id], [9, 9]);
        from.qp.detach(group).unwrap();
        assert_eq!(from.qp.detach(group).unwrap_err().status, VpStatus::InvalidModifier);
        send((ah, all(from)));
        assert_eq!(ends[1].completion().0.wr_id, 2);
        assert_eq!(from.completion().0.wr_id, 9, "detached");
        assert_eq!(ends[2].qp.query().unwrap().recvs_outstanding, 3, "never attached");
        let [.., last] = ends;
        drop(last);
    });
}

#[test]
fn groups_are_bounded_and_free_when_their_queue_pairs_are_destroyed() {
    let test = "multicast::groups_are_bounded_and_free_when_their_queue_pairs_are_destroyed";
    alone(test, || {
        let end = UdEnd::new();
        let status = |result: VpResult<()>| result.unwrap_err().status;
        assert_eq!(status(end.qp.attach(gid("10.0.0.1"))), VpStatus::InvalidModifier);
        assert_eq!(status(end.qp.attach([0; 16])), VpStatus::InvalidModifier);
        let most = end.ud.attrs().max_groups;
        let flood = || {
            let init = UdQpInit::new(end.pd, end.cq.id(), end.cq.id());
            let qp = end.ud.create_qp(&init).unwrap();
            let group = |n: u32| gid(&format!("239.9.{}.{}", n / 200, n % 200));
            (0..most).for_each(|n| qp.attach(group(n)).unwrap());
            assert_eq!(status(qp.attach(group(most))), VpStatus::InsufficientResources);
            qp
        };
        for _ in 0..2 {
            let qp = flood();
            end.ud.destroy_qp(qp.id()).unwrap();
            assert_eq!(status(qp.attach(gid(GROUP))), VpStatus::InvalidHandle);
        }
        // The loopback has no way to groups of IPv6.
        let (local_gid, remote_gid) = (gid("::1"), gid("ff15::7"));
        let path =
            DatagramPath { port: ANY_PORT, local_gid, remote_gid, ..DatagramPath::default() };
        let error = end.ud.create_ah(end.pd, &path).unwrap_err();
        assert_eq!(error.status, VpStatus::InvalidAddress);
        assert!(error.to_string().contains("cannot leave by lo"), "{error}");
    });
}

/// Queue pairs are attached, detached and destroyed by one thread while datagrams arrive.
#[test]
fn members_come_and_go_while_datagrams_arrive() {
    alone("multicast::members_come_and_go_while_datagrams_arrive", || {
        let (end, group) = (UdEnd::new(), gid(GROUP));
        let ah = to(&end, GROUP).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..300 {
                    let member = UdEnd::new();
                    member.recv(1, 0, LEN);
                    member.qp.attach(group).unwrap();
                    member.completion();
                    if member.qp.query().unwrap().recvs_outstanding == 0 {
                        member.qp.detach(group).unwrap();
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                end.send(1, (ah, all(&end)), end.sge(0, 8), None);
                end.completion();
            }
        });
    });
}

/// Two queue pairs take their receives from one queue.
#[test]
fn queue_pairs_for_datagrams_share_receives() {
    alone("multicast::queue_pairs_for_datagrams_share_receives", || {
        let end = UdEnd::new();
        let rnic = end.rnic();
        let init = SrqInit { pd: end.pd, depth: 4, max_sge: 1, limit: 2 };
        let srq = rnic.create_srq(&init).unwrap();
        let make = || {
            let init = UdQpInit {
                port: ANY_PORT,
                srq: Some(srq.id()),
                ..UdQpInit::new(end.pd, end.cq.id(), end.cq.id())
            };
            end.ud.create_qp(&init).unwrap()
        };
        let (a, b) = (make(), make());
        assert_eq!(rnic.destroy_srq(srq.id()).unwrap_err().status, VpStatus::InUse);
        let own = RecvWr { wr_id: 1, sgl: &[end.sge(0, GRH_OCTETS + LEN)] };
        assert_eq!(a.post_recv(&[own]).unwrap_err().status, VpStatus::InvalidWr);
        let post = |wr_id| {
            let sgl = &[end.sge(4096 * wr_id as usize, GRH_OCTETS + LEN)];
            srq.post_recv(&[RecvWr { wr_id, sgl }]).unwrap();
        };
        let (local_gid, remote_gid) = (gid("127.0.0.1"), gid("127.0.0.1"));
        let path =
            DatagramPath { port: ANY_PORT, local_gid, remote_gid, ..DatagramPath::default() };
        let ah = end.ud.create_ah(end.pd, &path).unwrap();
        let send = |to: UdAddress, len| {
            end.send(9, (ah, to), end.sge(0, len), None);
        };
        let sorted = |count| {
            let mut all: Vec<_> = (0..count).map(|_| end.completion().0).collect();
            all.sort_unstable_by_key(|wc| wc.wr_id);
            all
        };
        // More than the queue is deep, so that slots are free again.
        for round in 0..5 {
            (1..=4).for_each(post);
            for to in [&a, &b, &b, &a] {
                send(to.address(), LEN);
            }
            let all = sorted(8);
            assert!(all[..4].iter().zip(1..).all(|(wc, n)| wc.wr_id == n), "{round} {all:?}");
            let of_a = all[..4].iter().filter(|wc| wc.qp == a.id()).count();
            assert_eq!(of_a, 2, "each knows its queue pair");
        }
        // One that is too long holds a receive, which the queue pair's end completes.
        post(1);
        send(a.address(), LEN + 1);
        assert_eq!(end.completion().0.wr_id, 9);
        until("it arrives", || {
            end.cq.poll(&mut []).unwrap();
            end.record.dropped[2].load(Ordering::Relaxed) == 1
        });
        a.modify(UdState::Error).unwrap();
        assert_eq!(end.completion().0.status, WcStatus::Flushed);
        post(2);
        send(b.address(), LEN);
        assert_eq!(sorted(2)[0].wr_id, 2, "the rest stays for others");
        for qp in [a, b] {
            end.ud.destroy_qp(qp.id()).unwrap();
        }
        rnic.destroy_srq(srq.id()).unwrap();
    });
}
