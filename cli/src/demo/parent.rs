//! The first process of the demo: starts the second, sends the file through it by each operation, and compares
//! every octet that comes back. One thread. If the second process dies, the connection breaks or its pipe ends;
//! the error names the process and what was lost.

use std::process::ExitStatus;
use std::time::Instant;

use itapi::{Buffer, Ep, Evd, Lmr, Pz, RemoteRange, Work};

use serde_json::{Value, json};
use ual::vp_api::ConnectionModel;

use super::args::DemoArgs;
use super::file::Source;
use super::link::{Happened, Link, message_in, unexpected};
use super::process::Peer;
use super::proto::{Hello, Message, Operation, RECEIVES, WINDOW};
use crate::error::{CliError, CliResult, Exit};
use crate::output;
use crate::progress::Progress;
use crate::signals;

/// Printed after the last line of figures.
const PROVED: &str = "\
Each octet went to the second process and back, and was compared with the file:
  Send/Recv   each message arrived in a buffer that its receiver had provided
  RDMA Write  each process wrote into memory of the other, where that had allowed it
  RDMA Read   each process read from memory of the other, where that had allowed it

Next:
  warpline run -- PROGRAM  run an unmodified verbs or MPI program, such as ib_write_bw
  warpline perf local      measure bandwidth and latency here, beside plain TCP
  warpline top             watch every connection, from another terminal
";

/// The result of an operation.
struct Row {
    operation: Operation,
    octets: u64,
    messages: u64,
    seconds: f64,
    checksum: u32,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs, out: &mut dyn std::io::Write) -> CliResult<()> {
    signals::catch()?;
    let source = Source::open(args.file.as_deref(), args.chunk)?;
    let mut progress = Progress::new(args.progress);
    let mut peer = Peer::start(args)?;
    progress.note(&format!("process {} peer {}", std::process::id(), peer.id()));
    let (mut rows, mut crc) = (Vec::new(), output::crc(1, args.crc.is_on()));
    let done = transfer(args, &source, &mut peer, &mut progress, (&mut rows, &mut crc));
    progress.clear();
    match done {
        Ok(()) => finish(peer.wait()?, &source)?,
        // The operations before are complete.
        Err(_) if signals::caught() => {}
        Err(error) => return Err(peer.explain(error)),
    }
    let verified = rows.iter().all(|row| row.checksum == rows[0].checksum);
    if args.json {
        writeln!(out, "{:#}", json(&source, crc, &rows, verified))?;
    } else {
        write!(out, "{}", report(&source, crc, &rows))?;
    }
    if !verified {
        return Err(CliError::new(Exit::Failed, "the file changed while it was moved")
            .at(format!("demo, {}", source.path().display()))
            .hint("move a copy that no program writes to"));
    }
    if signals::caught() {
        return Err(signals::ended_early());
    }
    if !args.json {
        write!(out, "verified\n\n{PROVED}")?;
    }
    Ok(())
}

/// As JSON, the content of [`report`].
fn json(source: &Source, crc: &str, rows: &[Row], verified: bool) -> Value {
    let plan = source.plan();
    let row = |row: &Row| {
        json!({
            "operation": row.operation.name(),
            "octets": row.octets,
            "messages": row.messages,
            "seconds": row.seconds,
            "checksum": format!("{:08x}", row.checksum),
        })
    };
    json!({
        "file": source.path().display().to_string(),
        "octets": plan.octets,
        "chunks": plan.chunks(),
        "chunk": plan.chunk,
        "crc": crc == output::crc(1, true),
        "operations": rows.iter().map(row).collect::<Vec<_>>(),
        "verified": verified,
    })
}

fn finish(status: ExitStatus, source: &Source) -> CliResult<()> {
    if status.success() {
        return Ok(());
    }
    Err(CliError::new(Exit::Failed, format!("the second process failed: {status}"))
        .at(format!("demo, after all of {} came back; nothing was lost", source.path().display())))
}

fn report(source: &Source, crc: &str, rows: &[Row]) -> String {
    let plan = source.plan();
    let mut table = vec![
        ["operation", "octets", "messages", "seconds", "GB/s", "checksum"]
            .map(str::to_owned)
            .to_vec(),
    ];
    table.extend(rows.iter().map(|row| {
        vec![
            row.operation.name().to_owned(),
            row.octets.to_string(),
            row.messages.to_string(),
            format!("{:.3}", row.seconds),
            output::rate(row.octets, row.seconds),
            format!("{:08x}", row.checksum),
        ]
    }));
    format!(
        "{}: {} in {} of {}, there and back, {crc}\n{}",
        source.path().display(),
        output::count(plan.octets, "octet"),
        output::count(plan.chunks(), "chunk"),
        plan.chunk,
        output::table(&table)
    )
}

