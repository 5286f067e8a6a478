//! The server of `warpline ping`: reads a client's source and writes it to the sink. One thread per connection
//! owns its endpoint and buffer; a client that dies or misbehaves ends only its own thread. A signal ends all waits: each
//! thread reports its client.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use itapi::{
    Buffer, ConnEvent, Ep, Error, Evd, Ia, Operation, Pz, RemoteRange, Request, WcStatus, Work,
};

use serde_json::json;

use super::args::PingArgs;
use super::target;
use super::wire::{INFO_LEN, Info, MAX_SIZE};
use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// Connections at once; more are rejected.
const MAX_CONNECTIONS: usize = 1024;

/// How long the threads may take to report after a signal.
const REPORTS: Duration = Duration::from_secs(2);

/// How long the reason of an end may arrive after the flushed receive.
const REASON: Duration = Duration::from_millis(500);

/// Serves until a signal, or one connection.
pub(super) fn run(args: &PingArgs, address: &str, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    ual::raise_descriptors()?;
    let ia = super::open(args)?;
    let address = target::listener(address, args)?;
    let listen = ia.listen(address).map_err(|error| {
        CliError::from(error)
            .at(format!("ping --serve {address}"))
            .or_hint("choose another port, or 0 for a free one")
    })?;
    if args.json {
        writeln!(out, "{}", json!({ "serving": listen.address().to_string() }))?;
    } else {
        writeln!(out, "serving rping at {}", listen.address())?;
    }
    out.flush()?;
    let clients = Arc::new(Clients::default());
    let (requests, waiting) = (listen.evd().clone(), clients.clone());
    signals::at_the_first(move || {
        requests.abort();
        waiting.abort();
    });
    loop {
        let request = match listen.request() {
            Err(_) if signals::caught() => {
                clients.wait_for_reports();
                return Ok(());
            }
            request => request?,
        };
        if clients.table().len() >= MAX_CONNECTIONS {
            request.reject(b"too many connections")?;
            continue;
        }
        let slot = Slot::take(&clients);
        if args.once {
            return Connection::accept(&ia, request, &slot)?.serve(args, out);
        }
        start(ia.clone(), request, slot, args)?;
    }
}

/// The connections that are served, and what their threads wait for, once they do.
#[derive(Default)]
struct Clients {
    table: Mutex<BTreeMap<u64, Option<Evd>>>,
    left: Condvar,
}

impl Clients {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Option<Evd>>> {
        // No change of the table can be left half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every present and later wait.
    fn abort(&self) {
        self.table().values().flatten().for_each(|evd| evd.abort());
    }

    /// Waits until each thread has reported.
    fn wait_for_reports(&self) {
        drop(self.left.wait_timeout_while(self.table(), REPORTS, |table| !table.is_empty()));
    }
}

/// The place of a connection among them while it lives.
struct Slot {
    clients: Arc<Clients>,
    number: u64,
}

impl Slot {
    fn take(clients: &Arc<Clients>) -> Self {
        let mut table = clients.table();
        let number = table.last_key_value().map_or(0, |(last, _)| last + 1);
        table.insert(number, None);
        Self { clients: clients.clone(), number }
    }

    fn waits_for(&self, evd: &Evd) {
        self.clients.table().insert(self.number, Some(evd.clone()));
        if signals::caught() {
            evd.abort();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clients.table().remove(&self.number);
        self.clients.left.notify_all();
    }
}

fn start(ia: Ia, request: Request, slot: Slot, args: &PingArgs) -> CliResult<()> {
    let (quiet, json) = (args.quiet, args.json);
    let body = move || {
        let served = Connection::accept(&ia, request, &slot).and_then(|mut connection| {
            let rounds = connection.rounds()?;
            if !quiet {
                connection.report(rounds, json, &mut std::io::stdout())?;
            }
            Ok(())
        });
        if let Err(error) = served {
            // Ignored: standard output may be closed.
            error.print();
        }
    };
    let spawned = std::thread::Builder::new().name("ping".into()).stack_size(256 << 10).spawn(body);
    // The closure dropped the request, which rejects it.
    spawned.map_err(|error| {
        CliError::new(Exit::Failed, format!("cannot start a thread for a connection: {error}"))
    })?;
    Ok(())
}

/// One client.
struct Connection {
    ep: Ep,
    evd: Evd,
    /// The buffer, between its RDMA Read and its RDMA Write.
    data: Option<Buffer>,
    peer: String,
    _pz: Pz,
}

impl Connection {
    fn accept(ia: &Ia, request: Request, slot: &Slot) -> CliResult<Self> {
        let (pz, evd) = (ia.pz()?, ia.evd(32)?);
        slot.waits_for(&evd);
        let ep = pz.ep(&evd).depth(16, 4).build()?;
        for buffer in pz.buffers(2, INFO_LEN)? {
            ep.post_recv(buffer)?;
        }
        let data = Some(pz.buffer(MAX_SIZE as usize)?);
        let peer = request.ends().remote.to_string();
        request.accept(&ep, &[])?;
        Ok(Self { ep, evd, data, peer, _pz: pz })
    }

