//! The measured steps of the data path: their preparation, and the part that is counted.
//!
//! Each runs in its own process, in one thread.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use itapi::{Ep, Ia, Work};
use vp_api::{Data, PdId, QpId, RecvWr, Remote, Role, SendFlags, SendOp, SendWr, WorkCompletion};
use vp_soft::memory::stag_table::{Caller, Need};
use vp_softrdma::bench;
use warpline_benches::{Error, Result};

use crate::channels::{Ends, Order};
use crate::end::{End, LIST, MESSAGE, Still, region};
use crate::verbs::{BATCH, Early, Verbs};

/// Lists that are counted.
const ROUNDS: usize = 16;
/// Executions of a step that are counted together.
pub(crate) const TIMES: u64 = (ROUNDS * LIST) as u64;
/// Bound of waits for an exchange.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of [`instructions_counted`], for callgrind.
pub(crate) const MEASURED: &str = "instructions_counted";

/// A step by its name.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// The step writes the record of its queue pair, if there is one.
    pub(crate) is_published: bool,
    run: fn() -> Result<()>,
}

/// All of them.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "post", is_published: true, run: post },
    Step { name: "transmit", is_published: true, run: transmit },
    Step { name: "post and transmit in lists", is_published: true, run: lists },
    Step { name: "receive a write", is_published: true, run: receive_write },
    Step { name: "receive a send", is_published: true, run: receive_send },
    Step { name: "poll a completion", is_published: true, run: poll },
    Step { name: "poll 16 completions, each", is_published: false, run: poll_batch },
    Step { name: "poll an empty queue", is_published: false, run: poll_empty },
    Step { name: "check an STag", is_published: false, run: check },
    Step { name: "check it again", is_published: false, run: check_again },
    Step { name: "dequeue from an EVD", is_published: false, run: dequeue },
    Step { name: "post before RTS", is_published: false, run: post_early },
    Step { name: "post before RTS by libibverbs", is_published: false, run: verbs_post },
    Step { name: "receive before RTS", is_published: false, run: recv_early },
    Step { name: "receive before RTS by libibverbs", is_published: false, run: verbs_recv },
    Step { name: "poll 16, each, by libibverbs", is_published: false, run: verbs_poll },
    Step { name: "send by a channel", is_published: false, run: send::<false> },
    Step { name: "send by a channel that resumes", is_published: false, run: send::<true> },
    Step { name: "receive by a channel", is_published: false, run: recv::<false> },
    Step { name: "receive by a channel that resumes", is_published: false, run: recv::<true> },
];

/// Nanoseconds of one execution of the step of that name, in this process: the median of the lists.
pub(crate) fn time(name: &str) -> Result<f64> {
    TIMED.with(|timed| timed.borrow_mut().get_or_insert_default().reserve(ROUNDS));
    run(name)?;
    let mut timed = TIMED.take().unwrap_or_default();
    timed.sort();
    let middle = timed.get(timed.len() / 2).ok_or("nothing was counted")?;
    Ok(middle.as_nanos() as f64 / LIST as f64)
}

thread_local! {
    /// The time of each list, if requested.
    static TIMED: RefCell<Option<Vec<Duration>>> = const { RefCell::new(None) };
}

/// Runs the step of that name.
pub(crate) fn run(name: &str) -> Result<()> {
    let step = STEPS.iter().find(|step| step.name == name);
    (step.ok_or_else(|| Error::from(format!("there is no step {name}")))?.run)()
}

/// All instructions executed in this function are counted.
#[inline(never)]
fn instructions_counted(step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    black_box(step())
}

/// Runs `before` and `counted` once to warm up, then until [`TIMES`] steps are counted.
fn rounds(
    mut before: impl FnMut() -> Result<()>,
    mut counted: impl FnMut() -> Result<()>,
) -> Result<()> {
    before()?;
    counted()?;
    for _ in 0..ROUNDS {
        before()?;
        let begin = Instant::now();
        instructions_counted(&mut counted)?;
        let took = begin.elapsed();
        TIMED.with_borrow_mut(|timed| timed.as_mut().map(|timed| timed.push(took)));
    }
    Ok(())
}

fn times(mut step: impl FnMut() -> Result<()>) -> Result<()> {
    (0..LIST).try_for_each(|_| step())
}

const fn write() -> SendOp {
    SendOp::Write { remote: Remote { stag: vp_api::Stag(0x100), to: 0 } }
}

const SEND: SendOp = SendOp::Send { solicited: false, invalidate: None };

