//! The client of a measurement over IT-API: connects, runs the phases, disconnects. Each thread owns its worker
//! during a phase.

mod connect;
mod ping;
mod stream;

use std::net::SocketAddr;
use std::time::Duration;

use itapi::{Error, Ia, RemoteRange};

use self::connect::Connector;
use self::ping::Ping;
use self::stream::Stream;
use super::by_path;
use super::case::{Case, Mode};
use super::meter::Count;
use super::traffic::Traffic;
use super::worker::{Worker, open};
use crate::error::{CliError, CliResult, Exit};

/// Octets of the client's receives, which only take credits and counts.
const MAIL: usize = 64;

/// The connections of a case, by thread.
pub(super) struct Client {
    threads: Vec<Thread>,
    _ia: Ia,
}

/// What one thread measures.
enum Thread {
    Stream(Stream),
    Ping(Ping),
    Connect(Connector),
}

impl Client {
    /// Makes all connections of a case.
    pub(super) fn connect(
        case: Case,
        device: Option<&str>,
        address: SocketAddr,
    ) -> CliResult<Self> {
        let ia = open(&case, device, false)?;
        if case.mode == Mode::Connect {
            let connector = Thread::Connect(Connector::new(&ia, case, address)?);
            return Ok(Self { threads: vec![connector], _ia: ia });
        }
        let workers = (0..case.threads).map(|n| {
            let conns = case.conns / case.threads + u32::from(n < case.conns % case.threads);
            Worker::new(&ia, case, conns, false)
        });
        let mut workers = workers.collect::<itapi::Result<Vec<_>>>()?;
        let mut remotes = vec![Vec::new(); workers.len()];
        for n in 0..case.conns as usize {
            let at = n % workers.len();
            remotes[at].push(join(&mut workers[at], address)?);
        }
        let thread = |(worker, remotes)| match case.mode {
            Mode::Lat => Thread::Ping(Ping::new(worker, remotes)),
            _ => Thread::Stream(Stream::new(worker, remotes)),
        };
        Ok(Self { threads: workers.into_iter().zip(remotes).map(thread).collect(), _ia: ia })
    }

    /// Measures for `length`.
    pub(super) fn phase(&mut self, length: Duration) -> CliResult<Count> {
        match &mut self.threads[..] {
            [one] => one.phase(length),
            many => std::thread::scope(|scope| {
                let threads: Vec<_> = many
                    .iter_mut()
                    .map(|thread| scope.spawn(move || thread.phase(length)))
                    .collect();
                let counts = threads.into_iter().map(|thread| {
                    thread.join().unwrap_or_else(|_| {
                        Err(CliError::new(Exit::Internal, "a measuring thread panicked"))
                    })
                });
                Ok(Count::join(counts.collect::<CliResult<Vec<_>>>()?))
            }),
        }
    }

    /// Whether a local stream carries the first connection.
    pub(super) fn is_local(&self) -> Option<bool> {
        let ep = self.threads.first()?.worker().eps.first()?;
        Some(ep.query().ok()?.established?.local.is_ok())
    }

    /// What each connection carried, as far as it is counted.
    pub(super) fn traffic(&self) -> CliResult<Vec<Traffic>> {
        let mut all = Vec::new();
        for thread in &self.threads {
            if let Thread::Stream(stream) = thread {
                all.extend(stream.traffic()?);
            }
        }
        Ok(all)
    }

    /// Ends all connections.
    pub(super) fn close(mut self) -> CliResult<()> {
        for thread in &mut self.threads {
            let by_path = thread.worker().case.by_path;
            if let Thread::Stream(stream) = thread {
                stream.leave()?;
            }
            // Without a connection manager there is no disconnect: they end when they are dropped.
            for ep in thread.worker().eps.iter().filter(|_| !by_path) {
                // The server may have disconnected first.
                let _ = ep.start_disconnect(itapi::Disconnect::Graceful);
            }
        }
        Ok(())
    }
}

impl Thread {
    fn phase(&mut self, length: Duration) -> CliResult<Count> {
        match self {
            Self::Stream(stream) => stream.phase(length),
            Self::Ping(ping) => ping.phase(length),
            Self::Connect(connector) => connector.phase(length),
        }
    }

    fn worker(&self) -> &Worker {
        match self {
            Self::Stream(stream) => stream.worker(),
            Self::Ping(ping) => ping.worker(),
            Self::Connect(connector) => connector.worker(),
        }
    }
}

/// All connections of a case on one worker.
pub(super) fn single(
    case: Case,
    device: Option<&str>,
    address: SocketAddr,
) -> CliResult<(Ia, Worker, Vec<RemoteRange>)> {
    let ia = open(&case, device, false)?;
    let mut worker = Worker::new(&ia, case, case.conns, false)?;
    let remotes = (0..case.conns).map(|_| join(&mut worker, address)).collect::<CliResult<_>>()?;
    Ok((ia, worker, remotes))
}

/// Adds a connection to a worker; the start-up exchanges the memory ranges.
fn join(worker: &mut Worker, address: SocketAddr) -> CliResult<RemoteRange> {
    let octets = match worker.case.mode {
        Mode::Lat => MAIL.max(worker.case.size as usize),
        _ => MAIL,
    };
    let ep = worker.leading_ep(octets)?;
    if worker.case.by_path {
        return by_path::connect(address, worker, &ep);
    }
    let established = ep.connect(address, &worker.region.remote().to_octets())?;
    Ok(remote(&established.private_data)?)
}

/// The server's memory, from its private data.
fn remote(private_data: &[u8]) -> itapi::Result<RemoteRange> {
    RemoteRange::from_octets(private_data)
        .ok_or_else(|| Error::Argument("the server did not send the address of its memory".into()))
}
