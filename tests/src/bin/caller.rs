//! A client that connects, posts a receive (and, with `--write`, keeps writing), and reports how the
//! connection ended. Prints `connected`, then `flushed N` once every posted work request has
//! completed, then `ended: TEXT`.
//!
//! One thread; the endpoint and its memory live until the end.

use std::time::Duration;

use itapi::{Error, Ia, Result, WcStatus, Work};

/// Posted receives, and writes in flight.
const DEPTH: usize = 8;
const CHUNK: usize = 64 * 1024;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_default();
    let write = args.next().as_deref() == Some("--write");
    let ia = Ia::open()?;
    let pz = ia.pz()?;
    let evd = ia.evd(64)?;
    let ep = pz.ep(&evd).depth(DEPTH as u32, DEPTH as u32).build()?;
    for buffer in pz.buffers(DEPTH, 64)? {
        ep.post_recv(buffer)?;
    }
    let established = ep.connect(address.as_str(), &[])?;
    let target = granted(&established.private_data)?;
    let mut posted = DEPTH;
    let source = pz.lmr(CHUNK).register()?;
    if write {
        for _ in 0..DEPTH {
            ep.post(Work::write(source.range(0..0x1000)?, target))?;
            posted += 1;
        }
    }
    println!("connected");
    let mut flushed = 0;
    while posted > 0 {
        let Some(completion) = evd.wait(Duration::MAX)? else { continue };
        posted -= 1;
        flushed += usize::from(completion.status != WcStatus::Success);
        if write
            && completion.check().is_ok()
            && ep.post(Work::write(source.range(0..0x1000)?, target)).is_ok()
        {
            posted += 1;
        }
    }
    println!("flushed {flushed}");
    match ep.ended(Duration::MAX)? {
        Some(event) => println!("ended: {event}"),
        None => println!("ended: no event"),
    }
    Ok(())
}

/// The first region that `target` grants.
fn granted(private_data: &[u8]) -> Result<itapi::RemoteRange> {
    private_data
        .get(..itapi::RemoteRange::ENCODED_LEN)
        .and_then(itapi::RemoteRange::from_octets)
        .ok_or_else(|| Error::Argument("the server granted nothing".into()))
}
