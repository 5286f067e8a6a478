//! Cases about data transfer: Send, RDMA Write and RDMA Read, of all sizes.

use vp_api::*;

use crate::fail::same;
use crate::rig::{End, Memory, Rig, SEND, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("send: messages of all sizes arrive as they were", sends).keeps("RI-73"),
    Case::new("send: both directions", both_directions),
    Case::new("send: order of a list is kept", order),
    Case::new("send: gathered and scattered", gathered).keeps("RI-141 RI-142"),
    Case::new("send: inline octets are copied at once", inline).keeps("RI-67"),
    // rdma-core's completions do not report it.
    Case::new("send: a solicited one says so", solicited)
        .keeps("RI-66")
        .only(ConnectionModel::LlpStream),
    Case::new("write: lands where it was sent, and nowhere else", write).keeps("RI-54"),
    Case::new("write: a Send behind it sees it placed", write_then_send),
    Case::new("read: brings what is there", read),
    Case::new("read: fenced requests come after it", fenced).keeps("RI-64"),
    Case::new("zero length: nothing is checked, all complete", zero_length),
    Case::new("two threads post and poll at the same time", threads),
];

const SIZES: [usize; 6] = [1, 7, 64, 4096, 65_536, 300_001];

fn sizes(rig: &Rig) -> impl Iterator<Item = usize> {
    let most = rig.attrs.max_message as usize;
    SIZES.into_iter().filter(move |size| *size <= most)
}

fn sends(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for (n, size) in sizes(rig).enumerate() {
        send_one(&near, &far, size, n as u8)?;
    }
    Ok(())
}

fn send_one(from: &End<'_>, to: &End<'_>, size: usize, seed: u8) -> Result<(), Fail> {
    let (source, sink) = (from.pattern(size, seed)?, to.memory(size + 8)?);
    to.recv(2, &[sink.all()])?;
    from.post(1, SEND, &[source.all()])?;
    from.done(1, WcOpcode::Send)?;
    let wc = to.done(2, WcOpcode::Recv)?;
    same("octets received", wc.octets, size as u32)?;
    sink.holds("received", 0, &pattern(size, seed))?;
    sink.holds("behind the message", size, &[0; 8])
}

fn both_directions(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for round in 0..4 {
        send_one(&near, &far, 1000, round)?;
        send_one(&far, &near, 1000, round ^ 0xff)?;
    }
    Ok(())
}

fn order(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let count = near.qp.query()?.send_depth.min(far.qp.query()?.recv_depth).min(50) as usize;
    let (source, sink) = (near.pattern(count, 9)?, far.memory(count)?);
    let sinks: Vec<[Sge; 1]> = (0..count).map(|n| [sink.sge(n, 1)]).collect();
    let recvs: Vec<RecvWr<'_>> =
        sinks.iter().enumerate().map(|(n, sgl)| RecvWr { wr_id: n as u64, sgl }).collect();
    far.qp.post_recv(&recvs)?;
    let sources: Vec<[Sge; 1]> = (0..count).map(|n| [source.sge(n, 1)]).collect();
    let wr = |(n, sgl): (usize, &'_ [Sge; 1])| n as u64 * 2 + sgl.len() as u64;
    let ids: Vec<u64> = sources.iter().enumerate().map(wr).collect();
    let list: Vec<SendWr<'_>> = sources
        .iter()
        .zip(&ids)
        .map(|(sgl, id)| {
            let (data, flags) = (Data::Sgl(sgl), SendFlags::SIGNALED);
            SendWr { wr_id: *id, op: SEND, data, flags }
        })
        .collect();
    near.qp.post_send(&list)?;
    for (n, id) in ids.into_iter().enumerate() {
        near.done(id, WcOpcode::Send)?;
        far.done(n as u64, WcOpcode::Recv)?;
    }
    sink.holds("received", 0, &pattern(count, 9))
}

fn gathered(rig: &Rig) -> Result<(), Fail> {
    let pieces = rig.attrs.max_sge_send.min(rig.attrs.max_sge_recv).min(3) as usize;
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(300, 4)?, far.memory(300)?);
    let list = |memory: &Memory| -> Vec<Sge> {
        (0..pieces).rev().map(|n| memory.sge(n * 100, 100)).collect()
    };
    far.recv(1, &list(&sink))?;
    near.post(2, SEND, &list(&source))?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    sink.holds("received", 0, &pattern(300, 4)[..pieces * 100])
}

fn inline(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let size = rig.attrs.max_inline.min(16) as usize;
    let sink = far.memory(64)?;
    far.recv(1, &[sink.all()])?;
    let mut octets = pattern(size, 1);
    let (data, flags) = (Data::Inline(&octets), SendFlags::SIGNALED);
    near.qp.post_send(&[SendWr { wr_id: 2, op: SEND, data, flags }])?;
    octets.fill(0xee);
    near.done(2, WcOpcode::Send)?;
    same("octets received", far.done(1, WcOpcode::Recv)?.octets, size as u32)?;
    sink.holds("received", 0, &pattern(size, 1))
}

fn solicited(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(8, 0)?, far.memory(8)?);
    for wanted in [false, true] {
        far.recv(1, &[sink.all()])?;
        let op = SendOp::Send { solicited: wanted, invalidate: None };
        near.post(2, op, &[source.all()])?;
        near.done(2, WcOpcode::Send)?;
        same("solicited", far.done(1, WcOpcode::Recv)?.solicited, wanted)?;
    }
    Ok(())
}

