//! Tests of the end of a connection: it is reported once to each identifier, whatever is destroyed
//! first; and what a destroyed identifier leaves behind.

use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::mpsc;
use std::thread;

use ibv_sys::*;
use ofa::verbs::async_event::*;
use ofa::verbs::mr::warpline_ibv_dereg_mr;
use ofa::verbs::qp::warpline_ibv_modify_qp;

use crate::common::*;
use crate::data::*;
use crate::on_roce::on_both;
use crate::watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Disconnect,
    DestroyQp,
    BreakQp,
}

fn end(id: *mut rdma_cm_id, by: By) {
    match by {
        By::Disconnect => done!(warpline_rdma_disconnect(id)),
        By::DestroyQp => call!(warpline_rdma_destroy_qp(id)),
        By::BreakQp => {
            let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
            done!(warpline_ibv_modify_qp(shown(id).qp, &raw mut attr, IBV_QP_STATE));
        }
    }
}

#[test]
fn each_end_gets_one_event_however_it_ends() {
    for (active, passive) in [
        (Some(By::Disconnect), None),
        (None, Some(By::Disconnect)),
        (Some(By::DestroyQp), None),
        (None, Some(By::DestroyQp)),
        (Some(By::BreakQp), None),
        (Some(By::Disconnect), Some(By::Disconnect)),
        (Some(By::DestroyQp), Some(By::DestroyQp)),
        (Some(By::Disconnect), Some(By::DestroyQp)),
    ] {
        let pair = Pair::new();
        active.into_iter().for_each(|by| end(pair.active, by));
        passive.into_iter().for_each(|by| end(pair.passive, by));
        for (channel, id) in [(pair.near, pair.active), (pair.far, pair.passive)] {
            let seen = next(channel);
            assert_eq!(
                (seen.kind, seen.status, seen.id),
                (RDMA_CM_EVENT_DISCONNECTED, 0, id),
                "{active:?} {passive:?}"
            );
            // As most programs do: the connection has ended, and no event follows.
            done!(warpline_rdma_disconnect(id));
            call!(warpline_rdma_destroy_qp(id));
            assert!(!has_event(channel), "{active:?} {passive:?}");
        }
        pair.end();
    }
}

/// A transition that begins before the end must not return the queue pair to a state that it has left.
#[test]
fn an_end_during_changes_of_state_is_kept() {
    for _ in 0..20 {
        let pair = Pair::new();
        let qp = shown(pair.active).qp;
        let address = qp.expose_provenance();
        let changer = thread::spawn(move || {
            let qp = with_exposed_provenance_mut(address);
            let states = [IBV_QPS_SQD, IBV_QPS_RTS].into_iter().cycle();
            let change = |qp_state| {
                let mut attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
                call!(warpline_ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE))
            };
            states.map(change).find(|refused| *refused != 0)
        });
        done!(warpline_rdma_disconnect(pair.passive));
        expect(pair.near, RDMA_CM_EVENT_DISCONNECTED);
        expect(pair.far, RDMA_CM_EVENT_DISCONNECTED);
        warpline_patience::until("a transition to be refused", || changer.is_finished());
        assert_eq!(changer.join().unwrap(), Some(libc::EINVAL));
        // SAFETY: the identifier's queue pair; the library writes its state.
        assert_eq!(unsafe { (&raw const (*qp).state).read_volatile() }, IBV_QPS_ERR);
        pair.end();
    }
}

#[test]
fn the_peer_gets_an_event_when_an_identifier_is_destroyed() {
    let pair = Pair::new();
    done!(warpline_rdma_destroy_id(pair.active));
    assert_eq!(expect(pair.far, RDMA_CM_EVENT_DISCONNECTED), pair.passive);
    assert!(!has_event(pair.near));
    for id in [pair.passive, pair.listener] {
        call!(warpline_rdma_destroy_qp(id));
        done!(warpline_rdma_destroy_id(id));
    }
}

#[test]
fn an_attempt_ends_with_its_queue_pair() {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    let active = resolved(near, &at);
    done!(warpline_rdma_connect(active, null_mut()));
    call!(warpline_rdma_destroy_qp(active));
    let seen = next(near);
    assert_eq!((seen.kind, seen.status), (RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET));
    // The request itself may not have arrived.
    for id in [active, door] {
        done!(warpline_rdma_destroy_id(id));
    }
    for channel in [near, far] {
        call!(warpline_rdma_destroy_event_channel(channel));
    }
}

#[test]
fn an_identifier_waits_for_its_events_to_be_acknowledged() {
    let near = channel();
    let id = id_on(near);
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:9"), 1000));
    done!(warpline_rdma_resolve_route(id, 1000));
    let event = fetch(near);
    assert_eq!(event.event, RDMA_CM_EVENT_ADDR_RESOLVED);
    // The second is removed from the queue, the acknowledgement of the first is awaited.
    let destroyed = id.expose_provenance();
    let destroyer = thread::spawn(move || {
        let id = with_exposed_provenance_mut(destroyed);
        done!(warpline_rdma_destroy_id(id));
    });
    warpline_patience::until("the event to be removed", || !has_event(near));
    assert!(!destroyer.is_finished());
    done!(warpline_rdma_ack_cm_event(event));
    destroyer.join().unwrap();
    call!(warpline_rdma_destroy_event_channel(near));
}

#[test]
fn an_identifier_that_is_migrated_keeps_its_events() {
    let (old, new) = (channel(), channel());
    let [moving, staying] = [(); 2].map(|()| id_on(old));
    for id in [moving, staying] {
        done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:9"), 1000));
        done!(warpline_rdma_resolve_route(id, 1000));
    }
    done!(warpline_rdma_migrate_id(moving, new));
    assert_eq!(shown(moving).channel, new);
    for (channel, id) in [(old, staying), (new, moving)] {
        assert_eq!(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED), id);
        assert_eq!(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), id);
        assert!(!has_event(channel));
        done!(warpline_rdma_destroy_id(id));
        call!(warpline_rdma_destroy_event_channel(channel));
    }
}

