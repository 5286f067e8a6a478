//! Many connections between two processes: set-up rate, one exchange on all, octets per idle one.
//!
//! Starts itself a second time as the server. Each process uses its objects from two threads at
//! most: the server accepts in one and echoes in the other. Fails (exit code 1) when a connection
//! cannot be made, breaks, or an echo does not come.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use itapi::{Completion, Ep, EpId, Evd, Ia, Listen, Operation, Pz, Work};
use warpline_benches::machine::{facts, resident};
use warpline_benches::peer::{Peer, follow_parent};
use warpline_benches::{Error, Result};

/// A safety net, not an expectation.
const PATIENCE: Duration = Duration::from_secs(60);
/// Work requests outstanding in each queue of an endpoint.
const QUEUE: u32 = 4;
/// Octets of the one receive that each endpoint has posted.
const MESSAGE: usize = 64;

/// Many SoftRDMA connections between two processes over loopback
#[derive(Parser)]
struct Args {
    /// How many
    #[arg(default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Be the second process
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.serve { serve() } else { measure(args.connections) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(connections: u32) -> Result<()> {
    raise_descriptor_limit();
    let mut server = Peer::start(&["--serve"])?;
    let address: std::net::SocketAddr = server.hear()?.parse()?;
    let theirs: u64 = server.ask("resident")?;
    let ia = Ia::open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(2 * QUEUE * connections)?);
    let ours = resident();

    let begin = Instant::now();
    let mut eps = HashMap::new();
    for number in 0..connections {
        let ep = endpoint(&pz, &evd)?;
        ep.connect(address, &[]).map_err(|error| format!("connection {number}: {error}"))?;
        eps.insert(ep.id(), ep);
    }
    let set_up = begin.elapsed();
    let begin = Instant::now();
    exchange(&eps, &evd)?;
    let exchanged = begin.elapsed();

    let count = u64::from(connections);
    let theirs = server.ask::<u64>("resident")?.saturating_sub(theirs) / count;
    let ours = resident().saturating_sub(ours) / count;
    let standing: u32 = server.ask("connections")?;
    if standing != connections {
        return Err(format!("only {standing} of {connections} connections stand").into());
    }
    let rate = |time: Duration| f64::from(connections) / time.as_secs_f64();
    println!("{}", facts());
    println!("{connections} connections, each with queues of {QUEUE} and {QUEUE} work requests");
    println!("and one receive of {MESSAGE} octets posted at either side:");
    println!("set up one after the other  {:>9.0} per second", rate(set_up));
    println!("one Send there and back     {:>9.0} per second, all at once", rate(exchanged));
    println!("memory per idle connection  {theirs:>9} octets at the server, {ours} at the client");
    Ok(())
}

/// An endpoint with its receive posted.
fn endpoint(pz: &Pz, evd: &Evd) -> itapi::Result<Ep> {
    let ep = pz.ep(evd).depth(QUEUE, QUEUE).max_pieces(1).build()?;
    ep.post_recv(pz.buffer(MESSAGE)?)?;
    Ok(ep)
}

/// Sends on every connection and waits until every echo is back, each the right one.
fn exchange(eps: &HashMap<EpId, Ep>, evd: &Evd) -> Result<()> {
    for ep in eps.values() {
        ep.post(Work::send(format!("{:?}", ep.id()).as_bytes()).unsignalled())
            .map_err(itapi::Error::from)?;
    }
    for _ in 0..eps.len() {
        let completion = evd.wait_success(PATIENCE)?;
        let ep = completion.ep;
        let echo = completion.into_buffer().map_or_else(Vec::new, |buffer| buffer.to_vec());
        if echo != format!("{ep:?}").as_bytes() {
            return Err(format!("{ep:?}: the echo is not what was sent").into());
        }
    }
    Ok(())
}

type Connections = Arc<Mutex<HashMap<EpId, Ep>>>;

fn lock(connections: &Connections) -> std::sync::MutexGuard<'_, HashMap<EpId, Ep>> {
    // The table is whole after each of its operations.
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The second process: accepts everybody, echoes every message, answers questions.
fn serve() -> Result<()> {
    follow_parent()?;
    raise_descriptor_limit();
    let ia = Ia::open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(1 << 17)?);
    let listen = ia.listen_builder("127.0.0.1:0")?.backlog(1024).listen()?;
    println!("{}", listen.address());
    let connections = Connections::default();
    background({
        let (evd, connections) = (evd.clone(), connections.clone());
        move || accept_all(&listen, &pz, &evd, &connections)
    });
    background({
        let connections = connections.clone();
        move || echo_all(&evd, &connections)
    });
    for question in std::io::stdin().lock().lines() {
        match question?.as_str() {
            "resident" => println!("{}", resident()),
            "connections" => println!("{}", lock(&connections).len()),
            other => return Err(format!("no such question: {other}").into()),
        }
    }
    Ok(())
}

/// Runs it in a thread of its own; its error is the end of the process.
fn background(work: impl FnOnce() -> Result<()> + Send + 'static) {
    std::thread::spawn(move || {
        if let Err(error) = work() {
            eprintln!("scale, server: {error}");
            std::process::exit(1);
        }
    });
}

fn accept_all(listen: &Listen, pz: &Pz, evd: &Evd, connections: &Connections) -> Result<()> {
    loop {
        let request = listen.request()?;
        let ep = endpoint(pz, evd)?;
        lock(connections).insert(ep.id(), ep.clone());
        request.start_accept(&ep, &[])?;
    }
}

fn echo_all(evd: &Evd, connections: &Connections) -> Result<()> {
    loop {
        if let Some(completion) = evd.wait(Duration::MAX)? {
            echo(completion, connections)?;
        }
    }
}

/// A received buffer goes back as a Send; a sent one is posted again.
fn echo(completion: Completion, connections: &Connections) -> Result<()> {
    let (id, operation) = (completion.ep, completion.operation);
    if completion.check().is_err() {
        lock(connections).remove(&id);
        return Ok(());
    }
    let ep = lock(connections).get(&id).cloned();
    let ep = ep.ok_or_else(|| Error::from("a completion of an endpoint that is not ours"))?;
    if let Some(buffer) = completion.into_buffer() {
        match operation {
            Operation::Recv => drop(ep.post(Work::send(buffer)).map_err(itapi::Error::from)?),
            _ => drop(ep.post_recv(buffer).map_err(itapi::Error::from)?),
        }
    }
    Ok(())
}

/// Raises the soft limit of open files to the hard one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, the first connection too many says so.
    let _ = setrlimit(Resource::Nofile, limit);
}
