//! Memory for RDMA Writes, Reads and atomics, receives for Sends: counts, gives credit, confirms,
//! until the client leaves: it says so, its connections end, or its control connection does. Owned
//! by one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use itapi::{Completion, Error, Local, Operation, Result, Work};

use super::echo::left;
use crate::error::CliResult;
use crate::perf::case::Server;
use crate::perf::worker::{Worker, is_receive};

/// What came over one connection.
#[derive(Default)]
struct Conn {
    messages: u64,
    /// Of those, messages since the last credit.
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
            // The client's pause is its own affair.
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
    // The client closes; endpoints that went first would reset its connections.
    while !over.load(Ordering::Relaxed) && !worker.eps.iter().all(left) {}
    Ok(())
}

/// What an application does that has more to do than to look after its connections.
fn compute() {
    let begin = Instant::now();
    while begin.elapsed() < Server::TURN {
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
            // The receives first: credit must be good when it arrives.
            worker.post_recv_all(ep, &mut conn.again)?;
            ep.post(Work::send(&[1]))?;
        }
    }
    Ok(())
}