fn transfer(
    args: &DemoArgs,
    source: &Source,
    peer: &mut Peer,
    progress: &mut Progress,
    (rows, crc): (&mut Vec<Row>, &mut &'static str),
) -> CliResult<()> {
    let address = peer.address()?;
    let ia = super::open(args.device.as_deref(), args.crc.is_on())?;
    let mpa = u8::from(ia.attrs().connection_model == ConnectionModel::LlpStream);
    *crc = output::crc(mpa, args.crc.is_on());
    let (pz, evd) = (ia.pz()?, ia.evd(64)?);
    let waits = evd.clone();
    signals::at_the_first(move || waits.abort());
    let ep = pz.ep(&evd).build()?;
    let mut mover = Mover::connect(&pz, ep, evd, address, source)?;
    for operation in Operation::ALL {
        let started = Instant::now();
        let row = mover.pass(operation, progress);
        rows.push(row.map_err(|error| mover.lost(error, operation, peer))?);
        progress.keep();
        if let Some(row) = rows.last_mut() {
            row.seconds = started.elapsed().as_secs_f64();
        }
    }
    mover.link.send(Message::Bye)?;
    mover.drain()?;
    mover.link.close()
}

/// Moves the chunks of a file there and back.
struct Mover<'a> {
    link: Link,
    source: &'a Source,
    /// Source of the peer's RDMA Reads and of our RDMA Writes.
    outgoing: Lmr,
    /// Sink of the peer's RDMA Writes and of our RDMA Reads.
    incoming: Lmr,
    /// The peer's memory.
    store: RemoteRange,
    /// Buffers for Sends of chunks.
    free: Vec<Buffer>,
    /// The outstanding chunks as read from the file.
    held: [Vec<u8>; WINDOW as usize],
    back: Vec<u8>,
    /// Chunks that came back in this operation.
    finished: u64,
    /// Messages in both directions in this operation.
    messages: u64,
    /// Sends without their completion.
    sending: u64,
}

impl<'a> Mover<'a> {
    fn connect(
        pz: &Pz,
        ep: Ep,
        evd: Evd,
        address: std::net::SocketAddr,
        source: &'a Source,
    ) -> CliResult<Self> {
        let plan = source.plan();
        let outgoing = pz.lmr(plan.window_len()).remote_read().register()?;
        let incoming = pz.lmr(plan.window_len()).remote_write().register()?;
        for buffer in pz.buffers(RECEIVES, plan.receive_len())? {
            ep.post_recv(buffer)?;
        }
        let hello = Hello { plan, source: outgoing.remote(), sink: incoming.remote() };
        let connected = ep.connect(address, &hello.encode())?;
        let store = RemoteRange::from_octets(&connected.private_data);
        Ok(Self {
            link: Link::new(ep, evd),
            source,
            outgoing,
            incoming,
            store: store.ok_or_else(|| unexpected(None))?,
            free: pz.buffers(WINDOW as usize, plan.chunk as usize)?,
            held: Default::default(),
            back: Vec::new(),
            finished: 0,
            messages: 0,
            sending: 0,
        })
    }

    fn pass(&mut self, operation: Operation, progress: &mut Progress) -> CliResult<Row> {
        let plan = self.source.plan();
        let total = plan.chunks();
        let (mut started, mut sum) = (0, 0);
        (self.finished, self.messages) = (0, 0);
        progress.step(operation.name(), 0, total);
        while self.finished < total {
            while started < total && started < self.finished + WINDOW && self.ready(operation) {
                self.start(operation, started, &mut sum)?;
                started += 1;
            }
            if self.advance(operation)? {
                self.finished += 1;
                progress.step(operation.name(), self.finished, total);
            }
        }
        self.send(Message::End)?;
        let theirs = self.checksum()?;
        if theirs != sum {
            return Err(CliError::new(
                Exit::Failed,
                format!("{}: checksum {sum:08x} here, {theirs:08x} there", operation.name()),
            )
            .because("octets changed on the way there"));
        }
        let (octets, messages) = (plan.octets * 2, self.messages);
        Ok(Row { operation, octets, messages, seconds: 0.0, checksum: sum })
    }

    /// Waits for a free buffer: a Send may be incomplete although its echo has arrived.
    fn ready(&self, operation: Operation) -> bool {
        operation != Operation::SendRecv || !self.free.is_empty()
    }

