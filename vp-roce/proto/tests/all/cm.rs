//! Tests of the communication manager: two ends over a channel that loses and repeats messages, and all
//! outcomes of an exchange.

use crate::common::Random;
use roce_proto::cm::connection::{Connection, Event, Patience, State, WrongState};
use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{
    ConnectionIds, Gid, Message, Private, RejectReason, Rejected, Rep, Req, SidrStatus,
};
use roce_proto::cm::sidr::{Lookup, Outcome, reply};
use roce_proto::cm::{tcp_service, udp_service};
use roce_proto::psn::Psn;

const PATIENCE: Patience = Patience { response: 1_000, retries: 15, time_wait: 5_000 };

pub(crate) fn req() -> Req {
    Req {
        local_id: 0xaa,
        service: tcp_service(7174),
        ca_guid: 1,
        qpn: 0x11,
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: 18,
        local_response_timeout: 18,
        transport: 0,
        starting_psn: Psn::new(100),
        retry_count: 7,
        rnr_retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        max_cm_retries: 15,
        srq: false,
        local_gid: Gid::of_ipv4([127, 0, 0, 1]),
        remote_gid: Gid::of_ipv4([127, 0, 0, 1]),
        flow_label: 0,
        rate: 3,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        ack_timeout: 14,
        private: Private::default(),
    }
}

fn rep() -> Rep {
    Rep {
        ids: ConnectionIds { local: 0, remote: 0 },
        qpn: 0x22,
        starting_psn: Psn::new(200),
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: 15,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 2,
        private: Private::new(b"hello").unwrap(),
    }
}

/// An exchange between an active end and a passive one that accepts, until both have ended. The active end
/// disconnects as soon as it is ready.
struct Exchange {
    active: Connection,
    passive: Option<Connection>,
    way: [Vec<Mad>; 2],
    events: [Vec<Event>; 2],
    now: u64,
    lost: u64,
}

impl Exchange {
    fn new(lost: u64) -> Self {
        let active = Connection::connect(req(), 77, PATIENCE, 0);
        let (way, events) = Default::default();
        Self { active, passive: None, way, events, now: 0, lost }
    }

    fn carry(&mut self, random: &mut Random) {
        let ends = [Some(&mut self.active), self.passive.as_mut()];
        for (at, end) in ends.into_iter().enumerate() {
            let Some(end) = end else { continue };
            if let Some(mad) = end.poll_transmit() {
                let copies = if random.chance(self.lost) { 0 } else { 1 + random.below(5) / 4 };
                (0..copies).for_each(|_| self.way[1 - at].push(mad));
            }
        }
    }

    fn deliver(&mut self) -> bool {
        let [to_active, to_passive] = std::mem::take(&mut self.way);
        let moved = !to_active.is_empty() || !to_passive.is_empty();
        for mad in to_active {
            assert_eq!(mad.transaction, 77);
            let event = self.active.handle(&Message::parse(&mad).unwrap(), self.now);
            self.events[0].extend(event);
        }
        for mad in to_passive {
            let message = Message::parse(&mad).unwrap();
            match (&mut self.passive, message) {
                (Some(passive), message) => {
                    let event = passive.handle(&message, self.now);
                    self.events[1].extend(event);
                }
                (none, Message::Req(req)) => {
                    let mut passive = Connection::offered(&mad, &req, 0xbb, PATIENCE);
                    passive.accept(rep(), self.now).unwrap();
                    *none = Some(passive);
                }
                (None, other) => panic!("{} before a request", other.name()),
            }
        }
        if self.active.state() == State::Replied {
            self.active.ready().unwrap();
        } else if self.active.state() == State::Established {
            self.active.disconnect(self.now).unwrap();
        }
        moved
    }

    fn run(&mut self, random: &mut Random) {
        loop {
            self.carry(random);
            if self.deliver() {
                continue;
            }
            let ends = [Some(&mut self.active), self.passive.as_mut()];
            let ends = ends.into_iter().flatten();
            let Some(deadline) = ends.filter_map(|end| end.deadline()).min() else { return };
            self.now = self.now.max(deadline);
            let event = self.active.handle_timeout(self.now);
            self.events[0].extend(event);
            let event = self.passive.as_mut().and_then(|end| end.handle_timeout(self.now));
            self.events[1].extend(event);
        }
    }
}

// [IBCM-03, IBCM-10]
#[test]
fn a_connection_is_made_and_ended_whatever_is_lost() {
    for seed in 0..2_000 {
        let lost = [0, 10, 40][seed as usize % 3];
        let mut exchange = Exchange::new(lost);
        exchange.run(&mut Random::new(seed));
        let [active, passive] = &exchange.events;
        let mut replied = rep();
        replied.ids = ConnectionIds { local: 0xbb, remote: 0xaa };
        let all = [Event::Replied(replied), Event::Disconnected, Event::Ended];
        assert_eq!(active[..], all, "seed {seed}");
        // A lost RTU is implied by a DREQ. 16 DREQs in a row are hardly ever lost.
        let end = passive.iter().position(|event| *event == Event::Disconnected);
        assert!(end.is_some_and(|end| end <= 1), "seed {seed}: {passive:?}");
        assert_eq!(passive.last(), Some(&Event::Ended), "seed {seed}");
        if lost == 0 {
            assert_eq!(passive[..], [Event::Established, Event::Disconnected, Event::Ended]);
        }
    }
}

