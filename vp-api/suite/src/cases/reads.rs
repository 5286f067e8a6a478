//! Cases about several reads at once: fences behind them, IRD and ORD in operation.

use vp_api::*;

use crate::fail::same;
use crate::rig::{End, Memory, Rig, SEND, params, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("fence: a Send waits for all reads before it", send_behind).keeps("RI-64 RI-65"),
    Case::new("fence: a Write waits for all reads before it", write_behind).keeps("RI-64 RI-65"),
    Case::new("fence: unsignaled reads count", silent_behind).keeps("RI-64"),
    Case::new("read: more at once than ORD wait for their turn", beyond_ord).keeps("RI-248"),
    Case::new("read: both ends at once, with an ORD and IRD of 1", both_read).keeps("RI-248"),
    Case::new("connect: IRD and ORD are those that both ends have", agreed)
        .keeps("RI-115 RI-112")
        .only(ConnectionModel::Native),
];

/// Lengths of reads: the last ones are short, and would overtake the first.
const LENS: [usize; 4] = [250_000, 65_536, 100_000, 1];

/// Reads from the peer, each into a region of its own.
struct Reads {
    sources: Vec<Memory>,
    sinks: Vec<Memory>,
}

impl Reads {
    fn new(near: &End<'_>, far: &End<'_>, lens: &[usize]) -> Result<Self, Fail> {
        let source = |(n, len): (usize, &usize)| far.pattern(*len, 10 + n as u8);
        let sources: Result<_, _> = lens.iter().enumerate().map(source).collect();
        let sinks: Result<_, _> = lens.iter().map(|len| near.memory(*len)).collect();
        Ok(Self { sources: sources?, sinks: sinks? })
    }

    fn sgls(&self) -> Vec<[Sge; 1]> {
        self.sinks.iter().map(|sink| [sink.all()]).collect()
    }

    fn list<'a>(&self, sgls: &'a [[Sge; 1]], flags: SendFlags) -> Vec<SendWr<'a>> {
        let wr = |(n, (source, sgl)): (usize, (&Memory, &'a [Sge; 1]))| {
            let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
            SendWr { wr_id: n as u64, op, data: Data::Sgl(sgl), flags }
        };
        self.sources.iter().zip(sgls).enumerate().map(wr).collect()
    }

    fn done(&self, near: &End<'_>) -> Result<(), Fail> {
        for (n, sink) in self.sinks.iter().enumerate() {
            let wc = near.done(n as u64, WcOpcode::Read)?;
            same("octets read", wc.octets as usize, sink.region.len())?;
        }
        self.hold()
    }

    fn hold(&self) -> Result<(), Fail> {
        self.sinks.iter().enumerate().try_for_each(|(n, sink)| {
            sink.holds(&format!("read {n}"), 0, &pattern(sink.region.len(), 10 + n as u8))
        })
    }
}

/// Posts reads, and `op` behind them, fenced, with what they bring. Without a fence it is usually sent too early.
fn behind(
    rig: &Rig,
    (read_flags, fence): (SendFlags, SendFlags),
    op: impl Fn(&Memory) -> SendOp,
) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let count = (rig.attrs.max_sge_send.min(rig.attrs.max_sge_write) as usize).min(LENS.len());
    let most = rig.attrs.max_message as usize / LENS.len();
    let lens: Vec<usize> = LENS.iter().rev().take(count).rev().map(|len| *len.min(&most)).collect();
    let reads = Reads::new(&near, &far, &lens)?;
    let target = far.memory(lens.iter().sum())?;
    let (sgls, op) = (reads.sgls(), op(&target));
    let all: Vec<Sge> = sgls.concat();
    let mut list = reads.list(&sgls, read_flags);
    let (data, flags) = (Data::Sgl(&all), SendFlags::SIGNALED | fence);
    let opcode = op.completion();
    list.push(SendWr { wr_id: 50, op, data, flags });
    let (data, flags) = (Data::Sgl(&[][..]), SendFlags::SIGNALED);
    list.push(SendWr { wr_id: 51, op: SEND, data, flags });
    // For a Send with what was read, and for the message behind it.
    far.recv(60, &[target.all()])?;
    far.recv(61, &[])?;
    near.qp.post_send(&list)?;
    if read_flags.contains(SendFlags::SIGNALED) {
        reads.done(&near)?;
    }
    near.done(50, opcode)?;
    near.done(51, WcOpcode::Send)?;
    far.done(60, WcOpcode::Recv)?;
    if opcode == WcOpcode::Send {
        far.done(61, WcOpcode::Recv)?;
    }
    let read = |(n, len): (usize, &usize)| pattern(*len, 10 + n as u8);
    let octets: Vec<u8> = lens.iter().enumerate().flat_map(read).collect();
    target.holds("what was read, at its peer again", 0, &octets)?;
    reads.hold()
}