    fn serve(mut self, args: &PingArgs, out: &mut dyn Write) -> CliResult<()> {
        let rounds = self.rounds()?;
        if !args.quiet {
            self.report(rounds, args.json, out)?;
        }
        Ok(())
    }

    fn report(&self, rounds: u64, json: bool, out: &mut dyn Write) -> CliResult<()> {
        if json {
            writeln!(out, "{}", json!({ "client": self.peer, "round_trips": rounds }))?;
        } else {
            writeln!(out, "{}: {}", self.peer, crate::output::count(rounds, "round trip"))?;
        }
        Ok(out.flush()?)
    }

    /// Serves round trips until the client disconnects, or until a signal; returns how many.
    fn rounds(&mut self) -> CliResult<u64> {
        let mut rounds = 0;
        loop {
            match self.round() {
                Ok(true) => rounds += 1,
                Ok(false) => return Ok(rounds),
                Err(_) if signals::caught() => return Ok(rounds),
                Err(error) => return Err(error),
            }
        }
    }

    /// Serves a round trip; false: the client has disconnected.
    fn round(&mut self) -> CliResult<bool> {
        let Some(source) = self.offer()? else { return Ok(false) };
        self.fetch(source)?;
        self.go_ahead()?;
        let Some(sink) = self.offer()? else {
            return Err(self.failed("the client left in the middle of a round trip"));
        };
        self.put(sink)?;
        Ok(true)
    }

    /// Waits for the client's next offer; `None` after an orderly end.
    fn offer(&mut self) -> CliResult<Option<RemoteRange>> {
        loop {
            let Some(completion) = self.evd.wait(Duration::MAX).map_err(|e| self.broken(&e))?
            else {
                continue;
            };
            if completion.status == WcStatus::Flushed && self.left() {
                return Ok(None);
            }
            completion.check().map_err(|e| self.broken(&e))?;
            self.keep(completion.earlier);
            if completion.operation == Operation::Recv {
                let Some(buffer) = completion.local.into_buffer() else { continue };
                let info = Info::decode(&buffer);
                self.ep.post_recv(buffer).map_err(|e| self.broken(&e))?;
                return match info {
                    Some(info) if info.size <= MAX_SIZE => Ok(Some(info.into())),
                    Some(info) => {
                        Err(self
                            .failed(&format!("it offers {} octets; 65536 is the most", info.size)))
                    }
                    None => Err(self.failed("it sent something else than 16 octets")),
                };
            }
        }
    }

    /// Reads the client's source.
    fn fetch(&mut self, source: RemoteRange) -> CliResult<()> {
        // The client's next offer may arrive before the completion of our last Send.
        let buffer = self.take_data()?;
        self.ep.post(Work::read(source, buffer)).map_err(|e| self.broken(&e))?;
        self.data = Some(self.take_data()?);
        Ok(())
    }

    /// The buffer, once the work request that uses it has completed.
    fn take_data(&mut self) -> CliResult<Buffer> {
        loop {
            if let Some(buffer) = self.data.take() {
                return Ok(buffer);
            }
            let completion = self.evd.wait_success(Duration::MAX).map_err(|e| self.broken(&e))?;
            match completion.operation {
                Operation::Read => self.data = completion.into_buffer(),
                Operation::Recv => return Err(self.failed("it sent before the reply came")),
                _ => self.keep(completion.earlier),
            }
        }
    }

    /// Writes what was read to the client's sink.
    fn put(&mut self, sink: RemoteRange) -> CliResult<()> {
        let Some(buffer) = self.data.take() else {
            return Err(self.failed("there is nothing to write back"));
        };
        if buffer.len() as u64 > sink.len {
            return Err(self.failed("its sink is smaller than its source"));
        }
        // The completion of the Send after it returns its buffer.
        self.ep.post(Work::write(buffer, sink).unsignalled()).map_err(|e| self.broken(&e))?;
        self.go_ahead()
    }

    fn go_ahead(&self) -> CliResult<()> {
        self.ep.post(Work::send(&[0; INFO_LEN])).map_err(|e| self.broken(&e))?;
        Ok(())
    }

    fn keep(&mut self, earlier: Vec<itapi::Local>) {
        self.data = earlier.into_iter().find_map(itapi::Local::into_buffer).or(self.data.take());
    }

    /// True if the client closed in an orderly way.
    fn left(&self) -> bool {
        matches!(self.ep.ended(REASON), Ok(Some(ConnEvent::Disconnected { .. })))
    }

    fn failed(&self, what: &str) -> CliError {
        self.error(what).because("it is not an rping client")
    }

    fn error(&self, what: &str) -> CliError {
        CliError::new(Exit::Failed, format!("{}: {what}", self.peer)).at("ping --serve")
    }

    fn broken(&self, error: &Error) -> CliError {
        match self.ep.ended(REASON) {
            Ok(Some(end)) => CliError::connection(Exit::Failed, &end)
                .or_at(&format!("ping --serve, client {}", self.peer)),
            _ => self.error(&error.to_string()),
        }
    }
}
