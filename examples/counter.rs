//! A counter in a server's memory, to which clients add by RDMA while the server's program sleeps.
//!
//! `counter serve ADDRESS` prints its address; `counter connect ADDRESS N` adds 1, N times, and
//! prints the count.
#![forbid(unsafe_code)]

use std::{error::Error, iter::repeat_n, time::Duration};

use itapi::{Ia, RemoteRange, Work};

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let (ia, mut clients) = (Ia::open()?, Vec::new());
    let (pz, evd, listen) = (ia.pz()?, ia.evd(16)?, ia.listen(address)?);
    let counter = pz.lmr(8).remote_atomic().register()?;
    println!("listening at {}", listen.address());
    loop {
        clients.push(pz.ep(&evd).build()?);
        listen.request()?.accept(&clients[clients.len() - 1], &counter.remote().to_octets())?;
    }
}

fn connect(address: &str, times: usize) -> Result<(), Box<dyn Error>> {
    let ia = Ia::open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(16)?);
    let (ep, mut count) = (pz.ep(&evd).build()?, pz.buffer(8)?);
    let counter = RemoteRange::from_octets(&ep.connect(address, b"")?.private_data);
    let counter = counter.ok_or("the server sent no counter")?;
    for add in repeat_n(1, times).chain([0]) {
        ep.post(Work::fetch_add(counter, add, count))?; // returns the count before
        count = evd.wait_success(Duration::from_secs(9))?.into_buffer().ok_or("no octets")?;
    }
    println!("{}", u64::from_ne_bytes(count[..].try_into()?));
    Ok(ep.disconnect()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address] if mode == "serve" => serve(address),
        [mode, address, times] if mode == "connect" => connect(address, times.parse()?),
        _ => Err("usage: counter serve ADDRESS | counter connect ADDRESS N".into()),
    }
}
