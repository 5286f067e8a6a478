//! Measures an RDMA Write of application memory: registered for each transfer, copied into registered memory,
//! or registered once. One thread; the peer is the second process.

use std::time::{Duration, Instant};

use itapi::{Access, Addressing, Lmr, Work};
use serde::Serialize;

use super::{least_us, sizes};
use crate::error::CliResult;
use crate::perf::args::CostsArgs;
use crate::perf::case::{Case, Mode, Op, octets};
use crate::perf::report::number;
use crate::perf::rounds::{Session, Single};
use crate::perf::worker::{PATIENCE, is_receive};

pub(super) const HEADER: &[&str] = &["octets", "register each", "copy into pool", "reuse"];

/// Costs of one size, in microseconds until the server's reply.
#[derive(Debug, Serialize)]
pub(super) struct Transfer {
    pub(super) size: u32,
    /// Register, write, deregister.
    pub(super) register_us: f64,
    /// Copy into registered memory, write.
    pub(super) copy_us: f64,
    /// Write only.
    pub(super) reuse_us: f64,
}

impl Transfer {
    pub(super) fn cells(&self) -> Vec<String> {
        let times = [self.register_us, self.copy_us, self.reuse_us];
        std::iter::once(octets(self.size)).chain(times.map(number)).collect()
    }
}

pub(super) fn measure(
    args: &CostsArgs,
    session: &mut Session,
    mpa: bool,
) -> CliResult<Vec<Transfer>> {
    let crc = mpa.then_some(true);
    let case = |size| Case { depth: 1, crc, ..Case::new(Op::Write, Mode::Bw, size) };
    sizes().map(|size| one(session, case(size), args.seconds)).collect()
}

fn one(session: &mut Session, case: Case, slice: Duration) -> CliResult<Transfer> {
    let size = case.size;
    let single = session.single(case)?;
    let memory = single.worker.pz.lmr(size as usize).register()?;
    let application = vec![1; size as usize];
    memory.write_at(0, &application)?;
    let transfer = Transfer {
        size,
        register_us: least_us(slice, || registered(&single, &memory))?,
        copy_us: least_us(slice, || {
            let begin = Instant::now();
            memory.write_at(0, &application)?;
            write(&single, &memory)?;
            Ok(begin.elapsed())
        })?,
        reuse_us: least_us(slice, || {
            let begin = Instant::now();
            write(&single, &memory)?;
            Ok(begin.elapsed())
        })?,
    };
    session.leave(single)?;
    Ok(transfer)
}

/// Registers memory that exists already, as an application's does, so that nothing is allocated.
fn registered(single: &Single, memory: &Lmr) -> CliResult<Duration> {
    let begin = Instant::now();
    let region = memory.share(&single.worker.pz, Access::LOCAL, Addressing::Absolute)?;
    write(single, &region)?;
    drop(region);
    Ok(begin.elapsed())
}

/// Writes and waits for the server's reply and for the completion.
fn write(single: &Single, region: &Lmr) -> CliResult<()> {
    let (worker, remote) = (&single.worker, single.remotes[0].slice(0..region.len() as u64)?);
    let mut works = vec![Work::write(region, remote).unsignalled(), Work::send(&[])];
    worker.eps[0].post_all(&mut works)?;
    let (mut sent, mut answered) = (false, false);
    while !(sent && answered) {
        let Some(completion) = worker.next(PATIENCE)? else { continue };
        worker.check(&completion)?;
        if is_receive(completion.operation) {
            answered = true;
            worker.post_recv(&worker.eps[0], completion.local)?;
        } else {
            sent = true;
        }
    }
    Ok(())
}
