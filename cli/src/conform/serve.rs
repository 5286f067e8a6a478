//! Target program for a tester: accepts every connection, echoes, grants memory, executes commands.
//!
//! A Request whose private data begins with [`MAGIC`] says how many receives to post, and whether to send
//! first. The Reply's private data: [`MAGIC`], then the ranges of five regions: read and write, read only,
//! write only, of another protection zone, and one that only this connection may use. A message is sent back,
//! unless it is a command: letter, number, range (see [`super::order::command`]). With `--roce` it serves RoCE, takes longer
//! messages, says the immediate data of a message, and has a datagram service at the same port ([`super::serve_ud`]).
//!
//! The accepting and the working thread share the table of connections; a connection is removed whenever it
//! ends.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use itapi::{
    Access, Addressing, Buffer, Capabilities, Completion, Crc, Disconnect, Ep, EpId, EpState, Evd,
    Ia, Lmr, Operation, Pz, RemoteRange, Request, Work,
};

use super::args::ConformArgs;
use super::order::{LONG_MESSAGE, MAGIC, MESSAGE};
use super::serve_ud;
use crate::error::{CliError, CliResult};

/// Octets of the read and write region, and of a write on command.
const REGION: usize = 128 * 1024;

/// How long receives come late on command: some repetitions of a message.
const LATE: Duration = Duration::from_millis(200);

/// How long an adapter may take to say so.
const ESTABLISHES: Duration = Duration::from_secs(1);

struct Target {
    pz: Pz,
    evd: Evd,
    region: Lmr,
    grants: Vec<u8>,
    connections: Mutex<HashMap<EpId, Connection>>,
    /// Octets of each receive.
    message: usize,
    roce: bool,
    /// A peer may invalidate regions.
    invalidates: bool,
    /// Completions say whether a message was solicited.
    says_solicited: bool,
    /// Keeps the ranges in `grants` valid.
    _others: Vec<Lmr>,
}

/// One tester, and the memory that it may invalidate.
struct Connection {
    ep: Ep,
    _own: Lmr,
}

/// Serves until stopped.
pub(super) fn run(args: &ConformArgs, address: &str, out: &mut dyn Write) -> CliResult<()> {
    ual::raise_descriptors()?;
    // The target does not request CRC, so that a tester can leave it off.
    let ia = match args.roce {
        false => Ia::builder().policy(|policy| policy.crc = Crc::Off).open()?,
        true => Ia::builder().device(&args.device).open()?,
    };
    let target = Arc::new(Target::new(&ia, args.roce)?);
    let listen = ia.listen_builder(address)?.backlog(64).listen().map_err(|error| {
        CliError::from(error)
            .at(format!("conform --serve {address}"))
            .or_hint("choose another port")
    })?;
    if args.roce {
        serve_ud::start(&ia, listen.address(), args.json)?;
    }
    writeln!(out, "serving a conformance target at {}", listen.address())?;
    out.flush()?;
    let working = target.clone();
    let worker = std::thread::Builder::new().name("target".into());
    let quiet = args.json;
    worker.spawn(move || working.work(quiet))?;
    loop {
        let request = listen.request()?;
        // Ignored: most connections of a tester fail.
        let _ = target.accept(request);
    }
}

/// Waits until an endpoint may post: a message that establishes the connection arrives before the adapter says that it is.
fn connected(ep: &Ep) {
    for _ in 0..ESTABLISHES.as_millis() {
        match ep.state() {
            EpState::PassivePending => std::thread::sleep(Duration::from_millis(1)),
            _ => return,
        }
    }
}