    /// Reads chunk `index` from the file and sends it.
    fn start(&mut self, operation: Operation, index: u64, sum: &mut u32) -> CliResult<()> {
        let held = &mut self.held[(index % WINDOW) as usize];
        self.source.read(index, held)?;
        *sum = crc32c::crc32c_append(*sum, held);
        let place = self.source.plan().place_of(index);
        match operation {
            Operation::SendRecv => {
                let Some(mut buffer) = self.free.pop() else { return Ok(()) };
                buffer.fill(held)?;
                self.link.post(Work::send(buffer))?;
                self.sending += 1;
                self.messages += 1;
                Ok(())
            }
            Operation::Write => {
                self.outgoing.write_at(place.start, held)?;
                let remote = self.source.plan().remote_place(index, self.store)?;
                let chunk = self.outgoing.range(place)?;
                self.link.post(Work::write(chunk, remote).unsignalled())?;
                self.messages += 1;
                self.send(Message::Done(index))
            }
            Operation::Read => {
                self.outgoing.write_at(place.start, held)?;
                self.send(Message::Ready(index))
            }
        }
    }

    /// Takes one completion; true if the oldest outstanding chunk is back.
    fn advance(&mut self, operation: Operation) -> CliResult<bool> {
        match (operation, self.next()?) {
            (Operation::SendRecv, Happened::Received(buffer)) => {
                self.messages += 1;
                let chunk = buffer.to_vec();
                self.link.post_recv(buffer)?;
                self.compare(&chunk)?;
                Ok(true)
            }
            (_, Happened::Received(buffer)) => {
                let message = self.take(buffer)?;
                match (operation, message) {
                    (Operation::Write, Message::Ack(index)) if index == self.finished => {
                        // The RDMA Write that moved it.
                        self.messages += 1;
                        self.arrived()?;
                        Ok(true)
                    }
                    (Operation::Read, Message::Done(index)) => {
                        self.fetch(index)?;
                        Ok(false)
                    }
                    (_, other) => Err(unexpected(Some(other))),
                }
            }
            (Operation::Read, Happened::ReadDone) => {
                self.arrived()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn fetch(&mut self, index: u64) -> CliResult<()> {
        if index >= self.source.plan().chunks() {
            return Err(unexpected(Some(Message::Done(index))));
        }
        let sink = self.incoming.range(self.source.plan().place_of(index))?;
        let remote = self.source.plan().remote_place(index, self.store)?;
        // The peer's RDMA Read and ours.
        self.messages += 2;
        self.link.post(Work::read(remote, sink))
    }

    /// Compares the content of `incoming` with the oldest outstanding chunk.
    fn arrived(&mut self) -> CliResult<()> {
        let place = self.source.plan().place_of(self.finished);
        let mut back = std::mem::take(&mut self.back);
        back.resize(place.len(), 0);
        self.incoming.read_at(place.start, &mut back)?;
        let compared = self.compare(&back);
        self.back = back;
        compared
    }

    fn compare(&self, back: &[u8]) -> CliResult<()> {
        let held = &self.held[(self.finished % WINDOW) as usize];
        if back == held {
            return Ok(());
        }
        let same = held.iter().zip(back).take_while(|(a, b)| a == b).count();
        let offset = self.finished * u64::from(self.source.plan().chunk) + same as u64;
        Err(CliError::new(
            Exit::Failed,
            format!("chunk {} came back different, from file offset {offset} on", self.finished),
        )
        .at(format!("demo, {} octets sent, {} back", held.len(), back.len()))
        .because("octets changed on the way"))
    }

    fn send(&mut self, message: Message) -> CliResult<()> {
        self.messages += 1;
        self.sending += 1;
        self.link.send(message)
    }

    /// As [`Link::next`]; counts the Sends.
    fn next(&mut self) -> CliResult<Happened> {
        let happened = self.link.next()?;
        if let Happened::Sent(buffer) = happened {
            self.sending -= 1;
            self.free.extend(buffer);
            return Ok(Happened::Sent(None));
        }
        Ok(happened)
    }

    fn take(&mut self, buffer: Buffer) -> CliResult<Message> {
        let message = message_in(&buffer)?;
        self.messages += 1;
        self.link.post_recv(buffer)?;
        Ok(message)
    }

    fn checksum(&mut self) -> CliResult<u32> {
        loop {
            if let Happened::Received(buffer) = self.next()? {
                return match self.take(buffer)? {
                    Message::Checksum(sum) => Ok(sum),
                    other => Err(unexpected(Some(other))),
                };
            }
        }
    }

    /// Waits until all our Sends are done.
    fn drain(&mut self) -> CliResult<()> {
        self.sending += 1; // the good-bye
        while self.sending > 0 {
            self.next()?;
        }
        Ok(())
    }

    /// Adds to a failure how many chunks of the operation were lost.
    fn lost(&self, error: CliError, operation: Operation, peer: &Peer) -> CliError {
        let total = self.source.plan().chunks();
        error.at(format!(
            "demo, {}: {} of {total} chunks came back from process {}; the rest is lost",
            operation.name(),
            self.finished,
            peer.id()
        ))
    }
}
