//! Tests of providers in the wrappers that the configuration names, through the application's interface.

use std::path::Path;

use ual::vp_api::{Access, MwKind, VpStatus};
use ual::vp_hooks::stats;
use ual::{
    AcceptParams, Config, ConnEvent, ConnectParams, Error, EvdInit, Event, LmrInit, SrqParams,
    Stream, Ual,
};

use crate::common::{HANG, LOCALHOST, Side, connect, policy};

fn side(wrap: &str) -> Side {
    let config = Config::parse(&format!("[providers]\nwrap = {wrap}\n"), Path::new("w.toml"));
    Side::of(&Ual::with_config(Config { policy: policy(), ..config.unwrap() }))
}

#[test]
fn a_refused_post_is_an_error_and_the_next_one_works() {
    let client = side(r#"["trace:every=2", "stats", "fault:post_send@2=QueueFull"]"#);
    let server = Side::new(policy());
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    (1..=2).for_each(|n| server.post_recv(&passive, n, 0, 100));
    client.send(&active, 3, 0, 100);
    assert_eq!(client.success().wr_id, 3);
    let refused = active.post_send(&[]).unwrap_err();
    assert_eq!((refused.posted, refused.status), (0, VpStatus::TooManyWrs));
    client.send(&active, 4, 0, 100);
    assert_eq!(client.success().wr_id, 4);
    assert_eq!([server.success().wr_id, server.success().wr_id], [1, 2]);
    // `stats` is around `fault`, so it counts the refusal.
    let snapshots = stats::snapshots();
    let posts = snapshots.iter().filter_map(|snapshot| snapshot.verb("post_send"));
    assert!(posts.into_iter().any(|posts| (posts.calls, posts.refused) == (3, 1)), "{snapshots:?}");
}

#[test]
fn a_connection_refused_by_the_provider_is_reported() {
    let client = side(r#"["fault:connect@1=InsufficientResources"]"#);
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    let event = client.conn_event().to_string();
    assert!(event.contains("connect@1=InsufficientResources"), "{event}");
    // The next one is established.
    let server = Side::new(policy());
    connect(&client, &server, &server.listen(LOCALHOST));
}

// The peer gets the refusal at once, and does not try other kinds of start-up.
#[test]
fn a_connection_that_the_acceptors_provider_refuses_is_rejected() {
    let server = side(r#"["fault:connect@1=InsufficientResources"]"#);
    let client = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    let event = server.conn_event().to_string();
    assert!(event.contains("connect@1=InsufficientResources"), "{event}");
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
    assert_eq!(server.requests.queued(), 0);
}

// A waiting thread serves the sockets itself, whatever wrappers are between it and the completion queue.
#[test]
fn a_thread_that_waits_on_an_aggregate_dispatcher_leads() {
    let (client, server) = (Side::new(policy()), side(r#"["stats"]"#));
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    let all = server.ia.create_evd(EvdInit::new(Stream::Aggregate, 0)).unwrap();
    server.completions.set_aggregate(Some(&all)).unwrap();
    for n in 0..100 {
        server.post_recv(&passive, n, 0, 100);
        client.send(&active, n, 0, 100);
        let Event::Notification { evd } = all.wait(Some(HANG)).unwrap() else {
            panic!("a notification")
        };
        assert_eq!(evd.queued(), 1);
        assert_eq!((server.success().wr_id, client.success().wr_id), (n, n));
    }
    let snapshots = stats::snapshots();
    let leads = snapshots.iter().filter_map(|snapshot| snapshot.verb("lead"));
    assert!(leads.into_iter().any(|leads| leads.calls > 0), "{snapshots:?}");
}

// A dropped object is freed at the provider, as a closed one is.
#[test]
fn dropped_objects_leave_room_for_others() {
    let limits = ["max_cq=2", "max_qp=1", "max_srq=1", "max_mr=2", "max_mw=1", "max_pd=2"];
    let side = side(&format!("{:?}", limits.map(|limit| format!("fault:{limit}"))));
    for _ in 0..3 {
        drop(side.ia.create_evd(EvdInit::new(Stream::Completion, 8)).unwrap());
        drop(side.ep());
        let params = SrqParams { depth: 8, max_sge: 1, low_watermark: 0 };
        drop(side.pz.create_srq(params).unwrap());
        let init = LmrInit::new(side.region.mem_range(), Access::LOCAL);
        drop(side.pz.create_lmr(init).unwrap());
        drop(side.pz.create_rmr(MwKind::Narrow).unwrap());
        drop(side.ia.create_pz().unwrap());
    }
    let _last = side.ia.create_evd(EvdInit::new(Stream::Completion, 8)).unwrap();
    assert!(side.ia.create_evd(EvdInit::new(Stream::Completion, 8)).is_err());
}

#[test]
fn resources_run_out_as_configured() {
    let client = side(r#"["fault:max_qp=1"]"#);
    let _one = client.ep();
    let init = ual::EpInit::new(&client.completions, &client.connection);
    match client.pz.create_ep(init) {
        Err(Error::Verb { source: error, .. }) => {
            assert_eq!(error.status, VpStatus::InsufficientResources);
            assert!(error.detail.contains("`max_qp=1`"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a second QP"),
    }
}
