//! What an IT-API program does when its connection is lost, with one-sided work alone: it connects again, asks the peer's memory
//! what has arrived, and goes on from there.
//!
//! `resume_by_hand serve ADDRESS` prints its address, takes 1000 records, whatever connections they come by, and checks
//! them; `resume_by_hand connect ADDRESS N` writes them, and drops its connection N times with work under way.
#![forbid(unsafe_code)]

use std::{error::Error, time::Duration};

use itapi::{Access, Buffer, Disconnect, Ep, Evd, Ia, Pz, RemoteRange, Work};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const RECORDS: u64 = 1000;
const RECORD: u64 = 64;
/// Records that are written before the count is.
const BATCH: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(9);

fn record(n: u64) -> [u8; RECORD as usize] {
    std::array::from_fn(|at| (n as u8).wrapping_mul(31).wrapping_add(at as u8))
}

fn serve(address: &str) -> Result<()> {
    let ia = Ia::open()?;
    let (pz, evd, listen) = (ia.pz()?, ia.evd(16)?, ia.listen(address)?);
    // The count of records that have arrived whole, then the records. It outlives every connection.
    let memory = pz.lmr((8 + RECORDS * RECORD) as usize).remote_read().remote_write().register()?;
    let ep = pz.ep(&evd).allow(Access::REMOTE_READ | Access::REMOTE_WRITE).build()?;
    println!("listening at {}", listen.address());
    let (mut count, mut connections) = ([0; 8], 0);
    while u64::from_be_bytes(count) < RECORDS {
        connections += 1;
        // The place of the memory comes with each connection. A program for strangers would also ask who it is.
        if listen.request()?.accept(&ep, &memory.remote().to_octets()).is_ok() {
            while ep.ended(PATIENCE)?.is_none() {}
        }
        ep.reset()?;
        memory.read_at(0, &mut count)?;
    }
    for n in 0..RECORDS {
        let mut found = [0; RECORD as usize];
        memory.read_at((8 + n * RECORD) as usize, &mut found)?;
        if found != record(n) {
            return Err(format!("record {n} is not what was written").into());
        }
    }
    println!("{RECORDS} records arrived, by {connections} connections");
    Ok(())
}

/// Reads the peer's count. What was written before is in its memory when this has completed: RFC 5040 section 5.5.
fn arrived(ep: &Ep, evd: &Evd, there: RemoteRange, sink: &mut Option<Buffer>) -> Result<u64> {
    ep.post(Work::read(there.slice(0..8)?, sink.take().ok_or("no buffer")?))?;
    *sink = evd.wait_success(PATIENCE)?.into_buffer();
    let octets = sink.as_deref().and_then(|octets| octets.first_chunk()).ok_or("no count")?;
    Ok(u64::from_be_bytes(*octets))
}

/// Writes by one connection; true once everything has arrived. `lose`: drops it on the way.
fn write(pz: &Pz, ep: &Ep, evd: &Evd, address: &str, lose: bool) -> Result<bool> {
    let place = ep.connect(address, b"")?.private_data;
    let there = RemoteRange::from_octets(&place).ok_or("the server sent no place")?;
    let mut sink = Some(pz.buffer(8)?);
    let mut done = arrived(ep, evd, there, &mut sink)?;
    let until = if lose { done + 17 * BATCH } else { RECORDS };
    while done < until.min(RECORDS) {
        for n in done..done + BATCH {
            let place = there.slice(8 + n * RECORD..8 + (n + 1) * RECORD)?;
            ep.post(Work::write(&record(n), place).unsignalled())?;
        }
        // Only records that are there are counted.
        arrived(ep, evd, there, &mut sink)?;
        done += BATCH;
        ep.post(Work::write(&done.to_be_bytes(), there.slice(0..8)?).unsignalled())?;
    }
    if lose && done < RECORDS {
        ep.start_disconnect(Disconnect::Abrupt)?;
        return Ok(false);
    }
    let done = arrived(ep, evd, there, &mut sink)? == RECORDS;
    ep.disconnect()?;
    Ok(done)
}

fn connect(address: &str, losses: u64) -> Result<()> {
    let ia = Ia::open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(64)?);
    let ep = pz.ep(&evd).depth(32, 1).max_inline(RECORD as u32).build()?;
    let mut tries = 0;
    loop {
        match write(&pz, &ep, &evd, address, tries < losses) {
            Ok(true) => break,
            Err(error) if tries > losses + 50 => return Err(error),
            _ => tries += 1,
        }
        // Keeps the endpoint, its queues and all registered memory; work under way has completed, flushed.
        ep.ended(PATIENCE)?;
        while ep.reset().is_err() {
            std::thread::yield_now();
        }
        while evd.poll()?.is_some() {}
    }
    println!("written");
    Ok(())
}

fn main() -> Result<()> {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address] if mode == "serve" => serve(address),
        [mode, address, losses] if mode == "connect" => connect(address, losses.parse()?),
        _ => Err("usage: resume_by_hand serve ADDRESS | resume_by_hand connect ADDRESS N".into()),
    }
}
