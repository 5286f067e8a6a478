//! What errors say: the field of an option, the address once, and what to do.

use std::time::Duration;

use warpline_channel::{AsyncListener, Channel, Error, Listener, Options, Server};

use crate::pair::{TIGHT, open, pair};

#[test]
fn an_option_that_is_not_allowed_is_named_with_its_value() {
    let ia = open();
    let wrong = [
        (Options { slots: 0, ..TIGHT }, "slots is 0; allowed: 1 to 4096"),
        (Options { slots: 4097, ..TIGHT }, "slots is 4097; allowed: 1 to 4096"),
        (Options { small: 19, ..TIGHT }, "small is 19; allowed: 20 to 1073741824 octets"),
        (Options { large: 5, ..TIGHT }, "large is 5; allowed: 0 to 64, and no more than slots"),
        (Options { longest: 0, ..TIGHT }, "longest is 0; allowed: 1 to 4294967295 octets"),
        (Options { resume: Some(Duration::ZERO), ..TIGHT }, "resume is 0; allowed: TIMES"),
        (
            Options { resume: Some(Duration::from_millis(1 << 32)), ..TIGHT },
            "resume is 4294967296; allowed: TIMES",
        ),
        // Less than a millisecond, and as long as can be.
        (
            Options { returns: Some(Duration::from_micros(999)), ..TIGHT },
            "returns is 0; allowed: TIMES",
        ),
        (
            Options { returns: Some(Duration::MAX), ..TIGHT },
            "returns is 18446744073709551615; allowed: TIMES",
        ),
    ];
    for (options, text) in wrong {
        let text = text.replace("TIMES", "none, or 1 to 4294967295 milliseconds");
        let at = "127.0.0.1:0";
        let errors = [
            Channel::connect_with(&ia, at, options).unwrap_err(),
            Listener::bind_with(&ia, at, options).unwrap_err(),
            AsyncListener::bind_with(&ia, at, options).unwrap_err(),
            Server::bind_with(&ia, at, options, 1).map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.to_string(), format!("invalid options: {text}"));
        }
    }
}

#[test]
fn errors_name_the_address_once_and_what_to_do() {
    let ia = open();
    let free = Listener::bind(&ia, "127.0.0.1:0").unwrap().address().to_string();
    let listen = |at: &str| Listener::bind(&ia, at).map(drop);
    let connect = |at: &str| Channel::connect(&ia, at).map(drop);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = port.local_addr().unwrap().to_string();
    let cases = [
        (listen("127.0.0.1"), "127.0.0.1", "write HOST:PORT"),
        (connect("127.0.0.1"), "127.0.0.1", "write HOST:PORT"),
        (connect("127.0.0.1:99999"), "127.0.0.1:99999", "write HOST:PORT"),
        (connect("no.such.host.invalid:1"), "no.such.host.invalid:1", "getent hosts"),
        (listen("192.0.2.1:0"), "192.0.2.1:0", "use an address of this host"),
        (listen(&taken), &taken, "choose another"),
        (connect(&free), &free, "start the server"),
        (connect("127.0.0.1:0"), "127.0.0.1:0", "name the port of the peer"),
    ];
    for (result, address, remedy) in cases {
        let text = result.unwrap_err().to_string();
        assert_eq!(text.matches(address).count(), 1, "{address}: {text}");
        assert!(text.contains(remedy), "{text}");
    }
    let none = Channel::connect(&ia, &[][..]).unwrap_err().to_string();
    assert_eq!(none, "there is no address in []; give one at least");
}

#[test]
fn the_loss_of_a_peer_says_what_to_do() {
    let (client, server) = pair(TIGHT);
    drop(client);
    let lost = server.recv().unwrap_err();
    assert!(matches!(lost, Error::Lost(_)), "{lost}");
    assert!(lost.to_string().contains("to do: "), "{lost}");
}

#[test]
fn text_is_sent_borrowed_and_owned() {
    let (client, server) = pair(TIGHT);
    let long = "x".repeat(3000);
    client.send("few").unwrap();
    client.send(&long).unwrap();
    client.send(long.clone()).unwrap();
    for text in ["few", &long, &long] {
        assert_eq!(server.recv().unwrap().as_deref(), Some(text.as_bytes()));
    }
}
