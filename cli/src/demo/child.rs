//! The second process of the demo: receives every chunk, adds it to a checksum, and sends it back by the
//! current operation. One thread does that; a second one watches the pipe from the parent, which ends when the
//! parent dies. The thread that notices first reports it, and the process ends.

use std::collections::VecDeque;
use std::io::{Write, stderr, stdin, stdout};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use itapi::{Buffer, Lmr, Work};

use super::args::DemoPeerArgs;
use super::link::{Happened, Link, message_in, unexpected};
use super::proto::{Hello, Message, Operation, Plan, RECEIVES, WINDOW};
use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// Time-out of the parent's connection, which comes at once.
const PARENT_CONNECTS: Duration = Duration::from_secs(10);

/// Progress, and whether a thread has reported the end.
#[derive(Default)]
struct Progress {
    operation: AtomicU64,
    chunks: AtomicU64,
    total: AtomicU64,
    last_word: AtomicBool,
}

impl Progress {
    /// True for the first caller.
    fn claim(&self) -> bool {
        !self.last_word.swap(true, Ordering::AcqRel)
    }

    fn lost(&self) -> String {
        let total = self.total.load(Ordering::Relaxed);
        let chunks = self.chunks.load(Ordering::Relaxed);
        match Operation::ALL.get((self.operation.load(Ordering::Relaxed) as usize).wrapping_sub(1))
        {
            Some(op) => format!(
                "{}: {chunks} of {total} chunks were received; the rest, and what was on its way back, is lost",
                op.name()
            ),
            None => "nothing was received yet".into(),
        }
    }
}

/// Runs the second process.
pub(crate) fn run(args: &DemoPeerArgs) -> CliResult<()> {
    signals::leave_to_parent();
    let progress = Arc::new(Progress::default());
    watch_parent(args.parent, progress.clone());
    let result = serve(args, &progress);
    if !progress.claim() {
        // The watching thread reports the reason and ends the process.
        loop {
            std::thread::park();
        }
    }
    result.map_err(|error| {
        error
            .at(format!("demo, second process, peer of process {}", args.parent))
            .because(progress.lost())
    })
}

/// Ends this process when the parent closes its end of the standard input.
fn watch_parent(parent: u32, progress: Arc<Progress>) {
    std::thread::spawn(move || {
        // Nothing comes before the end.
        let _ = std::io::copy(&mut stdin(), &mut std::io::sink());
        if progress.claim() {
            let error = gone(parent).at("demo, second process").because(progress.lost());
            // Standard error may be closed.
            let _ = stderr().write_all(error.render(80).as_bytes());
            std::process::exit(i32::from(Exit::Failed as u8));
        }
    });
}

fn gone(parent: u32) -> CliError {
    CliError::new(Exit::Failed, format!("the peer, process {parent}, is gone"))
}

fn serve(args: &DemoPeerArgs, progress: &Progress) -> CliResult<()> {
    let crc = args.crc.is_on();
    let ia = super::open(args.device.as_deref(), crc)?;
    let (pz, evd) = (ia.pz()?, ia.evd(64)?);
    let listen = ia.listen(SocketAddr::new(args.address, 0))?;
    writeln!(stdout(), "{}", listen.address()).map_err(|_| gone(args.parent))?;
    let request = listen
        .wait(PARENT_CONNECTS)?
        .ok_or_else(|| CliError::new(Exit::Network, "no connection came to the second process"))?;
    let hello = Hello::decode(request.private_data()).ok_or_else(|| unexpected(None))?;
    let plan = hello.plan;
    let store = pz.lmr(plan.window_len()).remote_read().remote_write().register()?;
    let ep = pz.ep(&evd).build()?;
    for buffer in pz.buffers(RECEIVES, plan.receive_len())? {
        ep.post_recv(buffer)?;
    }
    request.accept(&ep, &store.remote().to_octets())?;
    progress.total.store(plan.chunks(), Ordering::Relaxed);
    let link = Link::new(ep, evd);
    let mut mirror =
        Mirror { link, hello, store, echoing: 0, waiting: VecDeque::new(), chunk: Vec::new() };
    for (number, operation) in Operation::ALL.into_iter().enumerate() {
        progress.chunks.store(0, Ordering::Relaxed);
        progress.operation.store(number as u64 + 1, Ordering::Relaxed);
        mirror.pass(operation, progress)?;
    }
    mirror.finish()
}

