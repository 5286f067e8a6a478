//! Tests of the texts about the end of a connection.

use super::*;
use crate::event::itw_event_text;

fn text(event: &it_event_t) -> String {
    let mut buf = [0; 1000];
    c!(itw_event_text(event, buf.as_mut_ptr(), buf.len()));
    c!(crate::ptr::text(buf.as_ptr(), buf.len(), "buf")).unwrap()
}

/// A receive that was posted before has the reason why there is no connection.
#[test]
fn flushed_requests_name_the_peers_reject() {
    let side = Side::new();
    let (_listen, port) = side.listen();
    let ep = side.ep();
    assert_eq!(receive(ep.cast(), &[], 1), IT_SUCCESS);
    side.connect(ep, port);
    assert_eq!(c!(it_reject(side.request(), null(), 0)), IT_SUCCESS, "{}", last());
    let event = wait(side.dto);
    assert_eq!(Dto::of(&event).status, IT_DTO_ERR_FLUSHED);
    for described in [last(), text(&event)] {
        assert!(described.contains("cm-rejected: the application at "), "{described}");
    }
}

#[test]
fn requests_flushed_by_this_end_name_this_end() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    assert_eq!(receive(a.cast(), &[], 1), IT_SUCCESS);
    assert_eq!(it_ep_disconnect(a, null(), 0), IT_SUCCESS, "{}", last());
    let event = wait(side.dto);
    for described in [last(), text(&event)] {
        assert!(described.ends_with(" was closed by this end"), "{described}");
    }
}

// [itw_last_error] [itw_event_text]
#[test]
fn the_first_failed_request_names_the_end_and_the_cause() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let affiliated = dispatcher(side.ia, IT_ASYNC_AFF_EVENT_STREAM, 16);
    let memory = side.memory(64, IT_PRIV_ALL);
    // A receive to be flushed here, none there.
    assert_eq!(receive(a.cast(), &[memory.part(0, 8)], 1), IT_SUCCESS);
    assert_eq!(send(a, &[memory.part(8, 5)], 2, NOTIFY), IT_SUCCESS);
    let cause = "this end's Send of 5 octets found no receive posted (layer 1, type 2, code 0x02)";
    let event = loop {
        let event = wait(side.dto);
        if Dto::of(&event).status != IT_DTO_SUCCESS {
            break event;
        }
    };
    for described in [last(), text(&event)] {
        assert!(described.contains("cm-terminated-by-peer: the connection of "), "{described}");
        assert!(described.contains(cause) && described.contains("127.0.0.1:"), "{described}");
    }
    for _ in 0..2 {
        let event = wait(affiliated);
        // SAFETY: plain data.
        let cause = unsafe { event.aff_async }.cause;
        // SAFETY: plain data, each member of which is a handle.
        let ep = unsafe { cause.ep };
        let (described, whose) = (text(&event), if ep == b { "the peer's" } else { "this end's" });
        assert!(
            described.contains(&format!("{whose} Send of 5 octets found no receive")),
            "{described}"
        );
        assert!(described.contains("the connection of "), "{described}");
    }
}

// [itw_last_error]
#[test]
fn a_post_names_the_state_and_a_stale_handle_no_kind() {
    let side = Side::new();
    let ep = side.ep();
    assert_eq!(send(ep, &[], 1, NOTIFY), IT_ERR_INVALID_EP_STATE);
    assert!(last().contains("the endpoint is unconnected; requests are taken once"), "{}", last());
    assert_eq!(it_ep_free(ep), IT_SUCCESS, "{}", last());
    assert_eq!(receive(ep.cast(), &[], 1), IT_ERR_INVALID_HANDLE);
    assert!(last().contains("of no endpoint and no shared receive queue"), "{}", last());
}

// [itw_event_text]
#[test]
fn a_receive_into_memory_without_the_right_names_it() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(64, IT_PRIV_LOCAL_READ);
    assert_eq!(receive(b.cast(), &[memory.part(0, 8)], 1), IT_SUCCESS, "{}", last());
    assert_eq!(send(a, &[memory.part(8, 5)], 2, NOTIFY), IT_SUCCESS);
    let event = loop {
        let event = wait(side.dto);
        if Dto::of(&event).cookie == 1 {
            break event;
        }
    };
    assert_eq!(Dto::of(&event).status, IT_DTO_ERR_LOCAL_PROTECTION);
    assert!(
        text(&event).contains("a receive, RDMA Read or atomic needs IT_PRIV_LOCAL_WRITE"),
        "{}",
        text(&event)
    );
}