/// Posts that are deferred until the poll, which is not counted.
fn post() -> Result<()> {
    let end = End::new(Role::Initiator)?;
    let sgl = [end.message()];
    let list = end.list(&write(), &sgl);
    rounds(
        || Ok(end.end.cq().poll(&mut []).map(drop)?),
        || {
            list.iter().try_for_each(|wr| end.end.qp().post_send(std::slice::from_ref(wr)))?;
            Ok(())
        },
    )
}

/// The poll that sends what was posted.
fn transmit() -> Result<()> {
    let end = End::new(Role::Initiator)?;
    let sgl = [end.message()];
    let list = end.list(&write(), &sgl);
    rounds(
        || {
            list.iter().try_for_each(|wr| end.end.qp().post_send(std::slice::from_ref(wr)))?;
            Ok(())
        },
        || Ok(end.end.cq().poll(&mut []).map(drop)?),
    )
}

/// Lists that are sent at once, because the consumer has just polled.
fn lists() -> Result<()> {
    let end = End::new(Role::Initiator)?;
    let sgl = [end.message()];
    let list = end.list(&write(), &sgl);
    rounds(
        || (0..2).try_for_each(|_| Ok(end.end.cq().poll(&mut []).map(drop)?)),
        || Ok(end.end.qp().post_send(&list)?),
    )
}

fn receive_write() -> Result<()> {
    let end = End::new(Role::Responder)?;
    let remote = Remote { stag: end.end.stag(), to: 0 };
    let octets = End::new(Role::Initiator)?.octets_of(1, &SendOp::Write { remote })?;
    // The same Writes repeatedly: they have no sequence numbers.
    rounds(
        || Ok(()),
        || {
            end.end.feed(&octets);
            Ok(())
        },
    )
}

fn receive_send() -> Result<()> {
    let end = End::new(Role::Responder)?;
    let octets = End::new(Role::Initiator)?.octets_of(ROUNDS + 1, &SEND)?;
    let mut parts = octets.chunks(octets.len() / (ROUNDS + 1));
    let sgl = [end.message()];
    let mut out = [WorkCompletion::BLANK; LIST];
    rounds(
        || {
            end.end.cq().poll(&mut out)?;
            Ok(end.end.qp().post_recv(&[RecvWr { wr_id: 1, sgl: &sgl }; LIST])?)
        },
        || {
            end.end.feed(parts.next().ok_or("no more Sends")?);
            Ok(())
        },
    )
}

/// One at a time.
fn poll() -> Result<()> {
    poll_by::<1>()
}

fn poll_batch() -> Result<()> {
    poll_by::<BATCH>()
}

fn poll_by<const N: usize>() -> Result<()> {
    let end = End::new(Role::Responder)?;
    let octets = End::new(Role::Initiator)?.octets_of(ROUNDS + 1, &SEND)?;
    let mut parts = octets.chunks(octets.len() / (ROUNDS + 1));
    let sgl = [end.message()];
    let mut out = [WorkCompletion::BLANK; N];
    rounds(
        || {
            end.end.qp().post_recv(&[RecvWr { wr_id: 1, sgl: &sgl }; LIST])?;
            end.end.feed(parts.next().ok_or("no more Sends")?);
            Ok(())
        },
        || {
            (0..LIST / N).try_for_each(|_| match end.end.cq().poll(&mut out)? {
                found if found == N => Ok(()),
                _ => Err("a completion is missing".into()),
            })
        },
    )
}

/// Reads the socket of the only QP.
fn poll_empty() -> Result<()> {
    let end = End::new(Role::Responder)?;
    let mut out = [WorkCompletion::BLANK];
    rounds(|| Ok(()), || times(|| Ok(end.end.cq().poll(&mut out).map(drop)?)))
}

/// Sends that the provider keeps, as in [`verbs_post`].
fn post_early() -> Result<()> {
    let early = Early::new()?;
    let sgl = [early.message];
    let (op, data, flags) = (SEND, Data::Sgl(&sgl), SendFlags::empty());
    let wr = SendWr { wr_id: 1, op, data, flags };
    rounds(|| Ok(()), || times(|| Ok(early.qp.post_send(std::slice::from_ref(&wr))?)))
}

fn recv_early() -> Result<()> {
    let early = Early::new()?;
    let sgl = [early.message];
    let wr = RecvWr { wr_id: 1, sgl: &sgl };
    rounds(|| Ok(()), || times(|| Ok(early.qp.post_recv(std::slice::from_ref(&wr))?)))
}

