//! Who may resume a session: not a stranger, not with a token that was used, and not twice at once.

use std::net::SocketAddr;
use std::time::Duration;

use itapi::{ConnEvent, Ep, EpState, Evd, Ia, Pz};
use warpline_channel::wire::{Greeting, Offer, Purpose, Token};
use warpline_channel::{Channel, Error, Event, Listener, Server};
use warpline_patience::until;

use crate::hostile::Hostile;
use crate::pair::{HANG, TIGHT, message, open};
use crate::relay::Cut;
use crate::resume::{RESUME, impatient, relayed};

const GREETING: Greeting =
    Greeting { small: 256, slots: 4, large: 2, longest: 1 << 20, grows: true };

/// An end that only connects.
struct Caller {
    ep: Ep,
    _kept: (Evd, Pz),
}

impl Caller {
    fn new(ia: &Ia) -> Self {
        let (pz, evd) = (ia.pz().unwrap(), ia.evd(256).unwrap());
        let ep = pz.ep(&evd).max_inline(256).build().unwrap();
        for buffer in pz.buffers(64, 264).unwrap() {
            ep.post_recv(buffer).unwrap();
        }
        Self { ep, _kept: (evd, pz) }
    }

    /// The offer of the reply, or of the reject.
    fn call(&self, to: SocketAddr, offer: Offer) -> Result<Offer, Purpose> {
        let of = |octets: &[u8]| Offer::from_octets(octets).unwrap();
        match self.ep.connect(to, &offer.to_octets(GREETING)) {
            Ok(established) => Ok(of(&established.private_data)),
            Err(itapi::Error::Connection(event)) => match *event {
                ConnEvent::Rejected { private_data, .. } => Err(of(&private_data).purpose),
                other => panic!("{other}"),
            },
            Err(other) => panic!("{other}"),
        }
    }
}

fn resume(token: Token) -> Offer {
    Offer { token, lasting: 60_000, ..Offer::only(Purpose::Resume) }
}

/// The token in what a relay saw of one direction.
fn token_in(octets: &[u8]) -> Token {
    let at = octets.windows(4).position(|octets| octets == b"WLch").unwrap();
    Offer::from_octets(&octets[at..]).unwrap().token
}

/// A message each way.
fn talk(client: &Channel, server: &Channel) {
    for (from, to) in [(client, server), (server, client)] {
        from.send(message(1, 100)).unwrap();
        assert!(to.recv().unwrap().unwrap()[..] == message(1, 100));
    }
}

#[test]
fn a_stranger_gains_nothing() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset], 1);
    let caller = Caller::new(&ia);
    assert_eq!(caller.call(relay.address(), resume([7; 16])), Err(Purpose::Unknown));
    talk(&client, &server);
    assert_eq!(server.resumption().unwrap().moves, 0);
}

#[test]
fn a_token_of_a_live_session_does_not_disturb_it() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset], 1);
    let [_, reply] = relay.first(0);
    assert_eq!(
        Caller::new(&ia).call(relay.address(), resume(token_in(&reply))),
        Err(Purpose::Busy)
    );
    talk(&client, &server);
    assert_eq!((server.resumption().unwrap().moves, client.resumption().unwrap().moves), (0, 0));
}

#[test]
fn a_token_that_was_used_is_worthless() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset], 1);
    let [_, first] = relay.first(0);
    relay.cut(1);
    talk(&client, &server);
    talk(&client, &server);
    assert_eq!(server.resumption().unwrap().moves, 1);
    let reason = Caller::new(&ia).call(relay.address(), resume(token_in(&first)));
    assert_eq!(reason, Err(Purpose::Unknown));
    talk(&client, &server);
    assert_eq!(server.resumption().unwrap().moves, 1);
}

