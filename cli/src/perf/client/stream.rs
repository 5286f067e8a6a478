//! Measures streams of messages over the connections of a worker, with as many outstanding on each as the case
//! says. Owned by one thread.
//!
//! A phase ends with an empty Send on each connection. The server replies with the number of messages that took
//! its receives; all octets are placed then. Messages that take receives need credit, because iWARP ends a
//! connection when a Send finds no receive (RFC 5041 section 7).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use itapi::{Completion, RemoteRange, Work};

use crate::error::{CliError, CliResult, Exit};
use crate::perf::case::{INLINE, Op};
use crate::perf::meter::{Count, Latencies, is_over};
use crate::perf::traffic::Traffic;
use crate::perf::worker::{Worker, is_receive};

/// Small messages are copied when posted.
static PAYLOAD: [u8; INLINE as usize] = [1; INLINE as usize];

/// One connection.
struct Conn {
    remote: RemoteRange,
    /// Offset of the next message at both ends: each follows the one before.
    place: usize,
    /// Work requests posted and completed.
    posted: u64,
    done: u64,
    /// Messages posted since the connection was made.
    messages: u64,
    /// Messages for which the server has receives.
    credits: u64,
    /// Messages since the last signalled one.
    silent: u32,
    /// When the signalled ones were posted.
    since: VecDeque<Instant>,
    /// Messages that the server has received, once it has replied.
    received: Option<u64>,
    /// Messages of the server and their octets: credits and replies.
    mail: (u64, u64),
}

impl Conn {
    /// Counts posted messages; `signal`: the last of them is signalled.
    fn count(&mut self, messages: u32, signal: bool) {
        self.posted += u64::from(messages);
        self.messages += u64::from(messages);
        self.silent += messages;
        if self.credits != u64::MAX {
            self.credits -= u64::from(messages);
        }
        if signal {
            self.silent = 0;
            self.since.push_back(Instant::now());
        }
    }
}

/// See the module.
pub(super) struct Stream {
    worker: Worker,
    conns: Vec<Conn>,
    latencies: Latencies,
    /// Connections without the server's reply at the end of a phase.
    unconfirmed: usize,
    /// Reused.
    batch: Vec<Completion>,
    list: Vec<Work<'static>>,
}

impl Stream {
    pub(super) fn new(worker: Worker, remotes: Vec<RemoteRange>) -> Self {
        let credits = match worker.case.window() {
            0 => u64::MAX,
            window => window.into(),
        };
        let conn = |remote| Conn {
            remote,
            place: 0,
            posted: 0,
            done: 0,
            messages: 0,
            credits,
            silent: 0,
            since: VecDeque::new(),
            received: None,
            mail: (0, 0),
        };
        Self {
            conns: remotes.into_iter().map(conn).collect(),
            latencies: Latencies::default(),
            unconfirmed: 0,
            batch: Vec::new(),
            list: Vec::new(),
            worker,
        }
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(super) fn phase(&mut self, length: Duration) -> CliResult<Count> {
        let before: Vec<u64> = self.conns.iter().map(|conn| conn.messages).collect();
        let begin = Instant::now();
        (0..self.conns.len()).try_for_each(|at| self.fill(at))?;
        let mut touched = Vec::new();
        while !is_over(begin, length) {
            self.take(&mut touched)?;
            touched.dedup();
            touched.drain(..).try_for_each(|at| self.fill(at))?;
        }
        self.confirm()?;
        let elapsed = begin.elapsed();
        let latencies = std::mem::take(&mut self.latencies);
        let each = self.conns.iter().zip(&before).map(|(conn, before)| conn.messages - before);
        let messages = each.clone().sum();
        let mean = messages as f64 / self.conns.len() as f64;
        let least = each.min().filter(|_| self.conns.len() > 1);
        Ok(Count { messages, elapsed, latencies, slowest: least.map(|least| least as f64 / mean) })
    }

    /// What each connection carried so far, in octets and messages of Sends and RDMA Writes.
    pub(super) fn traffic(&self) -> CliResult<Vec<Traffic>> {
        let (op, size) = (self.worker.case.op, u64::from(self.worker.case.size));
        let of = |(conn, ep): (&Conn, &itapi::Ep)| {
            // The response to an atomic is no payload.
            let (there, back) = match op {
                Op::FetchAdd => (0, 0),
                Op::Read => (0, conn.messages * size),
                _ => (conn.messages * size, 0),
            };
            let (mails, mail_octets) = conn.mail;
            let ends = ep.query()?.ends;
            let received = mails + if op.is_answered() { conn.messages } else { 0 };
            Ok(Traffic {
                local: ends.as_ref().map(|ends| ends.local.address),
                remote: ends.as_ref().map(|ends| ends.remote.address),
                messages_sent: conn.posted,
                octets_sent: there,
                messages_received: received,
                octets_received: back + mail_octets,
            })
        };
        self.conns.iter().zip(&self.worker.eps).map(of).collect()
    }

    /// Sends an empty message on each connection, which tells the server that it ends: receives of a shared
    /// queue are not flushed.
    pub(super) fn leave(&mut self) -> CliResult<()> {
        for (conn, ep) in self.conns.iter_mut().zip(&self.worker.eps) {
            ep.post(Work::send(&[]).solicited())?;
            conn.posted += 1;
        }
        let mut nobody = Vec::new();
        while self.conns.iter().any(|conn| conn.done < conn.posted) {
            self.take(&mut nobody)?;
        }
        Ok(())
    }

    /// Takes completions; adds their connections to `touched`.
    fn take(&mut self, touched: &mut Vec<usize>) -> CliResult<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.worker.some(&mut batch)?;
        for completion in batch.drain(..) {
            touched.extend(self.one(completion)?);
        }
        self.batch = batch;
        Ok(())
    }

