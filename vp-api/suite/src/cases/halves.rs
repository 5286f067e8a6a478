//! Cases about messages of which a part has arrived: between the two ends of a stream a relay keeps the rest.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Memory, Rig, SEND, pattern};
use crate::{Case, Fail};

const STREAM: ConnectionModel = ConnectionModel::LlpStream;

pub(crate) const CASES: &[Case] = &[
    Case::new("rq: a receive that is being filled occupies its slot", occupies)
        .keeps("RI-112 RI-186")
        .only(STREAM),
    Case::new("error: a receive that is being filled is flushed, in its order", flushed)
        .keeps("RI-108 RI-151")
        .only(STREAM),
];

/// Longer than any FPDU, so that a part of it is one at least.
const LEN: usize = 200_000;

/// How long a provider that places what has arrived may take to show it. Others place it later.
const WHILE: Duration = Duration::from_millis(250);

/// Octets that may pass; all, if there is no number.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Option<usize>>, Condvar)>);

impl Gate {
    fn set(&self, octets: Option<usize>) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = octets;
        self.0.1.notify_all();
    }

    /// Waits until some of `most` octets may pass, and takes them.
    fn take(&self, most: usize) -> usize {
        let mut left = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &mut *left {
                None => return most,
                Some(0) => left = self.0.1.wait(left).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let taken = most.min(*left);
                    *left -= taken;
                    return taken;
                }
            }
        }
    }
}

/// Copies octets as the gate lets them, and the end of the stream.
fn copy(mut from: TcpStream, mut to: TcpStream, gate: Gate) {
    let mut octets = vec![0; 16 << 10];
    while let Ok(found @ 1..) = from.read(&mut octets) {
        let mut left = &octets[..found];
        while !left.is_empty() {
            let (now, rest) = left.split_at(gate.take(left.len()));
            if to.write_all(now).is_err() {
                return;
            }
            left = rest;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn sockets() -> Result<[TcpStream; 2], Fail> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let begun = TcpStream::connect(listener.local_addr()?)?;
    Ok([begun, listener.accept()?.0])
}

/// Two connected ends, the gate of what the first one sends, and the second one's buffer; its queue of receives is
/// full. A part of a message has arrived.
struct Half<'a> {
    near: End<'a>,
    far: End<'a>,
    gate: Gate,
    sink: Memory,
    depth: u64,
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        self.gate.set(None);
    }
}

impl<'a> Half<'a> {
    fn new(rig: &'a Rig) -> Result<Self, Fail> {
        let depth = 2.min(rig.attrs.max_wr_per_qp);
        let (near, far) = (rig.end()?, rig.end_with(None, |init| init.recv_depth = depth)?);
        let ([near_end, near_relay], [far_end, far_relay]) = (sockets()?, sockets()?);
        let gate = Gate::default();
        for (from, to, gate) in [
            (near_relay.try_clone()?, far_relay.try_clone()?, gate.clone()),
            (far_relay, near_relay, Gate::default()),
        ] {
            // It ends with the streams.
            std::thread::spawn(move || copy(from, to, gate));
        }
        far.to_rts(far_end, Role::Responder)?;
        near.to_rts(near_end, Role::Initiator)?;
        for end in [&near, &far] {
            same("event of the connection", end.event()?, AsyncEvent::Established)?;
        }
        let depth = far.qp.query()?.recv_depth.into();
        let half = Self { sink: far.memory(LEN)?, near, far, gate, depth };
        (0..depth).try_for_each(|n| half.far.recv(n, &[half.sink.all()]))?;
        half.gate.set(Some(LEN / 2));
        half.near.post(1, SEND, &[half.near.pattern(LEN, 7)?.all()])?;
        half.until_placed()?;
        Ok(half)
    }

    /// No completion meanwhile.
    fn until_placed(&self) -> Result<(), Fail> {
        let (begin, first) = (Instant::now(), pattern(1, 7));
        while self.sink.read(0, 1)? != first && begin.elapsed() < WHILE {
            let found = self.far.cq.poll(&mut [WorkCompletion::BLANK])?;
            same("completions of a message of which a part has arrived", found, 0)?;
            self.near.cq.poll(&mut [])?;
        }
        Ok(())
    }
}

fn occupies(rig: &Rig) -> Result<(), Fail> {
    let half = Half::new(rig)?;
    let Half { near, far, gate, sink, depth } = &half;
    same("receives outstanding", u64::from(far.qp.query()?.recvs_outstanding), *depth)?;
    let more = far.qp.post_recv(&[RecvWr { wr_id: 100, sgl: &[] }]);
    refused("a receive more than the depth", more, VpStatus::TooManyWrs)?;
    gate.set(None);
    same("octets", far.done(0, WcOpcode::Recv)?.octets as usize, LEN)?;
    near.done(1, WcOpcode::Send)?;
    sink.holds("the message", 0, &pattern(LEN, 7))?;
    far.recv(100, &[])
}

fn flushed(rig: &Rig) -> Result<(), Fail> {
    let half = Half::new(rig)?;
    half.far.qp.modify(QpChange::Error)?;
    for n in 0..half.depth {
        let wc = half.far.completion()?;
        same("completion", (wc.wr_id, wc.status), (n, WcStatus::Flushed))?;
    }
    same("receives lost", u64::from(half.far.qp.query()?.recvs_lost), half.depth)
}
