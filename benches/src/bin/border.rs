//! Measures nanoseconds per post and poll: SoftRDMA built in, as a library through `rnicpi.h`, and in each
//! wrapper with its default options (`fault` with a rule that never applies).
//!
//! `cargo build --release -p vp-softrdma-dylib`, then `cargo run --release -p warpline-benches --bin border
//! [LIBRARY]`. The QP is in Error, where each request completes as flushed at once: a whole post and poll
//! without a socket. Medians over many short runs.
#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use vp_api::*;
use vp_softrdma::{NAME, SoftRdma};

const RUNS: usize = 2_001;
const LIST: usize = 64;

struct Host;

impl Services for Host {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let beside = || std::env::current_exe().map(|exe| exe.with_file_name("libvp_softrdma.so"));
    let library = std::env::args_os().nth(1).map_or_else(beside, |path| Ok(PathBuf::from(path)))?;
    let library = import::load(&std::path::absolute(library)?)?;
    let wrapped = |text| vp_hooks::wrap(Arc::new(SoftRdma), text);
    let columns = [
        ("built in", measure(&SoftRdma)?),
        ("library", measure(&*library)?),
        ("trace", measure(&*wrapped("trace")?)?),
        ("stats", measure(&*wrapped("stats")?)?),
        ("fault", measure(&*wrapped("fault:drop-completion@1000000000000")?)?),
    ];
    print!("{:<28}", "ns per request or call");
    columns.iter().for_each(|(name, _)| print!(" {name:>9}"));
    println!();
    for (row, (name, _)) in columns[0].1.iter().enumerate() {
        print!("{name:<28}");
        columns.iter().for_each(|(_, figures)| print!(" {:>9.1}", figures[row].1));
        println!();
    }
    Ok(())
}

type Figures = Vec<(&'static str, f64)>;

fn measure(provider: &dyn Provider) -> Result<Figures, Box<dyn Error>> {
    let rnic = provider.open(NAME, Arc::new(Host))?;
    let cq = rnic.create_cq(&CqInit { depth: 256, handler: None })?;
    let qp = rnic.create_qp(&QpInit::new(rnic.alloc_pd()?, cq.id(), cq.id()))?;
    qp.modify(QpChange::Error)?;
    let sgl = [Sge::default()];
    let (op, data) = (SendOp::Send { solicited: false, invalidate: None }, Data::Sgl(&sgl));
    let send = SendWr { wr_id: 1, op, data, flags: SendFlags::SIGNALED };
    let sends = vec![send; LIST];
    let receives = [RecvWr { wr_id: 2, sgl: &sgl }; LIST];
    let mut out = [WorkCompletion::BLANK; LIST];
    let mut one = || cq.poll(&mut out[..1]).map(|_| ());
    let (post, poll) = halves(|| Ok(qp.post_send(black_box(&sends[..1]))?), || Ok(one()?))?;
    let (receive, _) = halves(|| Ok(qp.post_recv(black_box(&receives[..1]))?), || Ok(one()?))?;
    let (list, many) =
        lists(|| Ok(qp.post_send(black_box(&sends))?), || Ok(cq.poll(&mut out).map(|_| ())?))?;
    let mut none = [WorkCompletion::BLANK];
    let empty = median(|| Ok(cq.poll(&mut none).map(|_| ())?), LIST)?;
    Ok(vec![
        ("post one send", post),
        ("post one receive", receive),
        ("poll one completion", poll),
        ("post 64 sends, each", list),
        ("poll 64 completions, each", many),
        ("poll an empty queue", empty),
    ])
}

type Step<'a> = &'a mut dyn FnMut() -> Result<(), Box<dyn Error>>;

/// Posts one by one, then polls one by one; the time of each half.
fn halves(
    mut post: impl FnMut() -> Result<(), Box<dyn Error>>,
    mut poll: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(f64, f64), Box<dyn Error>> {
    pairs(&mut || (0..LIST).try_for_each(|_| post()), &mut || (0..LIST).try_for_each(|_| poll()))
}

/// Posts a list, then polls a list.
fn lists(
    mut post: impl FnMut() -> Result<(), Box<dyn Error>>,
    mut poll: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(f64, f64), Box<dyn Error>> {
    pairs(&mut post, &mut poll)
}

fn pairs(first: Step<'_>, second: Step<'_>) -> Result<(f64, f64), Box<dyn Error>> {
    let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        firsts.push(time(first)?);
        seconds.push(time(second)?);
    }
    Ok((middle(firsts), middle(seconds)))
}

fn median(
    mut step: impl FnMut() -> Result<(), Box<dyn Error>>,
    times: usize,
) -> Result<f64, Box<dyn Error>> {
    let mut all = Vec::new();
    for _ in 0..RUNS {
        all.push(time(&mut || (0..times).try_for_each(|_| step()))?);
    }
    Ok(middle(all))
}

/// Nanoseconds per request of a run of `LIST`.
fn time(step: Step<'_>) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    step()?;
    Ok(begin.elapsed().as_nanos() as f64 / LIST as f64)
}

fn middle(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}
