//! Cases about scatter/gather lists: gathered, scattered, zero-length, many at once; and about ordering.

use vp_api::*;

use crate::fail::same;
use crate::rig::{End, Rig, SEND, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("gather: elements follow each other", gather).keeps("RI-141"),
    Case::new("gather: elements of no octets", gather_empty).keeps("RI-141"),
    Case::new("sge: of elements of no octets nothing is checked", unchecked).keeps("RI-250"),
    Case::new("gather: a region twice", gather_twice).keeps("RI-141"),
    Case::new("gather: a Write", gather_write).keeps("RI-141"),
    Case::new("scatter: elements are filled one after the other", scatter).keeps("RI-142"),
    Case::new("scatter: elements of no octets", scatter_empty).keeps("RI-142"),
    Case::new("scatter: a message that ends within an element", scatter_part).keeps("RI-142"),
    Case::new("sge: the key of a local STag counts", local_key).keeps("RI-45"),
    Case::new("list: many sends, each as it is", many_sends).keeps("RI-01 RI-68"),
    Case::new("list: many receives, each as it is", many_receives).keeps("RI-72"),
    Case::new("list: many completions, oldest first", many_completions).keeps("RI-83 RI-84"),
    Case::new("sq, rq: completions in the order of requests", in_order).keeps("RI-150 RI-151"),
    Case::new("sq: completions name request, queue and kind", named).keeps("RI-143"),
    Case::new("read: the completion says how much", read_length).keeps("RI-73"),
    Case::new("fence: a local one waits for all before", local_fence).keeps("RI-65"),
];

/// Number of elements that a list of this device can have.
fn pieces(rig: &Rig) -> usize {
    rig.attrs.max_sge_send.min(rig.attrs.max_sge_recv).min(4) as usize
}

/// Sends `sgl`, and expects `expected`.
fn sent(near: &End<'_>, far: &End<'_>, sgl: &[Sge], expected: &[u8]) -> Result<(), Fail> {
    let sink = far.memory(expected.len().max(1) + 8)?;
    far.recv(1, &[sink.all()])?;
    near.post(2, SEND, sgl)?;
    near.done(2, WcOpcode::Send)?;
    same("octets received", far.done(1, WcOpcode::Recv)?.octets, expected.len() as u32)?;
    sink.holds("received", 0, expected)
}

fn gather(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let source = near.pattern(400, 1)?;
    let lens = [7, 1, 90, 33];
    let (mut list, mut all) = (Vec::new(), Vec::new());
    for (n, len) in lens.into_iter().enumerate().take(pieces(rig)) {
        list.push(source.sge(300 - n * 100, len));
        all.extend(source.read(300 - n * 100, len)?);
    }
    sent(&near, &far, &list, &all)
}

fn gather_empty(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let source = near.pattern(64, 2)?;
    let list = [source.sge(0, 0), source.sge(3, 5), source.sge(9, 0), source.sge(20, 6)];
    let list = &list[..pieces(rig)];
    let octets = [pattern(64, 2)[3..8].to_vec(), pattern(64, 2)[20..26].to_vec()].concat();
    let all: u32 = list.iter().map(|sge| sge.len).sum();
    sent(&near, &far, list, &octets[..all as usize])
}

fn unchecked(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(64, 6)?, far.memory(64)?);
    let nowhere = Sge { stag: Stag(0x00ab_cd00), len: 0, to: 5 };
    let list = |memory: &crate::rig::Memory| {
        [memory.sge(0, 9), nowhere, memory.sge(20, 7)].into_iter().take(pieces(rig)).collect()
    };
    let (from, to): (Vec<Sge>, Vec<Sge>) = (list(&source), list(&sink));
    far.recv(1, &to)?;
    near.post(2, SEND, &from)?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    sink.holds("received", 0, &pattern(64, 6)[..9])?;
    far.recv(3, &[nowhere])?;
    near.post(4, SEND, &[nowhere])?;
    near.done(4, WcOpcode::Send)?;
    far.done(3, WcOpcode::Recv).map(drop)
}

