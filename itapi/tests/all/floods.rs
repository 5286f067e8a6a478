//! A server under a flood of connections that end as soon as they have begun: it learns of the end of each.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use itapi::ConnEvent;

/// MPA start-up (RFC 5044 7.1), revision 1, with CRC.
const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\0\0";

/// How a client ends.
#[derive(Clone, Copy)]
struct Client {
    asks: bool,
    hears: bool,
    resets: bool,
}

/// One connection; it may have been ended by the server.
fn connect_briefly(to: SocketAddr, client: Client) {
    let Ok(mut socket) = TcpStream::connect(to) else { return };
    if client.resets {
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    }
    if client.asks {
        let _ = socket.write_all(REQUEST);
    }
    if client.hears {
        let _ = socket.read_exact(&mut [0; 20]);
    }
}

fn flood(to: SocketAddr) {
    let (one, both) = (400, [false, true]);
    for hears in both {
        for resets in both {
            let client = Client { asks: true, hears, resets };
            (0..one).for_each(|_| connect_briefly(to, client));
        }
    }
    for resets in both {
        let client = Client { asks: false, hears: false, resets };
        (0..one).for_each(|_| connect_briefly(to, client));
    }
}

#[test]
fn a_server_learns_of_the_end_of_each_connection() {
    let ia = crate::pair::open();
    let pz = ia.pz().unwrap();
    let evd = ia.evd(64).unwrap();
    let events = ia.conn_evd().unwrap();
    let listen = ia.listen(("127.0.0.1", 0)).unwrap();
    let to = listen.address();
    let over = AtomicBool::new(false);
    let (mut eps, mut accepted, mut refused) = (HashMap::new(), 0, 0);
    let (mut established, mut failed, mut ended) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(|| flood(to))));
            over.store(true, Ordering::Release);
        });
        let bound = warpline_patience::Bound::new("the end of each connection");
        while !over.load(Ordering::Acquire) || !eps.is_empty() {
            if let Some(request) = listen.wait(Duration::from_millis(5)).unwrap() {
                let ep = pz.ep(&evd).depth(1, 1).conn_evd(&events).build().unwrap();
                match request.start_accept(&ep, b"") {
                    Ok(()) => _ = eps.insert(ep.id(), ep),
                    Err(_) => refused += 1,
                }
                accepted += 1;
            }
            while let Some((ep, event)) = events.poll().unwrap() {
                match event {
                    ConnEvent::Established(_) => {
                        established += 1;
                        continue;
                    }
                    ConnEvent::Failed(_) => failed += 1,
                    _ => ended += 1,
                }
                eps.remove(&ep);
            }
            bound.check();
        }
    });
    println!(
        "{accepted} requests, {refused} were gone; {established} established, {ended} of them ended; {failed} failed"
    );
    assert_eq!((established, accepted), (ended, established + failed + refused));
}