fn verbs_recv() -> Result<()> {
    let verbs = Verbs::alone()?;
    rounds(|| Ok(()), || times(|| verbs.recv()))
}

fn verbs_post() -> Result<()> {
    let verbs = Verbs::alone()?;
    rounds(|| Ok(()), || times(|| verbs.send()))
}

/// Polls completions of Sends, 16 at a time.
fn verbs_poll() -> Result<()> {
    let (near, far) = Verbs::pair()?;
    let take = |side: &Verbs, mut left: usize| -> Result<()> {
        while left > 0 {
            left -= side.poll(left)?;
        }
        Ok(())
    };
    rounds(
        || {
            (0..LIST + BATCH).try_for_each(|_| far.recv())?;
            (0..LIST + BATCH).try_for_each(|_| near.send())?;
            // The first polls make this thread send them all, and leave a list of completions.
            take(&near, BATCH)?;
            take(&far, LIST + BATCH)
        },
        || take(&near, LIST),
    )
}

/// Messages of 8 octets; the other end takes them afterwards.
fn send<const RESUMES: bool>() -> Result<()> {
    let ends = Ends::new(RESUMES)?;
    let mut sent = false;
    rounds(
        || {
            if std::mem::replace(&mut sent, true) {
                ends.far(Order::Take)?;
            }
            Ok(())
        },
        || times(|| Ok(ends.near.send(b"12345678")?)),
    )
}

/// The other end has sent them; its last is there.
fn recv<const RESUMES: bool>() -> Result<()> {
    let ends = Ends::new(RESUMES)?;
    rounds(|| ends.far(Order::Send), || times(|| Ok(ends.near.recv().map(drop)?)))
}

const ME: Caller =
    Caller { pd: PdId(1), qp: QpId(1), allow: vp_api::Access::REMOTE, privileged: false };

fn check() -> Result<()> {
    let (_memory, init) = region()?;
    let (table, stags) = bench::table(Arc::new(Still), &init, 1)?;
    rounds(
        || Ok(()),
        || {
            times(|| {
                let stag = black_box(stags[0]);
                black_box(table.resolve(stag, Need::RemoteWrite, &ME, 0, MESSAGE).is_ok());
                Ok(())
            })
        },
    )
}

/// The next segment for the same STag.
fn check_again() -> Result<()> {
    let (_memory, init) = region()?;
    let (table, stags) = bench::table(Arc::new(Still), &init, 1)?;
    let mut held = None;
    rounds(
        || Ok(()),
        || {
            times(|| {
                let (stag, need) = (black_box(stags[0]), Need::RemoteWrite);
                black_box(table.resolve_next(&mut held, stag, need, &ME, 0, MESSAGE).is_ok());
                Ok(())
            })
        },
    )
}

/// Takes completions of RDMA Writes through the access layer and `itapi`, one at a time.
fn dequeue() -> Result<()> {
    let ia = Ia::open()?;
    let (pz, evd, answers) = (ia.pz()?, ia.evd(LIST as u32)?, ia.evd(4)?);
    // The server has its own dispatcher, so that its work is not counted.
    let asked = ia.evd(4)?;
    let client = pz.ep(&evd).recv_evd(&answers).build()?;
    let server = pz.ep(&asked).build()?;
    let listen = ia.listen("127.0.0.1:0")?;
    let address = listen.address();
    std::thread::scope(|scope| {
        let accept = scope.spawn(|| listen.request()?.accept(&server, b""));
        client.connect(address, b"")?;
        accept.join().map_err(|_| Error::from("accepting panicked"))??;
        Ok::<_, Error>(())
    })?;
    let target = pz.lmr(64).remote_write().register()?;
    let post = |ep: &Ep, work: Work| ep.post(work);
    rounds(
        || {
            for ep in [&client, &server] {
                ep.post_recv(pz.buffer(8)?)?;
            }
            for _ in 1..LIST {
                post(&client, Work::write(b"12345678", target.remote()))?;
            }
            // After the reply to the last, all have completed and are still in the provider's queue.
            post(&client, Work::send(b"question"))?;
            asked.wait_success(PATIENCE)?;
            post(&server, Work::send(b"answer"))?;
            answers.wait_success(PATIENCE)?;
            Ok(asked.wait_success(PATIENCE).map(drop)?)
        },
        || {
            times(|| match evd.poll()? {
                Some(completion) => Ok(completion.check().map(drop)?),
                None => Err("a completion is missing".into()),
            })
        },
    )
}
