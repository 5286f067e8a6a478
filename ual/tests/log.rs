//! What the access layer logs: a line per connection made and ended. A program of its own, since a
//! program has one subscriber.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, span};
use ual::vp_api::{Data, SendFlags, SendOp, SendWr};
use ual::{
    AcceptParams, Config, ConnectParams, Disconnect, EpInit, EvdInit, Event, ListenInit, SrqParams,
    Stream, Ual,
};
use warpline_patience::HANG;

/// Lines of level INFO and worse.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn with(&self, word: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(word)).cloned().collect()
    }
}

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        *self.0 += &format!("{value:?}");
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut Message(&mut line));
        self.0.lock().unwrap().push(line);
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn each_connection_made_and_ended_is_a_line() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let ia = Ual::with_config(Config::default()).open_any().unwrap();
    let pz = ia.create_pz().unwrap();
    let evd = |stream| ia.create_evd(EvdInit::new(stream, 64)).unwrap();
    let (completions, requests) = (evd(Stream::Completion), evd(Stream::Request));
    let connection = evd(Stream::Connection);
    let ep = || pz.create_ep(EpInit::new(&completions, &connection)).unwrap();
    let (active, passive) = (ep(), ep());
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listen = ia.listen(ListenInit::new(any, &requests)).unwrap();
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let Event::Request(request) = requests.wait(Some(HANG)).unwrap() else { panic!("a request") };
    passive.accept(request.request, AcceptParams::default()).unwrap();
    let two_events = || (0..2).for_each(|_| drop(connection.wait(Some(HANG)).unwrap()));
    two_events();
    let made = lines.with("IRD ");
    assert_eq!(made.len(), 2, "one line of each end: {made:?}");
    assert!(made.iter().all(|line| line.contains("FPDUs of up to")), "{made:?}");
    let port = listen.addresses()[0].port().to_string();
    assert!(made.iter().all(|line| line.contains(&port)), "{made:?}");
    active.disconnect(Disconnect::Graceful).unwrap();
    two_events();
    // Each end logs its own text.
    let ended: Vec<_> = lines.with(&port).into_iter().filter(|line| !made.contains(line)).collect();
    assert_eq!(ended.len(), 2, "{ended:?}");
    let news_of = |object: &str| lines.with(object).len();
    assert_eq!((news_of("Ep("), news_of("Srq(")), (0, 0));
    // A connection event reports how an endpoint ended; for other objects only the log reports anything if
    // their events are not taken.
    active.close().unwrap();
    let (active, passive) = (ep(), ep());
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let Event::Request(request) = requests.wait(Some(HANG)).unwrap() else { panic!("a request") };
    passive.accept(request.request, AcceptParams::default()).unwrap();
    two_events();
    let op = SendOp::Send { solicited: false, invalidate: None };
    let flags = SendFlags::SIGNALED;
    // No thread waits for it there.
    active.post_send(&[SendWr { wr_id: 1, op, data: Data::Sgl(&[]), flags }]).unwrap();
    two_events();
    let srq = pz.create_srq(SrqParams { depth: 8, max_sge: 1, low_watermark: 0 }).unwrap();
    srq.modify(None, Some(3)).unwrap();
    warpline_patience::until("the event of the shared queue", || news_of("Srq(") == 1);
    assert_eq!(news_of("Ep("), 0);
    for words in ["disconnected: ", "closed the connection with"] {
        assert!(ended.iter().any(|line| line.contains(words)), "{ended:?}");
    }
}
