//! A table that clients read by RDMA Read, while the server's process sleeps.
//!
//! `kv_read serve ADDRESS KEY=VALUE...` prints its address; `kv_read connect ADDRESS KEY` prints
//! the value. One read fetches all lines of the bucket that the key's hash selects.
#![forbid(unsafe_code)]

use std::{error::Error, time::Duration};

use itapi::{Ia, RemoteRange, Work};

type Result = std::result::Result<(), Box<dyn Error>>;

const BUCKET: usize = 256;

fn bucket(key: &str) -> usize {
    key.bytes().fold(7, |hash, octet| (hash * 31 + usize::from(octet)) % 251) * BUCKET
}

fn serve(address: &str, entries: &[String]) -> Result {
    let (ia, mut table) = (Ia::open()?, vec![0; 256 * BUCKET]);
    for entry in entries {
        let bucket = &mut table[bucket(entry.split('=').next().unwrap_or(entry))..][..BUCKET];
        let free = bucket.iter().position(|octet| *octet == 0).unwrap_or(BUCKET);
        let place = bucket.get_mut(free..=free + entry.len()).ok_or("a bucket is full")?;
        place.copy_from_slice(format!("{entry}\n").as_bytes());
    }
    let (pz, evd, listen, mut clients) = (ia.pz()?, ia.evd(16)?, ia.listen(address)?, Vec::new());
    let table = pz.adopt(table).remote_read().register()?;
    println!("listening at {}", listen.address());
    loop {
        clients.push(pz.ep(&evd).build()?);
        listen.request()?.accept(&clients[clients.len() - 1], &table.remote().to_octets())?;
    }
}

fn connect(address: &str, key: &str) -> Result {
    let ia = Ia::open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(16)?);
    let ep = pz.ep(&evd).build()?;
    let table = RemoteRange::from_octets(&ep.connect(address, b"")?.private_data);
    let at = bucket(key) as u64;
    let lines = table.ok_or("the server sent no table")?.slice(at..at + BUCKET as u64)?;
    ep.post(Work::read(lines, pz.buffer(BUCKET)?))?;
    let lines = evd.wait_success(Duration::from_secs(9))?.into_buffer().ok_or("no octets")?;
    let mut lines = std::str::from_utf8(&lines)?.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    println!("{}", value.ok_or("there is no such key")?);
    Ok(ep.disconnect()?)
}

fn main() {
    let result = match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address, entries @ ..] if mode == "serve" => serve(address, entries),
        [mode, address, key] if mode == "connect" => connect(address, key),
        _ => Err("usage: kv_read serve ADDRESS KEY=VALUE... | kv_read connect ADDRESS KEY".into()),
    };
    if let Err(error) = result {
        eprintln!("kv_read: {error}");
        std::process::exit(1);
    }
}
