//! Cases about datagram services: requests, replies, rejects, and calls that are refused at once.

use std::net::Ipv4Addr;
use std::sync::Arc;

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::Rig;
use crate::ud::Post;
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("service: replies with a queue pair", answered)
        .keeps("RI-178 RI-179 RI-181 RI-182")
        .with(Capabilities::UD),
    Case::new("service: refuses, with the reason", rejected)
        .keeps("RI-181 RI-183")
        .with(Capabilities::UD),
    Case::new("service: without a listener it fails", nobody)
        .keeps("RI-179")
        .with(Capabilities::UD),
    Case::new("service: what cannot be reached fails, with a reason", unreachable)
        .keeps("RI-179 RI-206")
        .with(Capabilities::UD),
    Case::new("service: private data up to the limit arrive", private).with(Capabilities::UD),
    Case::new("service: tokens are used once at a time", tokens)
        .keeps("RI-176")
        .with(Capabilities::UD),
    Case::new("service: what is no request is refused", no_request).with(Capabilities::UD),
    Case::new("service: the last handler counts, others are released", handlers)
        .keeps("RI-174 RI-175")
        .with(Capabilities::UD),
    Case::new("service: a cancelled request gets no event", cancelled)
        .keeps("RI-180")
        .with(Capabilities::UD),
    Case::new("service: two of one device, each by its token", two_services)
        .keeps("RI-176 RI-181")
        .with(Capabilities::UD),
    Case::new("service: undecided requests of one do not hold those of another", undecided)
        .keeps("RI-179 RI-181")
        .with(Capabilities::UD),
    Case::new("service: two requests at a time, each by its token", two_requests)
        .keeps("RI-176 RI-179 RI-180")
        .with(Capabilities::UD),
    Case::new("service: many requests, one after the other", in_turn)
        .keeps("RI-179")
        .with(Capabilities::UD),
    Case::new("service: what a closed device offered is gone", closed)
        .keeps("RI-122 RI-174")
        .with(Capabilities::UD),
];

fn answered(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    let asked = post.request(2, at, b"who")?;
    let address = UdAddress { qpn: 0x12_3456, qkey: 0x0765_4321 };
    post.ud.accept(asked.request, address, b"me")?;
    let answer = post.wait_reply(2)?;
    same("address", answer.address, address)?;
    if !asked.private_data.starts_with(b"who") || !answer.private_data.starts_with(b"me") {
        return Err("private data did not arrive".into());
    }
    if answer.path.remote_gid == [0; 16] && answer.path.remote_lid == 0 {
        return Err("the path leads nowhere".into());
    }
    // The service continues, under either token.
    let asked = post.request(1, at, b"")?;
    post.ud.accept(asked.request, address, b"")?;
    post.wait_reply(1)?;
    Ok(post.ud.unlisten(1)?)
}

fn rejected(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    use ServiceRefusal as Why;
    for expected in [Why::NotSupported, Why::Rejected, Why::NoQueuePair, Why::Redirected] {
        let asked = post.request(2, at, b"")?;
        post.ud.reject(asked.request, expected, b"no")?;
        match post.event()? {
            ServiceEvent::Refused { token, why, private_data } => {
                same("token and reason", (token, why), (2, expected))?;
                same("private data", private_data.starts_with(b"no"), true)?;
            }
            other => return Err(format!("{other:?} where refused is expected").into()),
        }
    }
    Ok(())
}

fn nobody(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    post.ud.unlisten(1)?;
    // Fails at once, or when the network reports it.
    if post.ud.resolve(2, at, b"").is_err() {
        return Ok(());
    }
    match post.event()? {
        ServiceEvent::Refused { token, why: ServiceRefusal::NotSupported, .. } => {
            same("token", token, 2)
        }
        ServiceEvent::Failed { token, reason } if !reason.is_empty() => same("token", token, 2),
        other => Err(format!("{other:?} where it must fail").into()),
    }
}

