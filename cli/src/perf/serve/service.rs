//! Serves one measurement over IT-API: accepts the connections and spreads them over the case's threads. Owns
//! the adapter; each thread owns its worker.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use itapi::{ConnEvent, Error, FailReason, Ia, Listen, RemoteRange};

use super::{echo, sink};
use crate::error::{CliError, CliResult, Exit};
use crate::perf::by_path;
use crate::perf::case::{Case, Mode, Server};
use crate::perf::worker::{Worker, open};

/// Time-out of the client's connections, which come at once.
const CLIENT_CONNECTS: Duration = Duration::from_secs(30);

/// How often to check for the end of the measurement between two connections.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The same for idle connections, whose cost this must not hide.
const LOOK_UP_IDLE: Duration = Duration::from_secs(1);

/// A measurement and its adapter.
pub(super) struct Service {
    case: Case,
    ia: Ia,
}

impl Service {
    pub(super) fn new(case: Case, device: Option<&str>) -> CliResult<Self> {
        let wait = case.server.map_or(case.wait, |server| server == Server::Wait);
        let case = Case { wait, ..case };
        Ok(Self { case, ia: open(&case, device, true)? })
    }

    /// Serves until the client's connections are gone, or until it is `over`.
    pub(super) fn serve(
        self,
        here: SocketAddr,
        announce: impl FnOnce(u16),
        over: &AtomicBool,
    ) -> CliResult<()> {
        if self.case.by_path {
            return self.serve_by_path(here, announce, over);
        }
        let backlog = self.case.conns.max(64);
        let listen = self.ia.listen_builder((here.ip(), 0))?.backlog(backlog).listen()?;
        announce(listen.address().port());
        if self.case.mode == Mode::Connect {
            return self.accept_often(&listen, over);
        }
        let threads = self.case.threads;
        let conns = |n| self.case.conns / threads + u32::from(n < self.case.conns % threads);
        let workers = (0..threads).map(|n| Worker::new(&self.ia, self.case, conns(n), true));
        let mut workers: Vec<_> =
            workers.map(|worker| Ok((worker?, Vec::new()))).collect::<itapi::Result<_>>()?;
        for n in 0..self.case.conns as usize {
            let at = n % workers.len();
            let (worker, remotes) = &mut workers[at];
            remotes.push(accept(&listen, worker)?);
        }
        std::thread::scope(|scope| {
            let start = |(worker, remotes)| scope.spawn(move || answer(worker, remotes, over));
            let threads: Vec<_> = workers.into_iter().map(start).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| {
                    Err(CliError::new(Exit::Internal, "a measuring thread panicked"))
                })
            })
        })
    }

    /// The same for one connection by path.
    fn serve_by_path(
        &self,
        here: SocketAddr,
        announce: impl FnOnce(u16),
        over: &AtomicBool,
    ) -> CliResult<()> {
        let (listener, port) = by_path::listen(here.ip())?;
        announce(port);
        let mut worker = Worker::new(&self.ia, self.case, self.case.conns, true)?;
        let mut remotes = Vec::new();
        for _ in 0..self.case.conns {
            let ep = worker.serving_ep()?;
            remotes.push(by_path::accept(&listener, &worker, &ep)?);
        }
        answer(worker, remotes, over)
    }

    /// Accepts one connection after the other; drops each when its client ends it.
    fn accept_often(&self, listen: &Listen, over: &AtomicBool) -> CliResult<()> {
        let worker = Worker::new(&self.ia, self.case, self.case.conns, true)?;
        let events = self.ia.conn_evd()?;
        let look_up = if self.case.conns > 1 { LOOK_UP_IDLE } else { LOOK_UP };
        let mut eps = HashMap::new();
        while !over.load(Ordering::Acquire) {
            if let Some(request) = listen.wait(look_up)? {
                let ep = worker.bare_ep().conn_evd(&events).build()?;
                request.start_accept(&ep, &worker.region.remote().to_octets())?;
                eps.insert(ep.id(), ep);
            }
            while let Some((ep, event)) = events.poll()? {
                // The client learns only that it was rejected.
                if let ConnEvent::Failed(error) = &event
                    && matches!(error.reason, FailReason::NoLocalStream(_))
                {
                    return Err(CliError::connection(Exit::Network, &event));
                }
                if !matches!(event, ConnEvent::Established(_)) {
                    eps.remove(&ep);
                }
            }
        }
        Ok(())
    }
}

/// Adds a connection to a worker; the start-up exchanges the memory ranges.
fn accept(listen: &Listen, worker: &mut Worker) -> CliResult<RemoteRange> {
    let request = listen.wait(CLIENT_CONNECTS)?.ok_or(Error::Timeout(CLIENT_CONNECTS))?;
    let remote = RemoteRange::from_octets(request.private_data()).ok_or_else(|| {
        Error::Argument("the client did not send the address of its memory".into())
    })?;
    let ep = worker.serving_ep()?;
    request.accept(&ep, &worker.region.remote().to_octets())?;
    Ok(remote)
}

fn answer(worker: Worker, remotes: Vec<RemoteRange>, over: &AtomicBool) -> CliResult<()> {
    match worker.case.mode {
        Mode::Lat if !worker.case.op.is_answered() => echo::serve(worker, remotes, over),
        _ => sink::serve(&worker, over),
    }
}
