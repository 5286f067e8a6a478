//! Tests of connect, reject, hand-off and conversion of sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};

use super::*;
use crate::zrl::*;

fn state(ep: it_ep_handle_t) -> it_ep_state_rc_t {
    let mut params = it_ep_param_t::zeroed();
    assert_eq!(c!(it_ep_query(ep, IT_EP_PARAM_STATE, &raw mut params)), IT_SUCCESS);
    // SAFETY: plain data.
    unsafe { params.ep_state.rc }
}

// [itw_ep_carrier]
#[test]
fn an_endpoint_reports_the_carrier_of_its_connection() {
    let side = Side::new();
    let carrier = |ep: it_ep_handle_t| {
        let mut buf = [0; 200];
        c!(itw_ep_carrier(ep, buf.as_mut_ptr(), buf.len()));
        c!(crate::ptr::text(buf.as_ptr(), buf.len(), "buf")).unwrap()
    };
    let (alone, both) = (side.ep(), side.pair(&attributes()));
    let off = std::env::var_os("WARPLINE_LOCAL").is_some_and(|local| local == "off");
    let tcp = "TCP (policy): the policy says local = \"off\"";
    assert_eq!(both.map(carrier), [if off { tcp } else { "local stream" }; 2]);
    assert_eq!([alone, null_mut()].map(carrier), [""; 2]);
    assert_eq!(last(), "the endpoint handle is IT_NULL_HANDLE");
}