/// An address that no machine has (RFC 5737).
fn unreachable(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    // On no network a peer, and nothing is sent there.
    if post.ud.resolve(2, (Ipv4Addr::BROADCAST, 9).into(), b"").is_err() {
        return Ok(());
    }
    match post.event()? {
        ServiceEvent::Failed { reason, .. } if reason.is_empty() => {
            Err("a service that cannot be reached failed without a reason".into())
        }
        ServiceEvent::Failed { token, .. } => same("token", token, 2),
        other => Err(format!("{other:?} where it must fail").into()),
    }
}

fn private(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let octets = |len: u32| (0..len).map(|n| 0xa0 ^ n as u8).collect::<Vec<_>>();
    let (ask, reply) = (post.ud.attrs().max_private_request, post.ud.attrs().max_private_reply);
    let at = post.listen(1)?;
    let beyond = post.ud.resolve(2, at, &octets(ask + 1));
    refused("one octet too many asked", beyond, VpStatus::InvalidModifier)?;
    let asked = post.request(2, at, &octets(ask))?;
    same("asked", asked.private_data, octets(ask))?;
    let (request, address) = (asked.request, UdAddress { qpn: 1, qkey: 1 });
    let beyond = post.ud.accept(request, address, &octets(reply + 1));
    refused("one octet too many in a reply", beyond, VpStatus::InvalidModifier)?;
    let beyond = post.ud.reject(request, ServiceRefusal::Rejected, &octets(reply + 1));
    refused("one octet too many refused", beyond, VpStatus::InvalidModifier)?;
    post.ud.accept(request, address, &octets(reply))?;
    same("answered", post.wait_reply(2)?.private_data, octets(reply))
}

fn tokens(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    refused("listen again", post.ud.listen(1, at, 1), VpStatus::InUse)?;
    let asked = post.request(2, at, b"")?;
    refused("ask again", post.ud.resolve(2, at, b""), VpStatus::InUse)?;
    post.ud.reject(asked.request, ServiceRefusal::Rejected, b"")?;
    post.event()?;
    refused("cancel what has ended", post.ud.cancel(2), VpStatus::InvalidHandle)?;
    post.ud.unlisten(1)?;
    refused("unlisten again", post.ud.unlisten(1), VpStatus::InvalidHandle)
}

fn no_request(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let accept = |request| post.ud.accept(request, UdAddress::default(), b"");
    let reject = |request| post.ud.reject(request, ServiceRefusal::Rejected, b"");
    refused("accept", accept(u64::MAX), VpStatus::InvalidHandle)?;
    refused("reject", reject(u64::MAX), VpStatus::InvalidHandle)?;
    let at = post.listen(1)?;
    let asked = post.request(2, at, b"")?;
    accept(asked.request)?;
    refused("accept twice", accept(asked.request), VpStatus::InvalidHandle)?;
    refused("reject afterwards", reject(asked.request), VpStatus::InvalidHandle)
}

fn handlers(rig: &Rig) -> Result<(), Fail> {
    let first = Post::open(rig)?;
    let second = Post::open(rig)?;
    same("uses of the handler that was replaced", first.uses(), 1)?;
    let at = second.listen(1)?;
    let asked = second.request(2, at, b"")?;
    second.ud.accept(asked.request, UdAddress { qpn: 1, qkey: 1 }, b"")?;
    second.wait_reply(2).map(drop)
}

fn cancelled(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    let asked = post.request(2, at, b"")?;
    post.ud.cancel(2)?;
    // Whether a reply is still possible depends on the transport.
    let _ = post.ud.accept(asked.request, UdAddress { qpn: 1, qkey: 1 }, b"");
    // The next event is that of the next request.
    let asked = post.request(3, at, b"")?;
    post.ud.accept(asked.request, UdAddress { qpn: 2, qkey: 2 }, b"")?;
    same("address", post.wait_reply(3)?.address, UdAddress { qpn: 2, qkey: 2 })
}

