//! Cases about datagrams at their own end: those that fail there, the way back, and notifications of what completes.

use std::sync::Arc;

use vp_api::*;

use crate::cases::queues::Bell;
use crate::fail::same;
use crate::rig::{Rig, pattern};
use crate::ud::{Post, UdEnd};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("datagram: one from memory that may not be read ends the queue pair", unreadable)
        .keeps("RI-171 RI-172")
        .with(Capabilities::UD),
    Case::new("datagram: one into memory that may not be written ends the queue pair", unwritable)
        .keeps("RI-171 RI-172")
        .with(Capabilities::UD),
    Case::new("datagram: no more elements than agreed", elements)
        .keeps("RI-169 RI-170")
        .with(Capabilities::UD),
    Case::new("datagram: an armed CQ notifies of sends, and of what is flushed", notified)
        .keeps("RI-80 RI-87 RI-88")
        .with(Capabilities::UD),
    Case::new("datagram: an address handle from the first address of its port", first_address)
        .with(Capabilities::UD),
];

/// Whether a device checks memory before it sends; a stand-in need not.
fn is_checked(wc: &WorkCompletion) -> bool {
    wc.status != WcStatus::Success
}

/// After a failure the rest is flushed, and once that is polled the queue pair begins anew.
fn ends_and_begins(end: &UdEnd<'_>, peer: &UdEnd<'_>) -> Result<(), Fail> {
    let state = end.qp.query()?.state;
    same("state behind a request that failed", state, UdState::Error)?;
    end.qp.modify(UdState::Operational)?;
    let way = end.post.way(peer, end)?;
    let sink = end.memory(GRH_OCTETS)?;
    end.recv(50, &[sink.all()])?;
    peer.qp.post_send(&[way.send(51, &[])])?;
    peer.sent(51, WcOpcode::Send)?;
    end.received(50, 0).map(drop)
}

fn unreadable(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far) = (post.end()?, post.end()?);
    let way = post.way(&near, &far)?;
    let source = near.memory(20)?;
    let stag = source.stag;
    rig.rnic.dealloc_stag(stag)?;
    near.recv(1, &[])?;
    near.qp.post_send(&[way.send(2, &[source.all()])])?;
    // In either order: they are of two queues.
    let mut found = vec![near.completion()?.0];
    if !is_checked(&found[0]) {
        return Ok(());
    }
    found.push(near.completion()?.0);
    found.sort_by_key(|wc| wc.wr_id);
    same(
        "a send from memory that is gone",
        (found[1].wr_id, found[1].status),
        (2, WcStatus::InvalidStag),
    )?;
    let receive = (found[0].wr_id, found[0].opcode, found[0].status);
    same("a receive behind it", receive, (1, WcOpcode::Recv, WcStatus::Flushed))?;
    near.qp.post_send(&[way.send(3, &[])])?;
    same("a send behind it", near.completion()?.0.status, WcStatus::Flushed)?;
    ends_and_begins(&near, &far)
}

fn unwritable(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far) = (post.end()?, post.end()?);
    let way = post.way(&near, &far)?;
    let sink = far.memory(GRH_OCTETS + 20)?;
    far.recv(1, &[sink.all()])?;
    far.recv(2, &[sink.all()])?;
    rig.rnic.dealloc_stag(sink.stag)?;
    near.qp.post_send(&[way.send(3, &[])])?;
    near.sent(3, WcOpcode::Send)?;
    let (wc, from) = far.completion()?;
    if !is_checked(&wc) {
        return Ok(());
    }
    let found = (wc.wr_id, wc.opcode, wc.status, from, wc.qp);
    let expected = (1, WcOpcode::Recv, WcStatus::InvalidStag, None, far.qp.id());
    same("a receive into memory that is gone", found, expected)?;
    let wc = far.completion()?.0;
    same("the receive behind it", (wc.wr_id, wc.status), (2, WcStatus::Flushed))?;
    ends_and_begins(&far, &near)
}

fn elements(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far) = (post.end()?, post.end()?);
    let way = post.way(&near, &far)?;
    let source = near.memory(1)?;
    let most = rig.attrs.max_sge_send as usize;
    let sgl = vec![source.all(); most + 1];
    let list = [way.send(1, &[]), way.send(2, &sgl), way.send(3, &[])];
    let failure = PostFailure { posted: 1, status: VpStatus::InvalidSgl };
    same("a send of too many elements in a list", near.qp.post_send(&list), Err(failure))?;
    near.sent(1, WcOpcode::Send)?;
    near.qp.post_send(&[way.send(4, &[])])?;
    near.sent(4, WcOpcode::Send)
}

fn notified(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let bell = Arc::new(Bell::default());
    let (near, far) = (post.end_with(Some(bell.clone()), |_| {})?, post.end()?);
    let way = post.way(&near, &far)?;
    near.cq.arm(false)?;
    near.qp.post_send(&[way.send(1, &[])])?;
    bell.wait(1, rig.wait)?;
    near.sent(1, WcOpcode::Send)?;
    near.recv(2, &[])?;
    // What fails counts as solicited.
    near.cq.arm(true)?;
    near.qp.modify(UdState::Error)?;
    bell.wait(2, rig.wait)?;
    bell.all_of(near.cq.id())
}

fn first_address(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far) = (post.end()?, post.end()?);
    let way = post.way(&near, &far)?;
    let path = post.ud.query_ah(way.ah)?.path;
    let open = DatagramPath { local_gid: [0; 16], hop_limit: 0, ..path };
    let ah = post.ud.create_ah(near.pd, &open)?;
    let sink = far.memory(GRH_OCTETS + 9)?;
    far.recv(1, &[sink.all()])?;
    let source = near.memory(9)?;
    source.region.write_at(0, &pattern(9, 6))?;
    near.qp.post_send(&[crate::ud::Way { ah, ..way }.send(2, &[source.all()])])?;
    near.sent(2, WcOpcode::Send)?;
    far.received(1, 9)?;
    sink.holds("what was sent", GRH_OCTETS, &pattern(9, 6))
}
