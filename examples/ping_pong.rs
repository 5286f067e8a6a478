//! Round trips of Sends: how long does a message take?
//!
//! `ping_pong serve ADDRESS` echoes; `ping_pong connect ADDRESS` measures. Each connection belongs
//! to one thread. When the peer dies, the receive completes as flushed, and `Ep::ended` returns the cause.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use itapi::{Buffer, ConnEvent, Ep, Error, Evd, Ia, Operation, Request, Result, WcStatus, Work};

/// Time-out, so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest message in octets.
const LONGEST: u32 = 1 << 20;

/// Round trips of Sends over RDMA
#[derive(Parser)]
struct Args {
    /// Interface adapter: a provider or one of its devices
    #[arg(long, global = true, default_value = "vp_softrdma")]
    ia: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Echo, for any number of clients; prints the address
    Serve {
        /// Where to listen; port 0 takes a free one
        address: String,
    },
    /// Measure against a server
    Connect {
        /// Where it listens
        address: String,
        /// Octets of each message
        #[arg(long, default_value_t = 64,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST)))]
        size: u32,
        /// Round trips
        #[arg(long, default_value_t = 10_000,
              value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        count: u32,
    },
}

fn main() {
    let args = Args::parse();
    let result = Ia::builder().device(args.ia).open().and_then(|ia| match args.command {
        Command::Serve { address } => serve(&ia, &address),
        Command::Connect { address, size, count } => measure(&ia, &address, size, count),
    });
    if let Err(error) = result {
        eprintln!("ping_pong: {error}");
        std::process::exit(1);
    }
}

/// Connection handling: a thread for each client.
fn serve(ia: &Ia, address: &str) -> Result<()> {
    let listen = ia.listen(address)?;
    println!("listening at {}", listen.address());
    loop {
        let (ia, request) = (ia.clone(), listen.request()?);
        let thread = std::thread::Builder::new().spawn(move || {
            let client = request.ends().remote.to_string();
            if let Err(error) = accept(&ia, request).and_then(|peer| echo(peer, &client)) {
                eprintln!("ping_pong: {client}: {error}");
            }
        });
        if let Err(error) = thread {
            eprintln!("ping_pong: no thread for a client, it is rejected: {error}");
        }
    }
}

/// One connection with two buffers, one of which is posted as a receive.
struct Peer {
    evd: Evd,
    ep: Ep,
    spare: Buffer,
}

/// Connection handling: a connection's objects, before it is connected.
fn prepare(ia: &Ia, size: u32) -> Result<Peer> {
    let (pz, evd) = (ia.pz()?, ia.evd(4)?);
    let ep = pz.ep(&evd).depth(1, 1).max_pieces(1).build()?;
    ep.post_recv(pz.buffer(size as usize)?)?;
    Ok(Peer { evd, ep, spare: pz.buffer(size as usize)? })
}

/// Connection handling: the private data of a request is the size of the messages.
fn accept(ia: &Ia, request: Request) -> Result<Peer> {
    let size = request.private_data().try_into().map(u32::from_be_bytes);
    let Some(size) = size.ok().filter(|size| (1..=LONGEST).contains(size)) else {
        request.reject(b"this server does not take that size")?;
        return Err(Error::Argument("rejected: it requests an invalid size".into()));
    };
    let peer = prepare(ia, size)?;
    request.accept(&peer.ep, b"")?;
    Ok(peer)
}

/// Connection handling: connects to a server.
fn connect(ia: &Ia, address: &str, size: u32) -> Result<Peer> {
    let peer = prepare(ia, size)?;
    peer.ep.connect(address, &size.to_be_bytes())?;
    Ok(peer)
}

/// Connection handling: waits for the end, an error unless it was orderly.
fn ended(ep: &Ep) -> Result<()> {
    match ep.ended(PATIENCE)? {
        None | Some(ConnEvent::Disconnected { .. }) => Ok(()),
        Some(other) => Err(Error::Connection(Box::new(other))),
    }
}

/// Sends messages back until the client disconnects.
fn echo(peer: Peer, client: &str) -> Result<()> {
    let (mut spare, mut message, mut echoed) = (Some(peer.spare), None, 0u64);
    loop {
        let Some(completion) = peer.evd.wait(Duration::MAX)? else { continue };
        if completion.status == WcStatus::Flushed {
            println!("{client}: {echoed} messages echoed");
            return ended(&peer.ep);
        }
        completion.check()?;
        match completion.operation {
            Operation::Recv => message = completion.into_buffer(),
            _ => spare = completion.into_buffer(),
        }
        // The next receive must be posted before the client gets the echo and sends again.
        (spare, message) = match (spare, message) {
            (Some(free), Some(full)) => {
                peer.ep.post_recv(free)?;
                peer.ep.post(Work::send(full))?;
                echoed += 1;
                (None, None)
            }
            not_yet => not_yet,
        };
    }
}

fn measure(ia: &Ia, address: &str, size: u32, count: u32) -> Result<()> {
    let Peer { evd, ep, spare: mut message } = connect(ia, address, size)?;
    message.fill(&vec![0x5a; size as usize])?;
    let begin = Instant::now();
    let mut round_trips = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        ep.post(Work::send(message))?;
        let (sent, received) = both(&evd, &ep)?;
        if received.len() != size as usize {
            return Err(Error::Argument(format!("an echo of {} octets", received.len())));
        }
        ep.post_recv(sent)?;
        message = received;
        round_trips.push(start.elapsed());
    }
    let elapsed = begin.elapsed();
    round_trips.sort_unstable();
    println!(
        "{count} round trips of {size} octets: median {:.1} us, mean {:.1} us",
        round_trips[round_trips.len() / 2].as_secs_f64() * 1e6,
        elapsed.as_secs_f64() * 1e6 / f64::from(count)
    );
    ep.disconnect()
}

/// The buffers of the Send and of the echo.
fn both(evd: &Evd, ep: &Ep) -> Result<(Buffer, Buffer)> {
    let (mut sent, mut received) = (None, None);
    loop {
        let completion = evd.wait(PATIENCE)?.ok_or(Error::Timeout(PATIENCE))?;
        if completion.status == WcStatus::Flushed {
            ended(ep)?;
        }
        completion.check()?;
        match completion.operation {
            Operation::Recv => received = completion.into_buffer(),
            _ => sent = completion.into_buffer(),
        }
        (sent, received) = match (sent, received) {
            (Some(sent), Some(received)) => return Ok((sent, received)),
            not_yet => not_yet,
        };
    }
}