fn send_behind(rig: &Rig) -> Result<(), Fail> {
    for fence in [SendFlags::READ_FENCE, SendFlags::LOCAL_FENCE] {
        behind(rig, (SendFlags::SIGNALED, fence), |_| SEND)?;
    }
    Ok(())
}

fn write_behind(rig: &Rig) -> Result<(), Fail> {
    for fence in [SendFlags::READ_FENCE, SendFlags::LOCAL_FENCE] {
        let op = |target: &Memory| SendOp::Write { remote: target.remote(0) };
        behind(rig, (SendFlags::SIGNALED, fence), op)?;
    }
    Ok(())
}

fn silent_behind(rig: &Rig) -> Result<(), Fail> {
    behind(rig, (SendFlags::empty(), SendFlags::READ_FENCE), |_| SEND)
}

/// Number of reads, more than an ORD of 1 or 2 lets begin.
const MANY: usize = 12;

fn beyond_ord(rig: &Rig) -> Result<(), Fail> {
    for (ord, ird) in [(1, 1), (2, 1), (1, 4), (2, 2)] {
        let (most, least) = (&rig.attrs, 1);
        let few = |init: &mut QpInit| {
            (init.ord, init.ird) = (most.max_ord.min(ord), most.max_ird.min(ird).max(least));
        };
        let serves = |init: &mut QpInit| {
            (init.ord, init.ird) = (most.max_ord.min(1), most.max_ird.min(ord));
        };
        let (near, far) = (rig.end_with(None, few)?, rig.end_with(None, serves)?);
        rig.connect(&near, &far)?;
        let reads = Reads::new(&near, &far, &[20_000; MANY])?;
        let sgls = reads.sgls();
        near.qp.post_send(&reads.list(&sgls, SendFlags::SIGNALED))?;
        far.recv(1, &[])?;
        near.post(MANY as u64, SEND, &[])?;
        reads.done(&near)?;
        near.done(MANY as u64, WcOpcode::Send)?;
        far.done(1, WcOpcode::Recv)?;
    }
    Ok(())
}

fn both_read(rig: &Rig) -> Result<(), Fail> {
    let one = |init: &mut QpInit| (init.ord, init.ird) = (1, 1);
    let (near, far) = (rig.end_with(None, one)?, rig.end_with(None, one)?);
    rig.connect(&near, &far)?;
    let there = Reads::new(&near, &far, &[50_000; MANY])?;
    let back = Reads::new(&far, &near, &[50_000; MANY])?;
    let (here, other) = (there.sgls(), back.sgls());
    near.qp.post_send(&there.list(&here, SendFlags::SIGNALED))?;
    far.qp.post_send(&back.list(&other, SendFlags::SIGNALED))?;
    std::thread::scope(|scope| {
        let far = scope.spawn(|| back.done(&far));
        there.done(&near)?;
        far.join().unwrap_or_else(|_| Err("a thread panicked".into()))
    })
}

/// Each end reads no more at once than the other serves, whatever it was created with.
fn agreed(rig: &Rig) -> Result<(), Fail> {
    let cm = rig.cm()?;
    let reads = |ird: u16, ord: u16| (rig.attrs.max_ird.min(ird), rig.attrs.max_ord.min(ord));
    let (asks, accepts) = (reads(4, 3), reads(2, 8));
    let with = |(ird, ord): (u16, u16)| move |init: &mut QpInit| (init.ird, init.ord) = (ird, ord);
    let (near, far) = (rig.end_with(None, with(asks))?, rig.end_with(None, with(accepts))?);
    let (listener, request, asked) = cm.request(&near)?;
    same("IRD and ORD of the request", (asked.ird, asked.ord), asks)?;
    cm.0.accept(request, far.qp.id(), params(b"", accepts))?;
    for _ in 0..2 {
        let NativeEvent::Established { qp, params, .. } = cm.next()? else {
            return Err("an event other than established".into());
        };
        let (end, most, peer) = match qp == near.qp.id() {
            true => (&near, asks.1, accepts.0),
            false => (&far, accepts.1, asks.0),
        };
        if params.ord > most.min(peer) {
            let ord = params.ord;
            return Err(
                format!("an ORD of {ord}; {most} was asked for, the peer serves {peer}").into()
            );
        }
        let info = end.qp.query()?;
        same("IRD and ORD of the QP", (info.ird, info.ord), (params.ird, params.ord))?;
    }
    cm.0.unlisten(listener)?;
    near.qp.modify(QpChange::Error)?;
    rig.until("Error at the peer", || Ok(far.qp.query()?.state == QpState::Error))?;
    for (end, created) in [(&near, asks), (&far, accepts)] {
        end.idle()?;
        let info = end.qp.query()?;
        same("IRD and ORD, back in Idle", (info.ird, info.ord), created)?;
    }
    Ok(())
}