const MESSAGES: usize = 8;

/// Programs for InfiniBand treat a completion as delivery, and destroy everything at once.
#[test]
fn completed_data_arrives_although_everything_is_destroyed_at_once() {
    let pair = Pair::new();
    let mut inbox = vec![0u8; MESSAGES << 20];
    let mut outbox: Vec<u8> = (0..1 << 20).map(|n| n as u8).collect();
    let into = register(pair.passive, &mut inbox);
    let from = register(pair.active, &mut outbox);
    for message in 0..MESSAGES {
        post_recv(pair.passive, &mut inbox[message << 20..][..1 << 20], into);
    }
    for _ in 0..MESSAGES {
        post_send(pair.active, &mut outbox, from);
    }
    assert_eq!(completions(shown(pair.active).send_cq, MESSAGES), MESSAGES);
    call!(warpline_rdma_destroy_qp(pair.active));
    done!(warpline_ibv_dereg_mr(from));
    done!(warpline_rdma_destroy_id(pair.active));
    assert_eq!(completions(shown(pair.passive).recv_cq, MESSAGES), MESSAGES);
    assert!(inbox.chunks(1 << 20).all(|message| message == outbox));
    assert_eq!(expect(pair.far, RDMA_CM_EVENT_DISCONNECTED), pair.passive);
    call!(warpline_rdma_destroy_qp(pair.passive));
    done!(warpline_ibv_dereg_mr(into));
    for id in [pair.passive, pair.listener] {
        done!(warpline_rdma_destroy_id(id));
    }
}

/// A thread that fetches an event, once it sleeps; and what the call returns.
fn sleeper(channel: *mut rdma_event_channel) -> mpsc::Receiver<i32> {
    let address = channel.expose_provenance();
    let (sender, receiver) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        sender.send(rustix::thread::gettid()).unwrap();
        let mut event = null_mut();
        let channel = with_exposed_provenance_mut(address);
        let _ = end.send(call!(warpline_rdma_get_cm_event(channel, &raw mut event)));
    });
    let stat = format!("/proc/self/task/{}/stat", receiver.recv().unwrap().as_raw_nonzero());
    warpline_patience::until("the thread to sleep", || {
        std::fs::read_to_string(&stat).unwrap().contains(") S ")
    });
    ended
}

/// As rping does, which exits afterwards. With rdma-core the thread stays in read(2).
#[test]
fn a_thread_goes_on_waiting_at_a_channel_that_is_destroyed() {
    let channel = channel();
    let fd = descriptor(channel);
    let ended = sleeper(channel);
    call!(warpline_rdma_destroy_event_channel(channel));
    // The descriptor for which it waits stays open, so that no other file gets its number.
    assert!(rustix::io::fcntl_getfd(fd).is_ok());
    assert!(ended.try_recv().is_err());
    // A call that begins now leaves the program time to end, and is refused then.
    assert_eq!(sleeper(channel).recv(), Ok(-1));
    assert!(ended.try_recv().is_err());
}

/// `IBV_EVENT_QP_LAST_WQE_REACHED` of this queue pair, among events that are queued now; all are acknowledged.
fn last_requests(context: *mut ibv_context, qp: *mut ibv_qp) -> usize {
    let mut found = 0;
    // SAFETY: the open device's descriptor.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw((*context).async_fd) };
    while watch::readable(fd) {
        let element = event_element { port_num: 0 };
        let mut event = ibv_async_event { element, event_type: u32::MAX };
        done!(warpline_ibv_get_async_event(context, &raw mut event));
        // SAFETY: only compared.
        let own = unsafe { event.element.qp } == qp;
        found += usize::from(own && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
        call!(warpline_ibv_ack_async_event(&raw mut event));
    }
    found
}

#[test]
fn a_queue_pair_with_a_shared_receive_queue_reports_its_last_request_once() {
    on_both("ends::a_queue_pair_with_a_shared_receive_queue_reports_its_last_request_once", || {
        for (own, peer) in [
            (Some(By::Disconnect), None),
            (Some(By::BreakQp), None),
            (None, Some(By::Disconnect)),
            (Some(By::BreakQp), Some(By::BreakQp)),
        ] {
            let (near, far) = (channel(), channel());
            let (listener, at) = listener(far);
            let active = resolved(near, &at);
            done!(warpline_rdma_connect(active, &mut params(&[])));
            let passive = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
            let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
            let mut shared = ibv_srq_init_attr { srq_context: null_mut(), attr };
            done!(warpline_rdma_create_srq(passive, null_mut(), &mut shared));
            create_qp(passive);
            done!(warpline_rdma_accept(passive, &mut params(&[])));
            expect(near, RDMA_CM_EVENT_ESTABLISHED);
            expect(far, RDMA_CM_EVENT_ESTABLISHED);
            own.into_iter().for_each(|by| end(passive, by));
            peer.into_iter().for_each(|by| end(active, by));
            expect(near, RDMA_CM_EVENT_DISCONNECTED);
            expect(far, RDMA_CM_EVENT_DISCONNECTED);
            end(passive, By::BreakQp);
            let (context, qp) = (shown(passive).verbs, shown(passive).qp);
            assert_eq!(last_requests(context, qp), 1, "{own:?} {peer:?}");
            call!(warpline_rdma_destroy_qp(passive));
            call!(warpline_rdma_destroy_srq(passive));
            Pair { near, far, listener, active, passive }.end();
        }
    });
}