fn two_services(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (first, second) = (post.listen(7)?, post.listen(1)?);
    same("whether two services have one port", first.port() == second.port(), false)?;
    let answer = |at, expected: u64| -> Result<(), Fail> {
        post.ud.resolve(2, at, b"")?;
        let (listener, request) = match post.event()? {
            ServiceEvent::Request { listener, request, .. } => (listener, request),
            other => return Err(format!("{other:?} where a request is expected").into()),
        };
        same("service of the request", listener, expected)?;
        post.ud.accept(request, UdAddress { qpn: 1, qkey: 1 }, b"")?;
        post.wait_reply(2).map(drop)
    };
    answer(first, 7)?;
    answer(second, 1)?;
    post.ud.unlisten(1)?;
    answer(first, 7)
}

/// As many as the first service takes.
fn undecided(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (first, second) = (post.listen(7)?, post.listen(1)?);
    for token in 10..14 {
        post.ud.resolve(token, first, b"")?;
        match post.event()? {
            ServiceEvent::Request { listener, .. } => same("service of the request", listener, 7)?,
            other => return Err(format!("{other:?} where a request is expected").into()),
        }
    }
    // One that is still undecided may come again.
    post.ud.resolve(2, second, b"")?;
    let request = loop {
        match post.event()? {
            ServiceEvent::Request { listener: 1, request, .. } => break request,
            ServiceEvent::Request { .. } => {}
            other => return Err(format!("{other:?} where a request is expected").into()),
        }
    };
    post.ud.accept(request, UdAddress { qpn: 1, qkey: 1 }, b"")?;
    post.wait_reply(2).map(drop)
}

fn two_requests(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    let asked = [2, 3, 4].map(|token| post.request(token, at, &[token as u8]));
    let [second, third, fourth] = asked;
    let (second, third, fourth) = (second?, third?, fourth?);
    post.ud.cancel(3)?;
    let _ = post.ud.accept(third.request, UdAddress { qpn: 3, qkey: 3 }, b"");
    for (token, asked) in [(4, fourth), (2, second)] {
        same("private data of the request", asked.private_data.first(), Some(&(token as u8)))?;
        let address = UdAddress { qpn: token, qkey: token };
        post.ud.accept(asked.request, address, b"")?;
        same("address", post.wait_reply(token.into())?.address, address)?;
    }
    Ok(())
}

/// More than the service takes undecided ones.
fn in_turn(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let at = post.listen(1)?;
    for n in 0..12 {
        let asked = post.request(2, at, b"")?;
        let address = UdAddress { qpn: n, qkey: n };
        post.ud.accept(asked.request, address, b"")?;
        same("address", post.wait_reply(2)?.address, address)?;
    }
    Ok(())
}

fn closed(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let other = rig.another()?;
    let (recorder, at) = {
        let theirs = Post::open(&other)?;
        let at = theirs.listen(1)?;
        // One request of another device and one of its own, both undecided. Both have arrived.
        post.ud.resolve(2, at, b"")?;
        theirs.ud.resolve(3, at, b"")?;
        for _ in 0..2 {
            match theirs.event()? {
                ServiceEvent::Request { .. } => {}
                event => return Err(format!("{event:?} where a request is expected").into()),
            }
        }
        post.ud.cancel(2)?;
        (theirs.into_recorder(), at)
    };
    drop(other);
    rig.until("the release of a handler whose device is closed", || {
        Ok(Arc::strong_count(&recorder) == 1)
    })?;
    let again = post.ud.listen(1, at, 4);
    again.map_err(|why| format!("the address of a service of a closed device: {why}"))?;
    post.ud.resolve(4, at, b"anew")?;
    let request = loop {
        match post.event()? {
            // An earlier one that is repeated was meant for whoever is at this port.
            ServiceEvent::Request { request, private_data, .. } => {
                if private_data.starts_with(b"anew") {
                    break request;
                }
            }
            other => return Err(format!("{other:?} where a request is expected").into()),
        }
    };
    post.ud.accept(request, UdAddress { qpn: 4, qkey: 4 }, b"")?;
    post.wait_reply(4).map(drop)
}
