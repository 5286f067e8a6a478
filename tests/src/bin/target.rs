//! Server for the hostile-peer, scale and half-open tests: accepts every connection, echoes every message,
//! grants four regions between guard regions that must not change.
//!
//! Prints `listening ADDRESS`. Reads commands from standard input, one a line: `check` compares the guards and
//! prints `ok connections=N rss=OCTETS`, or which guard changed; end of input ends it. Private data of a
//! request: first octet = receives to post (default 4). Private data of the reply: the granted ranges in the
//! order in which they were made.
//!
//! The accepting and the echoing thread share the connection table; an endpoint is removed when its connection
//! ends.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use itapi::{Completion, Ep, EpId, Evd, Ia, Lmr, Operation, Pz, Result, Work};
use warpline_tests::rss;

/// Octets of each receive buffer; test vectors depend on it.
const MESSAGE: usize = 64;
/// Octets of a guard region.
const GUARD: usize = 64 * 1024;
const GUARD_OCTET: u8 = 0xa5;

type Connections = Arc<Mutex<HashMap<EpId, Ep>>>;

/// Memory that peers may use, between memory that they may not.
struct Memory {
    guards: Vec<Lmr>,
    granted: Vec<Lmr>,
}

impl Memory {
    fn new(pz: &Pz, other_pz: &Pz) -> Result<Self> {
        let guard = || -> Result<Lmr> {
            let lmr = pz.lmr(GUARD).register()?;
            lmr.write_at(0, &vec![GUARD_OCTET; GUARD])?;
            Ok(lmr)
        };
        let mut guards = vec![guard()?];
        let mut granted = Vec::new();
        for builder in [
            pz.lmr(0x1000).remote_read().remote_write().remote_atomic(),
            pz.lmr(0x800).remote_read(),
            pz.lmr(0x1000).remote_write(),
            other_pz.lmr(0x1000).remote_read().remote_write(),
        ] {
            granted.push(builder.register()?);
            guards.push(guard()?);
        }
        Ok(Self { guards, granted })
    }

    /// Index of a guard that has changed.
    fn damage(&self) -> Result<Option<usize>> {
        for (index, guard) in self.guards.iter().enumerate() {
            let mut octets = vec![0; GUARD];
            guard.read_at(0, &mut octets)?;
            if octets.iter().any(|&octet| octet != GUARD_OCTET) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

fn main() -> Result<()> {
    warpline_tests::raise_descriptor_limit();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    // Its peers send wrong STags on purpose, and all have one address.
    let ia = Ia::builder().policy(|policy| policy.invalid_stag_ends = 1_000_000).open()?;
    let (pz, other_pz) = (ia.pz()?, ia.pz()?);
    let memory = Memory::new(&pz, &other_pz)?;
    let grants: Vec<u8> = memory.granted.iter().flat_map(|lmr| lmr.remote().to_octets()).collect();
    let evd = ia.evd(65_536)?;
    let connections = Connections::default();
    let listen = ia.listen_builder(address.as_str())?.backlog(1024).listen()?;
    println!("listening {}", listen.address());

    std::thread::spawn({
        let (evd, connections) = (evd.clone(), connections.clone());
        move || {
            loop {
                match listen.request() {
                    Ok(request) => accept(request, &pz, &evd, &grants, &connections),
                    Err(error) => return eprintln!("listen: {error}"),
                }
            }
        }
    });
    std::thread::spawn({
        let (evd, connections) = (evd.clone(), connections.clone());
        move || {
            loop {
                match evd.wait(Duration::MAX) {
                    Ok(Some(completion)) => echo(completion, &connections),
                    Ok(None) => {}
                    Err(error) => return eprintln!("event dispatcher: {error}"),
                }
            }
        }
    });
    for line in std::io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("check") => match memory.damage()? {
                None => println!("ok connections={} rss={}", lock(&connections).len(), rss()),
                Some(index) => println!("guard {index} was written"),
            },
            Ok(other) => println!("unknown command {other}"),
            Err(_) => break,
        }
    }
    std::process::exit(0);
}

fn lock(connections: &Connections) -> std::sync::MutexGuard<'_, HashMap<EpId, Ep>> {
    connections.lock().expect("no thread panics with the table")
}

fn accept(request: itapi::Request, pz: &Pz, evd: &Evd, grants: &[u8], connections: &Connections) {
    let receives = request.private_data().first().map_or(4, |&n| n.min(16));
    let result = (|| -> Result<()> {
        let ep = pz.ep(evd).depth(16, 16).max_pieces(1).build()?;
        for buffer in pz.buffers(receives.into(), MESSAGE)? {
            ep.post_recv(buffer)?;
        }
        lock(connections).insert(ep.id(), ep.clone());
        request.start_accept(&ep, grants)
    })();
    if let Err(error) = result {
        // The peer may have disconnected; most hostile ones have.
        eprintln!("accept: {error}");
    }
}

/// Sends a received message back, and posts the buffer again when the Send has completed.
fn echo(completion: Completion, connections: &Connections) {
    let (ep_id, operation) = (completion.ep, completion.operation);
    if completion.check().is_err() {
        lock(connections).remove(&ep_id);
        return;
    }
    let Some(ep) = lock(connections).get(&ep_id).cloned() else { return };
    let Some(buffer) = completion.into_buffer() else { return };
    // A refused post means that the connection is ending; its flushed receives clean up.
    match operation {
        Operation::Recv => drop(ep.post(Work::send(buffer))),
        Operation::Send => drop(ep.post_recv(buffer)),
        _ => {}
    }
}
