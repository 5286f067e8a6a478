//! Messages written by hand on IT-API: both ends.

use std::collections::VecDeque;
use std::time::Duration;

use itapi::{Buffer, Completion, Ep, Evd, Ia, Listen, Local, Operation, Pz, Work};
use warpline_benches::Result;

use crate::{Case, WARM_UP, timed, touch};

/// One Send in this many is signalled.
const SIGNAL_EVERY: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(20);

/// One end.
struct End {
    ep: Ep,
    evd: Evd,
    batch: Vec<Completion>,
    /// Messages for which the peer has receives.
    credits: u64,
    window: u64,
    idle: Vec<Buffer>,
    sent: u64,
    /// Messages that arrived and were not taken; receives to post again; how many since the last credit.
    came: VecDeque<Buffer>,
    free: Vec<Local>,
    since: u64,
}

impl End {
    fn new(ia: &Ia, case: Case) -> Result<Self> {
        let window: u64 = if case.octets > 64 << 10 { 8 } else { 32 };
        let (pz, evd): (Pz, Evd) = (ia.pz()?, ia.evd(512)?);
        let ep = pz.ep(&evd).depth(128, 64).max_pieces(1).max_inline(128).build()?;
        let count = window as usize + 4;
        for buffer in pz.buffers(count, case.octets.max(8))? {
            ep.post_recv(buffer)?;
        }
        let mut idle = Vec::new();
        if case.octets > 128 {
            idle = pz.buffers(window as usize + 2 * SIGNAL_EVERY as usize, case.octets)?;
            idle.iter_mut().try_for_each(|buffer| buffer.resize(case.octets))?;
        }
        let (batch, came, free) = (Vec::new(), VecDeque::new(), Vec::new());
        Ok(Self { ep, evd, batch, credits: window, window, idle, sent: 0, came, free, since: 0 })
    }

    /// Waits for completions and takes them.
    fn step(&mut self) -> Result<()> {
        if self.evd.poll_into(&mut self.batch)? == 0 {
            let one = self.evd.wait(PATIENCE)?.ok_or("nothing happened")?;
            self.batch.push(one);
            self.evd.poll_into(&mut self.batch)?;
        }
        for completion in self.batch.drain(..) {
            completion.check()?;
            if completion.operation == Operation::Recv {
                let Some(buffer) = completion.into_buffer() else { continue };
                // One octet is a credit for half a window.
                if buffer.len() == 1 {
                    self.credits += self.window / 2;
                    self.ep.post_recv(buffer)?;
                } else {
                    self.came.push_back(buffer);
                }
            } else {
                for memory in completion.earlier {
                    self.idle.extend(memory.into_buffers());
                }
                self.idle.extend(completion.local.into_buffers());
            }
        }
        Ok(())
    }

    /// The application no longer uses a message.
    fn taken(&mut self, buffer: Buffer) -> Result<()> {
        self.free.push(buffer.into());
        self.since += 1;
        if self.since == self.window / 2 {
            self.since = 0;
            self.ep.post_recv_all(&mut self.free)?;
            self.post(Work::send(b"c"))?;
        }
        Ok(())
    }

    fn post(&mut self, work: Work<'_>) -> Result<()> {
        self.sent += 1;
        let work = if self.sent.is_multiple_of(SIGNAL_EVERY) { work } else { work.unsignalled() };
        self.ep.post(work)?;
        Ok(())
    }

    fn send(&mut self, octets: &[u8]) -> Result<()> {
        while self.credits == 0 || (octets.len() > 128 && self.idle.is_empty()) {
            self.step()?;
        }
        self.credits -= 1;
        if octets.len() <= 128 {
            return self.post(Work::send(octets));
        }
        let mut buffer = self.idle.pop().ok_or("no buffer")?;
        buffer.resize(octets.len())?;
        touch(&mut buffer);
        self.post(Work::send(buffer))
    }

    fn recv(&mut self) -> Result<()> {
        loop {
            if let Some(buffer) = self.came.pop_front() {
                return self.taken(buffer);
            }
            self.step()?;
        }
    }
}

/// Serves one connection after the other.
pub(crate) fn serve(ia: &Ia, listen: &Listen) -> Result<()> {
    loop {
        let request = listen.request()?;
        let case = Case::from_octets(request.private_data()).ok_or("no case")?;
        let mut end = End::new(ia, case)?;
        request.accept(&end.ep, b"")?;
        let back = vec![0; case.octets];
        for _ in 0..WARM_UP + case.count {
            end.recv()?;
            if case.echo {
                end.send(&back)?;
            }
        }
        if !case.echo {
            end.send(b"")?;
        }
        end.ep.ended(PATIENCE)?;
    }
}

/// Sends `count` messages, and takes as many if they return.
fn exchange(end: &mut End, case: Case, octets: &[u8], count: u64) -> Result<()> {
    for _ in 0..count {
        end.send(octets)?;
        if case.echo {
            end.recv()?;
        }
    }
    Ok(())
}

/// Duration of the measurement.
pub(crate) fn run(ia: &Ia, address: &str, case: Case) -> Result<Duration> {
    let mut end = End::new(ia, case)?;
    end.ep.connect(address, &case.to_octets())?;
    let octets = vec![0; case.octets];
    exchange(&mut end, case, &octets, WARM_UP)?;
    let took = timed(|| {
        exchange(&mut end, case, &octets, case.count)?;
        if !case.echo {
            end.recv()?;
        }
        Ok(())
    })?;
    end.ep.disconnect()?;
    Ok(took)
}
