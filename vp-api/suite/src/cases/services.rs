//! Cases about datagram services: requests, replies, rejects, and calls that are refused at once.

use std::net::Ipv4Addr;

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