impl Target {
    fn new(ia: &Ia, roce: bool) -> itapi::Result<Self> {
        let (pz, foreign) = (ia.pz()?, ia.pz()?);
        // Shared: no connection may invalidate a region that several use (RFC 5042 6.4.5). An adapter's regions cannot be
        // invalidated, and it shares none.
        let shares = ia.attrs().capabilities.contains(Capabilities::SHARED_MR);
        let share = |pz: &Pz, octets: usize, access: Access| -> itapi::Result<Vec<Lmr>> {
            if !shares {
                let builder = pz.lmr(octets);
                let wants = |right| access.contains(right);
                let builder =
                    if wants(Access::REMOTE_READ) { builder.remote_read() } else { builder };
                let builder =
                    if wants(Access::REMOTE_WRITE) { builder.remote_write() } else { builder };
                let atomic = wants(Access::REMOTE_ATOMIC);
                let builder = if atomic { builder.remote_atomic() } else { builder };
                return Ok(vec![builder.register()?]);
            }
            let first = pz.lmr(octets).register()?;
            let second = first.share(pz, access, Addressing::Absolute)?;
            Ok(vec![first, second])
        };
        let read = Access::LOCAL_READ | Access::REMOTE_READ;
        let write = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let all = read | write | Access::REMOTE_ATOMIC;
        let mut others = share(&pz, REGION, all)?;
        let region = others.swap_remove(others.len() - 1);
        let pattern: Vec<u8> = (0..REGION).map(|at| (at % 251) as u8).collect();
        region.write_at(0, &pattern)?;
        let mut grants = [&MAGIC[..], &region.remote().to_octets()].concat();
        for both in [
            share(&pz, 0x800, read)?,
            share(&pz, 0x1000, write)?,
            share(&foreign, 0x1000, read | write)?,
        ] {
            grants.extend(both[both.len() - 1].remote().to_octets());
            others.extend(both);
        }
        let evd = ia.evd(8192)?;
        let message = if roce { LONG_MESSAGE } else { MESSAGE };
        let (connections, _others) = (Mutex::default(), others);
        let invalidates = shares;
        // Those of rdma-core do not: only notifications depend on it.
        let says_solicited = !roce || ia.provider() != "vp_verbs";
        Ok(Self {
            pz,
            evd,
            region,
            grants,
            connections,
            message,
            roce,
            invalidates,
            says_solicited,
            _others,
        })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<EpId, Connection>> {
        // No change of the table can be left half done.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, request: Request) -> itapi::Result<()> {
        let command = request.private_data().strip_prefix(MAGIC).unwrap_or(&[4, 0]);
        let (receives, speak) =
            (command.first().map_or(4, |n| *n.min(&16)), command.get(1) == Some(&1));
        if self.roce && command.get(2) == Some(&1) {
            return request.reject(b"as commanded");
        }
        let ep = self.pz.ep(&self.evd).depth(32, 16).build()?;
        for buffer in self.pz.buffers(receives.into(), self.message)? {
            ep.post_recv(buffer)?;
        }
        let own = self.pz.lmr(MESSAGE).remote_read().remote_write().register()?;
        // The ranges may not fit the Reply.
        // InfiniBand pads a Request's private data.
        let grants = match command.len() {
            2.. if self.roce || command.len() == 2 => {
                // An adapter's regions cannot be invalidated: the same one again says so.
                let last = if self.invalidates { own.remote() } else { self.region.remote() };
                let untold: &[u8] = if self.says_solicited { &[] } else { &[1] };
                [&self.grants[..], &last.to_octets(), untold].concat()
            }
            _ => Vec::new(),
        };
        self.table().insert(ep.id(), Connection { ep: ep.clone(), _own: own });
        if !speak {
            return request.start_accept(&ep, &grants);
        }
        request.accept(&ep, &grants)?;
        // Posted before the tester's first FPDU: the stack must not send it earlier.
        ep.post(Work::send(b"unasked"))?;
        Ok(())
    }

    fn work(&self, quiet: bool) {
        loop {
            match self.evd.wait(Duration::MAX) {
                Ok(Some(completion)) => self.completed(completion),
                Ok(None) => {}
                Err(error) => {
                    if !quiet {
                        // Standard output may be closed.
                        let _ = writeln!(std::io::stderr(), "{error}");
                    }
                    return;
                }
            }
        }
    }

    fn completed(&self, completion: Completion) {
        let id = completion.ep;
        if completion.check().is_err() {
            self.table().remove(&id);
            return;
        }
        let Some(ep) = self.table().get(&id).map(|connection| connection.ep.clone()) else {
            return;
        };
        if self.roce {
            connected(&ep);
        }
        let received = matches!(completion.operation, Operation::Recv | Operation::RecvImmediate);
        let value = completion.immediate.filter(|_| self.roce);
        let immediate = completion.operation == Operation::RecvImmediate || value.is_some();
        let sent = completion.operation == Operation::Send;
        let solicited = self.roce && completion.solicited;
        let Some(buffer) = completion.into_buffer() else { return };
        // A refused post means that the connection is ending; its flushed receives clean up.
        if received && !immediate {
            let message = buffer.to_vec();
            if let [b'!', b'n', number, ..] = message[..] {
                self.post_late(ep, buffer, number);
                return;
            }
            if message.first() == Some(&b'!') {
                drop(ep.post_recv(buffer));
                // Ignored: the tester notices the missing response.
                let _ = self.obey(&ep, &message);
                return;
            }
            let work = Work::send(buffer);
            drop(ep.post(if solicited { work.solicited() } else { work }));
        } else if immediate || (sent && buffer.capacity() == self.message) {
            if immediate {
                let value = value.map(|value| (value as u32).to_be_bytes());
                let text = [&b"immediate"[..], value.as_ref().map_or(&[], |v| &v[..])].concat();
                drop(ep.post(Work::send(&text[..])));
            }
            drop(ep.post_recv(buffer));
        }
    }

    /// Posts the receive, and more, when the tester has met none.
    fn post_late(&self, ep: Ep, first: Buffer, number: u8) {
        let more = self.pz.buffers(number.into(), self.message).unwrap_or_default();
        std::thread::spawn(move || {
            std::thread::sleep(LATE);
            // The connection may have ended.
            for buffer in std::iter::once(first).chain(more) {
                drop(ep.post_recv(buffer));
            }
        });
    }

    fn obey(&self, ep: &Ep, message: &[u8]) -> itapi::Result<()> {
        let [_, letter, number, range @ ..] = message else { return Ok(()) };
        let Some(range) = RemoteRange::from_octets(range) else { return Ok(()) };
        let whole = (range.len as usize).min(REGION);
        match letter {
            b'r' => {
                for _ in 0..*number {
                    drop(ep.post(Work::read(range, self.pz.buffer(whole)?)));
                }
            }
            b'w' => {
                drop(ep.post(Work::write(self.region.range(0..whole)?, range).unsignalled()));
                drop(ep.post(Work::send(b"written")));
            }
            b'i' => {
                let from = self.region.range(0..whole)?;
                drop(ep.post(Work::write(from, range).with_immediate(0x0102_0304)));
            }
            b'f' => drop(ep.post(Work::fetch_add(range, 7, self.pz.buffer(8)?))),
            b'c' => drop(ep.post(Work::compare_swap(range, 7, 9, self.pz.buffer(8)?))),
            b'v' => drop(ep.post(Work::send(b"invalidates").invalidate(range.context))),
            b'e' => drop(ep.post(Work::send(b"solicited").solicited())),
            b's' => {
                let mut buffer = self.pz.buffer(usize::from(*number) * 256)?;
                buffer.fill(&vec![0x5a; usize::from(*number) * 256])?;
                drop(ep.post(Work::send(buffer)));
            }
            b'd' => ep.start_disconnect(Disconnect::Graceful)?,
            b'a' => ep.start_disconnect(Disconnect::Abrupt)?,
            _ => {}
        }
        Ok(())
    }
}