/// What was kept while there was no connection cannot have arrived.
#[test]
fn what_was_never_sent_cannot_be_confirmed() {
    let ia = impatient();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let to = listener.address();
    let first = Caller::new(&ia);
    let (channel, agreed) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let begun = Offer { lasting: 60_000, ..Offer::only(Purpose::New) };
        let agreed = first.call(to, begun).unwrap();
        (accepted.join().unwrap(), agreed)
    });
    drop(first);
    until("the loss", || channel.resumption().is_some_and(|it| !it.connected));
    channel.send(b"kept").unwrap();
    let liar = Caller::new(&ia);
    let lie = Offer { arrived: 1, ..resume(agreed.token) };
    // It may see the end before the reply.
    let _ = liar.ep.connect(to, &lie.to_octets(GREETING));
    until("its end", || liar.ep.state() != EpState::Connected);
    assert_eq!(channel.resumption().unwrap().moves, 0);
    let honest = Caller::new(&ia);
    let truth = resume(agreed.token).to_octets(GREETING);
    until("an honest peer", || honest.ep.connect(to, &truth).is_ok());
    until("its connection", || channel.resumption().is_some_and(|it| it.moves == 1));
}

#[test]
fn of_two_requests_at_once_one_is_accepted() {
    let ia = impatient();
    for _ in 0..5 {
        let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
        let to = listener.address();
        let first = Caller::new(&ia);
        let (channel, agreed) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().unwrap());
            let begun = Offer { lasting: 60_000, ..Offer::only(Purpose::New) };
            let agreed = first.call(to, begun).unwrap();
            (accepted.join().unwrap(), agreed)
        });
        assert_ne!(agreed.token, [0; 16]);
        drop(first);
        let callers = [Caller::new(&ia), Caller::new(&ia)];
        let results: Vec<_> = std::thread::scope(|scope| {
            let call = |caller: &'static str, at: usize| {
                let _ = caller;
                let callers = &callers;
                scope.spawn(move || callers[at].call(to, resume(agreed.token)))
            };
            let calls = [call("one", 0), call("other", 1)];
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "{results:?}");
        assert!(results.contains(&Err(Purpose::Busy)), "{results:?}");
        until("its connection", || channel.resumption().is_some_and(|it| it.connected));
        channel.send(b"to the one").unwrap();
        assert_eq!(channel.resumption().unwrap().moves, 1);
    }
}

/// An end that knows nothing of this connects to one that does, and the other way round: no session is resumed.
#[test]
fn older_ends_are_understood() {
    let ia = open();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let (hostile, channel) = Hostile::connect_to(&ia, &listener);
    assert!(channel.resumption().is_none());
    channel.send(b"hello").unwrap();
    assert_eq!(&hostile.receive()[..], b"\0\0\0\0\0\0\0\0hello");
    drop(hostile);
    assert!(matches!(channel.recv().unwrap_err(), Error::Lost(Some(_))));

    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let caller = Caller::new(&ia);
            let request = listen.request().unwrap();
            assert_eq!(Greeting::from_octets(request.private_data()), Ok(GREETING));
            request.accept(&caller.ep, &GREETING.to_octets()).unwrap();
            caller._kept.0.wait_success(HANG).unwrap();
        });
        let channel = Channel::connect_with(&ia, address, RESUME).unwrap();
        assert!(channel.resumption().is_none());
        channel.send(b"hello").unwrap();
        assert!(matches!(channel.recv().unwrap_err(), Error::Lost(Some(_))));
    });
}

#[test]
fn one_end_without_the_option_decides() {
    for (client, server) in [(RESUME, TIGHT), (TIGHT, RESUME)] {
        let (client, server) = crate::pair::uneven(client, server);
        assert!(client.resumption().is_none() && server.resumption().is_none());
        talk(&client, &server);
        drop(client);
        assert!(matches!(server.recv().unwrap_err(), Error::Lost(Some(_))));
    }
}

#[test]
fn a_server_of_another_process_rejects_at_once() {
    // As after a restart: the address is there, the session is not.
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset], 1);
    let other = Server::bind_with(&ia, "127.0.0.1:0", TIGHT, 4).unwrap();
    relay.lead_to(other.address());
    drop(server);
    let error = client.recv().unwrap_err();
    assert!(matches!(error, Error::Lost(Some(_))), "{error}");
    assert!(error.to_string().contains("the peer does not know the session"), "{error}");
    assert!(!matches!(other.next_timeout(Duration::ZERO), Ok(Some(Event::Connected(_)))));
}