/// Sends received chunks back.
struct Mirror {
    link: Link,
    hello: Hello,
    store: Lmr,
    /// Buffers that are being sent back.
    echoing: u64,
    /// Buffers that wait to be sent back.
    waiting: VecDeque<Buffer>,
    chunk: Vec<u8>,
}

impl Mirror {
    fn plan(&self) -> Plan {
        self.hello.plan
    }

    fn pass(&mut self, operation: Operation, progress: &Progress) -> CliResult<()> {
        let (mut sum, mut done) = (0, 0);
        loop {
            let arrived = match self.next()? {
                Happened::Received(buffer)
                    if operation == Operation::SendRecv && done < self.plan().chunks() =>
                {
                    sum = crc32c::crc32c_append(sum, &buffer);
                    self.waiting.push_back(buffer);
                    self.echo()?;
                    true
                }
                Happened::Received(buffer) => {
                    let message = message_in(&buffer)?;
                    self.link.post_recv(buffer)?;
                    match message {
                        Message::End => break,
                        Message::Done(index) if operation == Operation::Write => {
                            sum = self.sum(sum, index)?;
                            self.write_back(index)?;
                            true
                        }
                        Message::Ready(index) if operation == Operation::Read => {
                            self.fetch(index)?;
                            false
                        }
                        other => return Err(unexpected(Some(other))),
                    }
                }
                Happened::ReadDone => {
                    sum = self.sum(sum, done)?;
                    self.link.send(Message::Done(done))?;
                    true
                }
                Happened::Sent(_) => false,
            };
            if arrived {
                done += 1;
                progress.chunks.store(done, Ordering::Relaxed);
            }
        }
        self.link.send(Message::Checksum(sum))
    }

    /// As [`Link::next`]; after a Send, posts its buffer as a receive and sends the next one back.
    fn next(&mut self) -> CliResult<Happened> {
        let happened = self.link.next()?;
        if let Happened::Sent(Some(buffer)) = happened {
            self.link.post_recv(buffer)?;
            self.echoing -= 1;
            self.echo()?;
            return Ok(Happened::Sent(None));
        }
        Ok(happened)
    }

    /// Sends received buffers back, as many as may be outstanding.
    fn echo(&mut self) -> CliResult<()> {
        while self.echoing < WINDOW {
            let Some(buffer) = self.waiting.pop_front() else { break };
            self.link.post(Work::send(buffer))?;
            self.echoing += 1;
        }
        Ok(())
    }

    /// Adds chunk `index` in the store to the checksum.
    fn sum(&mut self, sum: u32, index: u64) -> CliResult<u32> {
        self.check(index)?;
        let place = self.plan().place_of(index);
        self.chunk.resize(place.len(), 0);
        self.store.read_at(place.start, &mut self.chunk)?;
        Ok(crc32c::crc32c_append(sum, &self.chunk))
    }

    fn write_back(&self, index: u64) -> CliResult<()> {
        let source = self.store.range(self.plan().place_of(index))?;
        let sink = self.plan().remote_place(index, self.hello.sink)?;
        self.link.post(Work::write(source, sink).unsignalled())?;
        self.link.send(Message::Ack(index))
    }

    fn fetch(&self, index: u64) -> CliResult<()> {
        self.check(index)?;
        let sink = self.store.range(self.plan().place_of(index))?;
        let source = self.plan().remote_place(index, self.hello.source)?;
        self.link.post(Work::read(source, sink))
    }

    fn check(&self, index: u64) -> CliResult<()> {
        let known = index < self.plan().chunks();
        known.then_some(()).ok_or_else(|| unexpected(Some(Message::Done(index))))
    }

    /// Waits for the parent's `Bye` and for the end of the connection.
    fn finish(&mut self) -> CliResult<()> {
        loop {
            if let Happened::Received(buffer) = self.next()? {
                match message_in(&buffer)? {
                    Message::Bye => break,
                    other => return Err(unexpected(Some(other))),
                }
            }
        }
        self.link.peer_closes()?;
        Ok(())
    }
}