fn write(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for (n, size) in sizes(rig).enumerate() {
        let (source, sink) = (near.pattern(size, n as u8)?, far.memory(size + 16)?);
        near.post(1, SendOp::Write { remote: sink.remote(8) }, &[source.all()])?;
        near.done(1, WcOpcode::Write)?;
        // A read after a write sees the written data.
        let back = near.memory(size + 16)?;
        near.post(
            2,
            SendOp::Read { remote: sink.remote(0), invalidate_sink: false },
            &[back.all()],
        )?;
        near.done(2, WcOpcode::Read)?;
        back.holds("written", 8, &pattern(size, n as u8))?;
        sink.holds("before the target", 0, &[0; 8])?;
        sink.holds("behind the target", size + 8, &[0; 8])?;
    }
    Ok(())
}

fn write_then_send(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(10_000, 3)?, far.memory(10_000)?);
    far.recv(1, &[])?;
    near.post(2, SendOp::Write { remote: sink.remote(0) }, &[source.all()])?;
    near.post(3, SEND, &[])?;
    far.done(1, WcOpcode::Recv)?;
    sink.holds("written", 0, &pattern(10_000, 3))?;
    near.done(2, WcOpcode::Write)?;
    near.done(3, WcOpcode::Send).map(|_| ())
}

fn read(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for (n, size) in sizes(rig).enumerate() {
        let (source, sink) = (far.pattern(size, n as u8)?, near.memory(size)?);
        let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        near.post(1, op, &[sink.all()])?;
        near.done(1, WcOpcode::Read)?;
        sink.holds("read", 0, &pattern(size, n as u8))?;
    }
    Ok(())
}

fn fenced(rig: &Rig) -> Result<(), Fail> {
    (1..=4).try_for_each(|round| behind_a_read(rig, SendFlags::READ_FENCE, round))
}

/// Sends what is being read. Without a fence it usually, but not always, is sent too early.
pub(super) fn behind_a_read(rig: &Rig, fence: SendFlags, seed: u8) -> Result<(), Fail> {
    let rig = &rig.another()?;
    let (near, far) = rig.pair()?;
    let len = 1_000_000.min(rig.attrs.max_message as usize);
    let (there, here, sink) = (far.pattern(len, seed)?, near.memory(len)?, far.memory(len)?);
    far.recv(1, &[sink.all()])?;
    let sgl = [here.all()];
    let wr = |wr_id, op, flags| SendWr { wr_id, op, data: Data::Sgl(&sgl), flags };
    let read = SendOp::Read { remote: there.remote(0), invalidate_sink: false };
    let signaled = SendFlags::SIGNALED;
    near.qp.post_send(&[wr(2, read, signaled), wr(3, SEND, signaled | fence)])?;
    near.done(2, WcOpcode::Read)?;
    near.done(3, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    sink.holds("sent what was read", 0, &pattern(len, seed))
}

fn zero_length(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    near.done(2, WcOpcode::Send)?;
    same("octets received", far.done(1, WcOpcode::Recv)?.octets, 0)?;
    let nowhere = Remote { stag: Stag(0x1234_5678), to: 99 };
    near.post(3, SendOp::Write { remote: nowhere }, &[])?;
    near.done(3, WcOpcode::Write).map(|_| ())
}

fn threads(rig: &Rig) -> Result<(), Fail> {
    const ROUNDS: u64 = 200;
    let (near, far) = rig.pair()?;
    let (here, there) = (near.memory(64)?, far.memory(64)?);
    // A receive is always posted before the message that needs it.
    near.recv(0, &[here.sge(32, 32)])?;
    far.recv(0, &[there.sge(32, 32)])?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            (0..ROUNDS).try_for_each(|n| {
                receive_next(&far, n, &there)?;
                send_next(&far, n, &there)
            })
        });
        let mine = (0..ROUNDS).try_for_each(|n| {
            send_next(&near, n, &here)?;
            receive_next(&near, n, &here)
        });
        let theirs = other.join().unwrap_or_else(|_| Err("a thread panicked".into()));
        mine.and(theirs)
    })
}

/// One in eight is signaled: an unsignaled send occupies its slot until a later completion was polled.
fn send_next(end: &End<'_>, n: u64, memory: &Memory) -> Result<(), Fail> {
    let flags = if n % 8 == 7 { SendFlags::SIGNALED } else { SendFlags::empty() };
    let sgl = [memory.sge(0, 32)];
    Ok(end.qp.post_send(&[SendWr { wr_id: n, op: SEND, data: Data::Sgl(&sgl), flags }])?)
}

fn receive_next(end: &End<'_>, n: u64, memory: &Memory) -> Result<(), Fail> {
    let mut completion = end.completion()?;
    while completion.opcode == WcOpcode::Send {
        same("status of a send", completion.status, WcStatus::Success)?;
        completion = end.completion()?;
    }
    let found = (completion.wr_id, completion.opcode, completion.status);
    same("completion", found, (n, WcOpcode::Recv, WcStatus::Success))?;
    end.recv(n + 1, &[memory.sge(32, 32)])
}
