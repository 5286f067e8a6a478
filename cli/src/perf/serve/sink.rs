//! Serves RDMA Writes, Reads, atomics and Sends: counts messages, gives credit, confirms phases, until the
//! client sends a last message, its connections end, or its control connection ends. Owned by one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use itapi::{Completion, Error, Local, Operation, Result, Work};

use super::echo::left;
use crate::error::CliResult;
use crate::perf::case::Server;
use crate::perf::worker::{Worker, is_receive};

/// Counts of one connection.
#[derive(Default)]
struct Conn {
    messages: u64,
    /// Messages since the last credit.
    uncredited: u32,
    over: bool,
    /// Receives to be posted again.
    again: Vec<Local>,
}

pub(super) fn serve(worker: &Worker, over: &AtomicBool) -> CliResult<()> {
    let mut conns: Vec<Conn> = worker.eps.iter().map(|_| Conn::default()).collect();
    let (mut open, mut batch) = (conns.len(), Vec::new());
    while open > 0 && !over.load(Ordering::Relaxed) {
        if worker.case.server == Some(Server::Compute) {
            compute();
        }
        match worker.some(&mut batch) {
            Ok(()) => {}
            // The client may pause.
            Err(Error::Timeout(_)) => continue,
            Err(error) => return Err(error.into()),
        }
        for completion in batch.drain(..) {
            let Some(at) = worker.place(completion.ep) else { continue };
            let conn = &mut conns[at];
            if conn.over {
                continue;
            }
            let answered = match completion.check() {
                Ok(()) => take(worker, at, conn, completion),
                failed => failed,
            };
            match answered {
                Ok(()) => {}
                Err(_) if left(&worker.eps[at]) => conn.over = true,
                Err(error) => return Err(error.into()),
            }
            open -= usize::from(conn.over);
        }
    }
    // The client closes: dropping endpoints first would reset its connections. By path no end would be seen.
    let unseen = worker.case.by_path;
    while !over.load(Ordering::Relaxed) && (unseen || !worker.eps.iter().all(left)) {}
    Ok(())
}

/// An application that computes and does not poll meanwhile.
fn compute() {
    let begin = Instant::now();
    while begin.elapsed() < Server::SLICE {
        std::hint::spin_loop();
    }
}

fn take(worker: &Worker, at: usize, conn: &mut Conn, completion: Completion) -> Result<()> {
    if !is_receive(completion.operation) {
        return Ok(());
    }
    let ep = &worker.eps[at];
    let is_end = completion.operation == Operation::Recv && completion.octets == 0;
    if is_end && completion.solicited {
        conn.over = true;
        return Ok(());
    }
    conn.again.push(completion.local);
    if is_end {
        worker.post_recv_all(ep, &mut conn.again)?;
        ep.post(Work::send(&conn.messages.to_be_bytes()))?;
    } else {
        conn.messages += 1;
        conn.uncredited += 1;
        if conn.uncredited == worker.case.credit() {
            conn.uncredited = 0;
            // Post the receives first: the credit must be valid when it arrives.
            worker.post_recv_all(ep, &mut conn.again)?;
            ep.post(Work::send(&[1]))?;
        }
    }
    Ok(())
}