#[test]
fn wrong_arguments_leave_the_endpoint_unconnected() {
    let side = Side::new();
    let (listen, port) = side.listen();
    let ep = side.ep();
    let (path, qualifier) = (path(), qualifier(port));
    let connect = |path: *const it_path_t, qual: *const it_conn_qual_t, flags, len| {
        c!(it_ep_connect(ep, path, null(), qual, flags, [0; 600].as_ptr(), len))
    };
    let mut nowhere = path;
    nowhere.u.iwarp = it_iwarp_net_endpoint_t { ip_vers: IT_IP_VERS_IPV4, ..Plain::zeroed() };
    let mut no_family = path;
    no_family.u.iwarp = Plain::zeroed();
    assert_eq!(connect(null(), &qualifier, 1, 0), IT_ERR_FAULT);
    assert_eq!(connect(&nowhere, &qualifier, 1, 0), IT_ERR_INVALID_ADDRESS);
    assert_eq!(connect(&no_family, &qualifier, 1, 0), IT_ERR_INVALID_ADDRESS);
    assert_eq!(connect(&path, null(), 1, 0), IT_ERR_FAULT);
    let zero = super::qualifier(0);
    assert_eq!(connect(&path, &zero, 1, 0), IT_ERR_INVALID_CONN_QUAL);
    let infiniband = it_conn_qual_t { r#type: IT_IB_SERVICEID, ..qualifier };
    assert_eq!(connect(&path, &infiniband, 1, 0), IT_ERR_INVALID_CONN_QUAL);
    assert_eq!(connect(&path, &qualifier, 2, 0), IT_ERR_INVALID_CN_EST_FLAGS);
    assert_eq!(connect(&path, &qualifier, 8, 0), IT_ERR_INVALID_CN_EST_FLAGS);
    assert_eq!(connect(&path, &qualifier, 1, 600), IT_ERR_INVALID_PDATA_LENGTH);
    assert_eq!(c!(it_ep_accept(ep, 1234, null(), 0)), IT_ERR_INVALID_CN_EST_ID);
    assert_eq!(c!(it_reject(1234, null(), 0)), IT_ERR_INVALID_CN_EST_ID);
    assert_eq!(state(ep), IT_EP_STATE_UNCONNECTED);
    let other = side.ep();
    side.connect(ep, port);
    assert_eq!(state(ep), IT_EP_STATE_ACTIVE1_CONNECTION_PENDING);
    assert_eq!(connect(&path, &qualifier, 1, 0), IT_ERR_INVALID_EP_STATE);
    let request = side.request();
    assert_eq!(c!(it_ep_accept(other, request, null(), 0)), IT_SUCCESS, "{}", last());
    assert_eq!(c!(it_ep_accept(other, request, null(), 0)), IT_ERR_INVALID_EP_STATE);
    assert_eq!(side.next_event().1, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    assert_eq!(side.next_event().1, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    assert_eq!((state(ep), state(other)), (IT_EP_STATE_CONNECTED, IT_EP_STATE_CONNECTED));
    assert_eq!(it_listen_free(listen), IT_SUCCESS);
    assert_eq!(it_listen_free(listen), IT_ERR_INVALID_LISTEN);
}

#[test]
fn a_request_is_rejected_with_private_data() {
    let side = Side::new();
    let (_listen, port) = side.listen();
    let ep = side.ep();
    side.connect(ep, port);
    let request = side.request();
    let rejected = c!(it_reject(request, c"no".as_ptr().cast(), 2));
    assert_eq!(rejected, IT_SUCCESS, "{}", last());
    // SAFETY: plain data.
    let conn = unsafe { wait(side.conn).conn };
    assert_eq!((conn.event_number, conn.ep), (IT_CM_MSG_CONN_PEER_REJECT_EVENT, ep));
    assert_eq!((&conn.private_data[..2], conn.private_data_present), (&b"no"[..], IT_TRUE));
    assert_eq!(state(ep), IT_EP_STATE_NONOPERATIONAL);
    assert_eq!(it_ep_reset(ep), IT_SUCCESS, "{}", last());
}

#[test]
fn a_request_is_handed_to_another_adapter() {
    let (side, other) = (Side::new(), Side::new());
    let (_first, port) = side.listen();
    let (second, there) = other.listen();
    let ep = side.ep();
    side.connect(ep, port);
    let request = side.request();
    let mut to = it_conn_qual_t { r#type: IT_IANA_PORT, ..it_conn_qual_t::zeroed() };
    assert_eq!(c!(it_handoff(&to, 0, request)), IT_ERR_INVALID_CONN_QUAL);
    to.conn_qual.port = 1u16.to_be();
    assert_eq!(c!(it_handoff(&to, 0, request)), IT_ERR_INVALID_CONN_QUAL, "{}", last());
    to.conn_qual.port = there;
    assert_eq!(c!(it_handoff(&to, 0, request)), IT_SUCCESS, "{}", last());
    assert_eq!(c!(it_handoff(&to, 0, request)), IT_ERR_INVALID_CN_EST_ID);
    let passive = other.ep();
    let accepted = c!(it_ep_accept(passive, other.request(), null(), 0));
    assert_eq!(accepted, IT_SUCCESS, "{}", last());
    assert_eq!(side.next_event(), (ep, IT_CM_MSG_CONN_ESTABLISHED_EVENT));
    assert_eq!(other.next_event(), (passive, IT_CM_MSG_CONN_ESTABLISHED_EVENT));
    assert_eq!(it_listen_free(second), IT_SUCCESS);
}

#[test]
fn a_query_returns_the_port_of_a_listener() {
    let side = Side::new();
    let (listen, port) = side.listen();
    let mut params = it_listen_param_t::zeroed();
    assert_eq!(c!(it_listen_query(listen, IT_LISTEN_PARAM_ALL, &raw mut params)), IT_SUCCESS);
    assert_eq!((params.ia_handle, params.connect_evd), (side.ia, side.requests));
    // SAFETY: plain data.
    assert_eq!(unsafe { params.connect_qual.conn_qual.port }, port);
    let mut made = null_mut();
    let mut create = |spigot, evd, flags, qualifier: *mut it_conn_qual_t| {
        c!(it_listen_create(side.ia, spigot, evd, flags, qualifier, &raw mut made))
    };
    let (input, evd) = (IT_LISTEN_CONN_QUAL_INPUT, side.requests);
    let taken = &raw mut params.connect_qual;
    assert_eq!(create(0, evd, input, taken), IT_ERR_CONN_QUAL_BUSY, "{}", last());
    assert_eq!(create(0, evd, input, null_mut()), IT_ERR_FAULT);
    assert_eq!(create(0, evd, 4, null_mut()), IT_ERR_INVALID_FLAGS);
    assert_eq!(create(9999, evd, 0, null_mut()), IT_ERR_INVALID_SPIGOT);
    assert_eq!(create(0, side.conn, 0, null_mut()), IT_ERR_INVALID_EVD_TYPE);
    assert_eq!(create(0, null_mut(), 0, null_mut()), IT_ERR_INVALID_CONN_EVD);
    let mut nothing = it_conn_qual_t::zeroed();
    assert_eq!(create(0, evd, input, &raw mut nothing), IT_ERR_INVALID_CONN_QUAL);
    assert_eq!(create(0, evd, IT_LISTEN_SUPPRESS_IRD_ORD, null_mut()), IT_SUCCESS);
}

/// Two ends of a TCP connection.
fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [active, listener.accept().unwrap().0]
}

#[test]
fn a_socket_becomes_a_connection() {
    let side = Side::new();
    let memory = side.memory(64, IT_PRIV_LOCAL);
    for flags in [IT_SC_DEFAULT, IT_SC_NO_REQ_REP] {
        let [mut client, server] = sockets();
        let [a, b] = [side.ep(), side.ep()];
        assert_eq!(receive(b.cast(), &[memory.part(32, 32)], 1), IT_SUCCESS);
        let word = b"now";
        let (sd, msg) = (server.into_raw_fd(), word.as_ptr());
        assert_eq!(c!(it_socket_convert(sd, b, flags, msg, 3)), IT_SUCCESS, "{}", last());
        let mut heard = [0; 3];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, word);
        let sd = client.into_raw_fd();
        assert_eq!(c!(it_socket_convert(sd, a, flags, null(), 0)), IT_SUCCESS, "{}", last());
        for _ in 0..if flags == IT_SC_DEFAULT { 2 } else { 1 } {
            assert_eq!(side.next_event().1, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
        }
        assert_eq!(send(a, &[memory.part(0, 8)], 2, 0), IT_SUCCESS, "{}", last());
        assert_eq!(side.good().length, 8);
        for ep in [a, b] {
            assert_eq!(it_ep_free(ep), IT_SUCCESS);
        }
        let mut late = it_event_t::zeroed();
        while c!(it_evd_dequeue(side.conn, &raw mut late)) == IT_SUCCESS {}
    }
}

#[test]
fn a_socket_that_cannot_be_converted_stays_open() {
    let side = Side::new();
    let ep = side.ep();
    let convert = |sd, flags| c!(it_socket_convert(sd, ep, flags, null(), 0));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pipe = std::io::pipe().unwrap();
    for sd in [-1, i32::MAX, listener.as_raw_fd(), pipe.0.as_raw_fd()] {
        assert_eq!(convert(sd, 0), IT_ERR_MISMATCH_FD, "{}", last());
    }
    let [mut client, mut server] = sockets();
    assert_eq!(convert(client.as_raw_fd(), 2), IT_ERR_INVALID_FLAGS);
    let role =
        c!(itw_socket_convert(client.as_raw_fd(), ep, 0, 2, null(), 0, null(), 0, null(), 0));
    assert_eq!(role, IT_ERR_INVALID_FLAGS);
    let word = c!(itw_socket_convert(
        client.as_raw_fd(),
        ep,
        IT_SC_NO_REQ_REP,
        0,
        null(),
        0,
        [0].as_ptr(),
        1,
        null(),
        0
    ));
    assert_eq!(word, IT_ERR_PDATA_NOT_SUPPORTED);
    let (listen, port) = side.listen();
    side.connect(ep, port);
    assert_eq!(convert(client.as_raw_fd(), 0), IT_ERR_INVALID_EP_STATE);
    // All of them are still in use by their owners.
    client.write_all(b"still here").unwrap();
    let mut heard = [0; 10];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
    assert!(listener.local_addr().is_ok());
    assert_eq!(it_listen_free(listen), IT_SUCCESS);
}

// [itx_init_tracing]
#[test]
fn private_data_describes_a_region_while_connecting() {
    let side = Side::new();
    let memory = side.memory(64, IT_PRIV_ALL);
    let (_listen, port) = side.listen();
    let [a, b] = [side.ep(), side.ep()];
    let (path, qualifier, mut part) = (path(), qualifier(port), memory.part(8, 16));
    let mut context = 0;
    let (lmr, out) = (&raw mut part, &raw mut context);
    let text = c"hi".as_ptr().cast();
    let asked = c!(itx_ep_connect_with_rmr(a, &path, null(), &qualifier, 1, text, 2, lmr, out));
    assert_eq!((asked, context), (IT_SUCCESS, memory.context), "{}", last());
    // SAFETY: plain data.
    let request = unsafe { wait(side.requests).conn_req };
    let expected = [
        b"hi".to_vec(),
        16u32.to_be_bytes().into(),
        memory.context.to_be_bytes().into(),
        memory.to(8).to_be_bytes().into(),
    ];
    assert_eq!(request.private_data[..22], expected.concat());
    assert_eq!(itx_bind_ep_to_device(b, request.cn_est_id), IT_SUCCESS);
    let accepted = c!(itx_ep_accept_with_rmr(b, request.cn_est_id, lmr, out));
    assert_eq!(accepted, IT_SUCCESS, "{}", last());
    let both = [wait(side.conn), wait(side.conn)].map(|event| {
        // SAFETY: plain data.
        unsafe { event.conn }
    });
    let active = both.iter().find(|conn| conn.ep == a).unwrap();
    let expected = [memory.context, memory.to(8), 16].map(u64::to_be_bytes).concat();
    assert_eq!(active.private_data[..24], expected);
    let mut again = 0;
    let got = c!(itx_get_rmr_context_for_ep(b, memory.lmr, &raw mut again));
    assert_eq!((got, again), (IT_SUCCESS, memory.context));
    assert_eq!(c!(itx_init_tracing(c"test".as_ptr(), 3)), IT_SUCCESS);
}

#[test]
fn many_events_are_taken_at_once() {
    let side = Side::new();
    let mut aevd = null_mut();
    let (stream, out) = (IT_AEVD_NOTIFICATION_EVENT_STREAM, &raw mut aevd);
    let made = c!(it_evd_create(side.ia, stream, 0, 0, 1, null_mut(), out, null_mut()));
    assert_eq!(made, IT_SUCCESS, "{}", last());
    let mut dto = null_mut();
    let (stream, out) = (IT_DTO_EVENT_STREAM, &raw mut dto);
    let made = c!(it_evd_create(side.ia, stream, 0, 64, 1, aevd, out, null_mut()));
    assert_eq!(made, IT_SUCCESS, "{}", last());
    let attributes = attributes();
    let [a, b] =
        [0, 1].map(|_| make!(it_ep_rc_create(side.pz, dto, dto, side.conn, 0, &attributes)));
    side.join(a, b);
    let mut events = [zrl::it_event_t::zeroed(); 4];
    let mut take = |timeout, most| {
        let mut count = 77;
        let (first, out) = (events.as_mut_ptr(), &raw mut count);
        let taken = c!(itx_aevd_wait(aevd, timeout, most, first, out));
        assert_eq!(taken, IT_SUCCESS, "{}", last());
        count
    };
    assert_eq!((take(0, 4), take(1, 4)), (0, 0));
    for n in 0..5 {
        assert_eq!(receive(b.cast(), &[], n), IT_SUCCESS);
    }
    for n in 0..5 {
        assert_eq!(send(a, &[], n, NOTIFY), IT_SUCCESS);
    }
    let mut total = 0;
    while total < 10 {
        let count = take(HANG / 1000, 4);
        assert!((1..=4).contains(&count), "{count}");
        total += count;
    }
    assert_eq!(take(0, 4), 0);
}

// A Send completes when TCP has it, which may be long before it arrives.
#[test]
fn completed_sends_arrive_however_the_endpoint_is_closed() {
    const MESSAGES: u64 = 8;
    const OCTETS: usize = 1 << 20;
    let disconnect = |ep| c!(it_ep_disconnect(ep, null(), 0));
    let ends: [&dyn Fn(it_ep_handle_t); 3] = [
        &|ep| assert_eq!(it_ep_free(ep), IT_SUCCESS),
        &|ep| assert_eq!(disconnect(ep), IT_SUCCESS),
        &|ep| assert_eq!((disconnect(ep), it_ep_free(ep)), (IT_SUCCESS, IT_SUCCESS)),
    ];
    for leave in ends.into_iter().cycle().take(12) {
        let (near, far) = (Side::new(), Side::new());
        let (listen, port) = far.listen();
        let (active, passive) = (near.ep(), far.ep());
        near.connect(active, port);
        assert_eq!(c!(it_ep_accept(passive, far.request(), null(), 0)), IT_SUCCESS, "{}", last());
        assert_eq!(near.next_event().1, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
        assert_eq!(far.next_event().1, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
        let source = near.memory(OCTETS, IT_PRIV_ALL);
        source.fill(7);
        let sinks: Vec<_> = (0..MESSAGES).map(|_| far.memory(OCTETS, IT_PRIV_ALL)).collect();
        for (cookie, sink) in (0..).zip(&sinks) {
            assert_eq!(receive(passive.cast(), &[sink.whole()], cookie), IT_SUCCESS, "{}", last());
        }
        for cookie in 0..MESSAGES {
            assert_eq!(send(active, &[source.whole()], cookie, NOTIFY), IT_SUCCESS, "{}", last());
        }
        for _ in 0..MESSAGES {
            near.good();
        }
        leave(active);
        for (cookie, sink) in (0..).zip(&sinks) {
            assert_eq!(far.good().cookie, cookie);
            assert_eq!((sink.octet(0), sink.octet(OCTETS - 1)), (7, 7));
        }
        it_listen_free(listen);
    }
}

// A completion's status comes from its own connection's Terminate, whatever the endpoint does later.
#[test]
fn the_status_of_an_old_connection_does_not_change_with_the_next() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let (here, there) = (side.memory(8, IT_PRIV_ALL), side.memory(8, IT_PRIV_ALL));
    let sink = here.whole();
    let nowhere = there.context ^ 0x5500_0000;
    let read = c!(it_post_rdma_read(a, &sink, 1, 7, NOTIFY, there.to(0), nowhere));
    assert_eq!(read, IT_SUCCESS, "{}", last());
    for _ in 0..2 {
        assert_eq!(side.next_event().1, IT_CM_MSG_CONN_BROKEN_EVENT);
    }
    assert_eq!((it_ep_reset(a), it_ep_reset(b)), (IT_SUCCESS, IT_SUCCESS), "{}", last());
    side.join(a, b);
    let done = side.done();
    assert_eq!((done.cookie, done.status), (7, IT_DTO_ERR_REMOTE_ACCESS));
}