// [IBCM-05]
#[test]
fn both_ends_give_up_a_silent_peer_and_report_it() {
    let mut connection = Connection::connect(req(), 77, PATIENCE, 0);
    let mut sent = 0;
    let event = loop {
        sent += usize::from(connection.poll_transmit().is_some());
        let at = connection.deadline().unwrap();
        assert_eq!(connection.handle_timeout(at - 1), None);
        if let Some(event) = connection.handle_timeout(at) {
            break event;
        }
    };
    assert_eq!((event, sent), (Event::Unreachable, 16));
    let Message::Rej { reason, of, .. } =
        Message::parse(&connection.poll_transmit().unwrap()).unwrap()
    else {
        panic!("not a reject")
    };
    assert_eq!((reason, of), (RejectReason::TIMEOUT, Rejected::Req));
    let at = connection.deadline().unwrap();
    assert_eq!(connection.handle_timeout(at), Some(Event::Ended));
}

#[test]
fn a_refusal_arrives_with_reason_and_private_data() {
    let mut active = Connection::connect(req(), 77, PATIENCE, 0);
    let mad = active.poll_transmit().unwrap();
    let mut passive = Connection::offered(&mad, &req(), 0xbb, PATIENCE);
    let private = Private::new(b"no").unwrap();
    passive.reject(RejectReason::CONSUMER, private, 0).unwrap();
    let refusal = Message::parse(&passive.poll_transmit().unwrap()).unwrap();
    let event = active.handle(&refusal, 5);
    assert_eq!(event, Some(Event::Rejected { reason: RejectReason::CONSUMER, private }));
    assert_eq!(active.state(), State::TimeWait);
    // The request is repeated: the refusal was lost.
    assert_eq!(passive.handle(&Message::Req(req()), 6), None);
    assert_eq!(Message::parse(&passive.poll_transmit().unwrap()).unwrap(), refusal);
}

// [IBCM-06]
#[test]
fn a_receipt_gives_the_peer_longer() {
    let mut active = Connection::connect(req(), 77, PATIENCE, 0);
    assert!(active.poll_transmit().is_some());
    let ids = ConnectionIds { local: 0xbb, remote: 0xaa };
    let (of, private) = (Rejected::Req, Private::default());
    // 4.096 us * 2^10 = 4,195 us
    active.handle(&Message::Mra { ids, of, timeout: 10, private }, 500);
    assert_eq!(active.deadline(), Some(500 + 4_195 + 1_000));
}

// [IBCM-04]
#[test]
fn a_packet_replaces_a_lost_rtu() {
    let mut active = Connection::connect(req(), 77, PATIENCE, 0);
    let mad = active.poll_transmit().unwrap();
    let mut passive = Connection::offered(&mad, &req(), 0xbb, PATIENCE);
    assert_eq!(passive.handle_packet(), None);
    passive.accept(rep(), 0).unwrap();
    assert_eq!(passive.handle_packet(), Some(Event::Established));
    assert_eq!((passive.handle_packet(), passive.deadline()), (None, None));
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let mut active = Connection::connect(req(), 77, PATIENCE, 0);
    assert_eq!(active.ready(), Err(WrongState(State::Requested)));
    assert_eq!(active.accept(rep(), 0), Err(WrongState(State::Requested)));
    assert_eq!(active.disconnect(0), Err(WrongState(State::Requested)));
    let consumer = RejectReason::CONSUMER;
    assert_eq!(active.reject(consumer, Private::default(), 0), Err(WrongState(State::Requested)));
}

// [IBCM-08, IBCM-09]
#[test]
fn a_datagram_service_is_found_refused_or_given_up() {
    let lookup = || Lookup::new(9, udp_service(7174), Private::default(), PATIENCE, 0);
    let ask = |service| {
        let mut lookup = lookup();
        let mad = lookup.poll_transmit().unwrap();
        let mad = reply(&mad, service, Private::default()).unwrap();
        let message = Message::parse(&mad).unwrap();
        let outcome = lookup.handle(&message);
        assert_eq!((lookup.handle(&message), lookup.deadline()), (None, None));
        outcome
    };
    let private = Private::default();
    assert_eq!(ask(Ok((5, 6))), Some(Outcome::Found { qpn: 5, qkey: 6, private }));
    let status = SidrStatus::UNSUPPORTED_SERVICE;
    assert_eq!(ask(Err(status)), Some(Outcome::Refused { status, private }));

    let mut lookup = lookup();
    let mut sent = 0;
    let outcome = loop {
        sent += usize::from(lookup.poll_transmit().is_some());
        let at = lookup.deadline().unwrap();
        assert_eq!(lookup.handle_timeout(at - 1), None);
        if let Some(outcome) = lookup.handle_timeout(at) {
            break outcome;
        }
    };
    assert_eq!((outcome, sent, lookup.deadline()), (Outcome::Unreachable, 16, None));
}