    fn one(&mut self, completion: Completion) -> CliResult<Option<usize>> {
        self.worker.check(&completion)?;
        let Some(at) = self.worker.place(completion.ep) else { return Ok(None) };
        let conn = &mut self.conns[at];
        if is_receive(completion.operation) {
            let Some(buffer) = completion.into_buffer() else { return Ok(None) };
            conn.mail = (conn.mail.0 + 1, conn.mail.1 + buffer.len() as u64);
            let mut count = [0; 8];
            if buffer.len() == count.len() {
                buffer.read_at(0, &mut count)?;
                conn.received = Some(u64::from_be_bytes(count));
                self.unconfirmed = self.unconfirmed.saturating_sub(1);
            } else {
                conn.credits += u64::from(self.worker.case.credit());
            }
            self.worker.eps[at].post_recv(buffer)?;
        } else {
            conn.done += 1 + completion.earlier.len() as u64;
            if let Some(since) = conn.since.pop_front() {
                self.latencies.add(since.elapsed());
            }
        }
        Ok(Some(at))
    }

    /// Posts as many as may be outstanding.
    fn fill(&mut self, at: usize) -> CliResult<()> {
        let (list, depth) = (u64::from(self.worker.case.list), u64::from(self.worker.case.depth));
        while self.conns[at].posted - self.conns[at].done + list <= depth
            && self.conns[at].credits >= list
        {
            self.post(at)?;
        }
        Ok(())
    }

    fn post(&mut self, at: usize) -> CliResult<()> {
        let (count, every) = (self.worker.case.list, self.worker.case.signal_every());
        let mut list = std::mem::take(&mut self.list);
        let signal = self.conns[at].silent + count >= every;
        for n in 1..=count {
            let work = self.work(at)?;
            list.push(if signal && n == count { work } else { work.unsignalled() });
        }
        self.conns[at].count(count, signal);
        let ep = &self.worker.eps[at];
        let posted = match list.pop() {
            Some(only) if list.is_empty() => ep.post(only).map(drop),
            last => {
                list.extend(last);
                ep.post_all(&mut list).map(drop)
            }
        };
        posted.map_err(|error| self.worker.broken(ep.id(), error))?;
        if !list.is_empty() {
            return Err(CliError::new(Exit::Failed, "the send queue is shorter than the depth"));
        }
        self.list = list;
        Ok(())
    }

    /// The next message of a connection.
    #[inline]
    fn work(&mut self, at: usize) -> itapi::Result<Work<'static>> {
        let size = self.worker.case.size as usize;
        let conn = &mut self.conns[at];
        let from = if conn.place + size <= self.worker.region.len() { conn.place } else { 0 };
        conn.place = from + size;
        let remote = || conn.remote.slice(from as u64..(from + size) as u64);
        let local = || self.worker.region.range(from..from + size);
        let small = self.worker.small(&PAYLOAD);
        Ok(match (self.worker.case.op, small) {
            (Op::Send, Some(octets)) => Work::send(octets),
            (Op::Send, None) => Work::send(local()?),
            (Op::Write, Some(octets)) => Work::write(octets, remote()?),
            (Op::Write, None) => Work::write(local()?, remote()?),
            (Op::WriteImm, Some(octets)) => Work::write(octets, remote()?).with_immediate(1),
            (Op::WriteImm, None) => Work::write(local()?, remote()?).with_immediate(1),
            (Op::Read, _) => Work::read(remote()?, local()?),
            (Op::FetchAdd, _) => Work::fetch_add(remote()?, 1, local()?),
        })
    }

    /// Waits until the server has received all messages.
    fn confirm(&mut self) -> CliResult<()> {
        self.unconfirmed = self.conns.len();
        for (conn, ep) in self.conns.iter_mut().zip(&self.worker.eps) {
            // Behind all RDMA Reads, too.
            ep.post(Work::send(&[]).read_fence())?;
            conn.posted += 1;
            (conn.silent, conn.received) = (0, None);
        }
        let mut nobody = Vec::new();
        while self.unconfirmed > 0 {
            self.take(&mut nobody)?;
        }
        let takes = self.worker.case.op.takes_receives();
        for conn in self.conns.iter().filter(|_| takes) {
            let (sent, received) = (conn.messages, conn.received.unwrap_or_default());
            if sent != received {
                let what = format!("{sent} messages were sent, but {received} received");
                return Err(CliError::new(Exit::Failed, what));
            }
        }
        Ok(())
    }
}