fn gather_twice(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let source = near.pattern(64, 3)?;
    let list = vec![source.sge(8, 16); pieces(rig)];
    sent(&near, &far, &list, &pattern(64, 3)[8..24].repeat(list.len()))
}

fn gather_write(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(300, 4)?, far.memory(300)?);
    let count = rig.attrs.max_sge_write.min(rig.attrs.max_sge_send).min(3) as usize;
    let list: Vec<Sge> = (0..count).rev().map(|n| source.sge(n * 100, 50)).collect();
    far.recv(1, &[])?;
    near.post(2, SendOp::Write { remote: sink.remote(10) }, &list)?;
    near.post(3, SEND, &[])?;
    far.done(1, WcOpcode::Recv)?;
    let all: Vec<u8> =
        (0..count).rev().flat_map(|n| pattern(300, 4)[n * 100..n * 100 + 50].to_vec()).collect();
    sink.holds("written", 10, &all)
}

/// Receives `octets` into elements of these lengths.
fn received(rig: &Rig, lens: &[usize], octets: usize) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(octets.max(1), 5)?, far.memory(400)?);
    let lens = &lens[..lens.len().min(rig.attrs.max_sge_recv as usize)];
    let octets = octets.min(lens.iter().sum());
    // From the end of the memory to its beginning, so that a wrong order is noticed.
    let at = |n: usize| 300 - n * 100;
    let list: Vec<Sge> = lens.iter().enumerate().map(|(n, len)| sink.sge(at(n), *len)).collect();
    far.recv(1, &list)?;
    near.post(2, SEND, &[source.sge(0, octets)])?;
    near.done(2, WcOpcode::Send)?;
    same("octets received", far.done(1, WcOpcode::Recv)?.octets, octets as u32)?;
    let all = pattern(octets, 5);
    let mut left = &all[..];
    for (n, len) in lens.iter().enumerate() {
        let (here, rest) = left.split_at(left.len().min(*len));
        sink.holds("element", at(n), here)?;
        sink.holds("behind what came", at(n) + here.len(), &vec![0; 100 - here.len()])?;
        left = rest;
    }
    Ok(())
}

fn scatter(rig: &Rig) -> Result<(), Fail> {
    received(rig, &[5, 60, 1, 34], 100)
}

fn scatter_empty(rig: &Rig) -> Result<(), Fail> {
    received(rig, &[0, 20, 0, 10], 30)
}

fn scatter_part(rig: &Rig) -> Result<(), Fail> {
    received(rig, &[16, 16, 16, 16], 25)
}

fn local_key(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(8, 6)?, far.memory(8)?);
    far.recv(1, &[sink.all()])?;
    let stag = Stag::new(source.stag.index(), source.stag.key() ^ 0x55);
    // It is refused at once, or completes with an error.
    if near.post(2, SEND, &[Sge { stag, ..source.all() }]).is_err() {
        return Ok(());
    }
    match near.completion()?.status {
        WcStatus::Success => Err("an STag with another key was taken: compare all 32 bits".into()),
        _ => Ok(()),
    }
}

/// How many requests a list of this device can have here.
fn many(near: &End<'_>, far: &End<'_>) -> Result<usize, Fail> {
    Ok(near.qp.query()?.send_depth.min(far.qp.query()?.recv_depth).min(20) as usize)
}

