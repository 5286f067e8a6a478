//! Tests that every call works with `?` in functions that return `Box<dyn Error + Send + Sync>`, and that the
//! `try_` calls return what was refused.

use std::net::TcpStream;

use itapi::{ConvertParams, Ep, Handoff, Request, Srq, UdEp, Work};

use crate::pair::{Side, open};

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// A receive too many, and a Send without a connection.
fn two_refusals(side: &Side, which: usize) -> Result<(), Anything> {
    match which {
        0 => side.ep.post(Work::send(b"nobody is connected")).map(drop)?,
        _ => loop {
            side.ep.post_recv(side.pz.buffer(4)?)?;
        },
    }
    Ok(())
}

/// The other calls that return what they refused: it need only compile.
fn _all_compile(
    ep: &Ep,
    srq: &Srq,
    (ud, path): (&UdEp, &itapi::AddressHandle),
    (socket, params): (TcpStream, ConvertParams),
    request: Request,
) -> Result<(), Anything> {
    ep.post_recv_quiet(itapi::Local::default())?;
    srq.post_recv(itapi::Local::default())?;
    srq.post_recv_quiet(itapi::Local::default())?;
    ud.post(path, ud.address(), Work::send(b"octets of the caller's frame").unsignalled())?;
    ud.post_recv(itapi::Local::default())?;
    ep.convert(socket, params)?;
    request.handoff(Handoff::new(1))?;
    Ok(())
}

#[test]
fn a_refused_post_is_an_error_like_any_other() {
    let side = Side::new(&open(), |b| b);
    let closed = two_refusals(&side, 0).unwrap_err();
    assert!(closed.to_string().starts_with("cannot post a Send: "), "{closed}");
    let full = two_refusals(&side, 1).unwrap_err();
    assert!(full.to_string().starts_with("cannot post a receive: "), "{full}");
    assert!(full.downcast_ref::<itapi::Error>().is_some(), "{full:?}");
}