fn many_sends(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let count = many(&near, &far)?;
    let (source, sink) = (near.pattern(count, 7)?, far.memory(count)?);
    (0..count).try_for_each(|n| far.recv(n as u64, &[sink.sge(n, 1)]))?;
    let lists: Vec<[Sge; 1]> = (0..count).map(|n| [source.sge(n, 1)]).collect();
    let send = |(n, sgl)| {
        let (data, flags) = (Data::Sgl(sgl), SendFlags::SIGNALED);
        SendWr { wr_id: 1000 + n as u64, op: SEND, data, flags }
    };
    let list: Vec<_> = lists.iter().map(|sgl| &sgl[..]).enumerate().map(send).collect();
    near.qp.post_send(&list).map_err(|why| {
        let posted = why.posted;
        Fail(format!("{why}, after {posted} of a list of {count}: step by the first one's size"))
    })?;
    for n in 0..count as u64 {
        near.done(1000 + n, WcOpcode::Send)?;
        far.done(n, WcOpcode::Recv)?;
    }
    sink.holds("received", 0, &pattern(count, 7))
}

fn many_receives(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let count = many(&near, &far)?;
    let (source, sink) = (near.pattern(count, 8)?, far.memory(count)?);
    let lists: Vec<[Sge; 1]> = (0..count).map(|n| [sink.sge(n, 1)]).collect();
    let recv = |(n, sgl)| RecvWr { wr_id: n as u64, sgl };
    let list: Vec<_> = lists.iter().map(|sgl| &sgl[..]).enumerate().map(recv).collect();
    far.qp.post_recv(&list).map_err(|why| {
        let posted = why.posted;
        Fail(format!("{why}, after {posted} of a list of {count}: step by the first one's size"))
    })?;
    for n in 0..count {
        near.post(n as u64, SEND, &[source.sge(n, 1)])?;
        near.done(n as u64, WcOpcode::Send)?;
        far.done(n as u64, WcOpcode::Recv)?;
    }
    sink.holds("received", 0, &pattern(count, 8))
}

fn many_completions(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let count = many(&near, &far)?;
    for n in 0..count as u64 {
        far.recv(n, &[])?;
        near.post(1000 + n, SEND, &[])?;
    }
    let mut seen = Vec::new();
    let mut out = [WorkCompletion::BLANK; 8];
    // The last one has arrived, so all have.
    rig.until("completions of a list", || {
        let n = near.cq.poll(&mut out)?;
        seen.extend(out[..n].iter().map(|wc| wc.wr_id));
        Ok(seen.len() >= count)
    })?;
    same("order of completions", seen, (1000..1000 + count as u64).collect())
}

/// All are sent before the first receive is polled, so that several are there at once.
fn in_order(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let count = many(&near, &far)? as u64;
    for n in 0..count {
        far.recv(n, &[])?;
        near.post(n, SEND, &[])?;
    }
    (0..count).try_for_each(|n| near.done(n, WcOpcode::Send).map(|_| ()))?;
    (0..count).try_for_each(|n| far.done(n, WcOpcode::Recv).map(|_| ()))
}

fn named(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (here, there) = (near.memory(8)?, far.memory(8)?);
    let big = u64::MAX - 7;
    far.recv(big - 1, &[])?;
    near.post(big, SEND, &[])?;
    near.done(big, WcOpcode::Send)?;
    far.done(big - 1, WcOpcode::Recv)?;
    near.post(big, SendOp::Write { remote: there.remote(0) }, &[here.all()])?;
    near.done(big, WcOpcode::Write)?;
    let read = SendOp::Read { remote: there.remote(0), invalidate_sink: false };
    near.post(big, read, &[here.all()])?;
    near.done(big, WcOpcode::Read).map(|_| ())
}

fn read_length(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (here, there) = (near.memory(600)?, far.memory(600)?);
    for len in [1, 600, 77] {
        let op = SendOp::Read { remote: there.remote(0), invalidate_sink: false };
        near.post(1, op, &[here.sge(0, len)])?;
        let octets = near.done(1, WcOpcode::Read)?.octets;
        same("octets of the read's completion", octets, len as u32)?;
    }
    Ok(())
}

fn local_fence(rig: &Rig) -> Result<(), Fail> {
    let fence = SendFlags::LOCAL_FENCE;
    (1..=4).try_for_each(|round| super::data::behind_a_read(rig, fence, round))
}
