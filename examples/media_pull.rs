//! A media server whose application sleeps while clients read their streams by RDMA Read.
//!
//! `media_pull serve ADDRESS` offers a medium and prints, after a run, the processor time of its
//! application thread and of the rest of its process; `media_pull connect ADDRESS --clients N
//! --seconds S` plays N streams, each over its own connection, and sometimes seeks in them.
//!
//! A stream plays at a constant rate from a few chunks that it reads ahead. A chunk that is not
//! there when it is due is an under-run. Each connection of the client belongs to one thread, which
//! serves many through one event dispatcher. A broken connection ends the run with an error.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use itapi::{Ep, EpId, Error, Evd, Ia, Listen, Lmr, Pz, RemoteRange, Result, Work};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Time-out, so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Octets of one RDMA Read.
const CHUNK: usize = 128 * 1024;
/// Chunks of the medium; each begins with its number.
const CHUNKS: u64 = 512;
/// Chunks that a stream reads in advance.
const AHEAD: u64 = 4;
/// A stream seeks once in this many chunks on average.
const SEEK_EVERY: u64 = 200;

/// Streams pulled by RDMA Read
#[derive(Parser)]
struct Cli {
    /// Interface adapter: a provider or one of its devices
    #[arg(long, global = true, default_value = "vp_softrdma")]
    ia: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offer the medium, run after run; prints the address
    Serve {
        /// Where to listen; port 0 takes a free one
        address: String,
    },
    /// Play
    Connect(Play),
}

#[derive(Args, Clone)]
struct Play {
    /// Where the server listens
    address: String,
    /// Streams, each over a connection of its own
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// How long to play
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Mbit/s of a stream
    #[arg(long, default_value_t = 8.7, value_parser = parse_rate)]
    rate: f64,
    /// Threads, each with its share of the streams
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
}

fn main() {
    let cli = Cli::parse();
    let opened = raise_descriptor_limit().and_then(|()| Ia::builder().device(cli.ia).open());
    let result = opened.and_then(|ia| match cli.command {
        Command::Serve { address } => serve(&ia, &address),
        Command::Connect(play) => pull(&ia, &play),
    });
    if let Err(error) = result {
        eprintln!("media_pull: {error}");
        std::process::exit(1);
    }
}

fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.01..=100_000.0).contains(rate));
    rate.ok_or_else(|| "a number from 0.01 to 100000".to_owned())
}

/// Raises the limit of open files: each connection needs a descriptor.
fn raise_descriptor_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .map_err(|e| Error::Argument(format!("cannot raise the limit of open files: {e}")))
}

/// Processor time that a clock has counted.
fn spent(clock: ClockId) -> Duration {
    // Processor clocks are never negative.
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// The server: one thread, for one run after the other.
fn serve(ia: &Ia, address: &str) -> Result<()> {
    let (pz, evd) = (ia.pz()?, ia.evd(1)?);
    let medium = pz.lmr(CHUNK * CHUNKS as usize).remote_read().register()?;
    for chunk in 0..CHUNKS {
        medium.write_at(chunk as usize * CHUNK, &chunk.to_be_bytes())?;
    }
    let listen = ia.listen_builder(address)?.backlog(4096).listen()?;
    println!("listening at {}", listen.address());
    loop {
        let run = accept_streams(&listen, &pz, &evd, medium.remote()).and_then(|eps| sleep(&eps));
        if let Err(error) = run {
            eprintln!("media_pull: a run was given up: {error}");
        }
    }
}

/// Connection handling: accepts all streams of a run. Each sends their number, and gets the
/// medium's key.
fn accept_streams(listen: &Listen, pz: &Pz, evd: &Evd, medium: RemoteRange) -> Result<Vec<Ep>> {
    let (mut eps, mut wanted) = (Vec::new(), None);
    while wanted != Some(eps.len()) {
        // No time-out between runs.
        let patience = if eps.is_empty() { Duration::MAX } else { PATIENCE };
        let request = listen.wait(patience)?.ok_or(Error::Timeout(patience))?;
        let streams = request.private_data().try_into().map(u32::from_be_bytes);
        let Ok(streams @ 1..) = streams else {
            request.reject(b"say how many streams there are")?;
            continue;
        };
        wanted.get_or_insert(streams as usize);
        let ep = pz.ep(evd).depth(1, 1).max_pieces(1).reads(AHEAD as u16, 0).build()?;
        request.accept(&ep, &medium.to_octets())?;
        eps.push(ep);
    }
    Ok(eps)
}

/// Sleeps until the first stream ends, prints the processor time, and waits for the others.
fn sleep(eps: &[Ep]) -> Result<()> {
    let clocks = || (spent(ClockId::ThreadCPUTime), spent(ClockId::ProcessCPUTime));
    let (begin, (own, all)) = (Instant::now(), clocks());
    for (number, ep) in eps.iter().enumerate() {
        ep.ended(Duration::MAX)?;
        if number == 0 {
            let (own, all) = (clocks().0 - own, clocks().1 - all);
            println!(
                "{} clients for {:.1} s: the application thread used {:.3} s of processor time, \
                 the provider's engine {:.1} s",
                eps.len(),
                begin.elapsed().as_secs_f64(),
                own.as_secs_f64(),
                all.saturating_sub(own).as_secs_f64()
            );
        }
    }
    Ok(())
}

/// Counts of the streams of a thread, or of all threads.
#[derive(Default)]
struct Tally {
    chunks: u64,
    seeks: u64,
    under_runs: u64,
}

/// The client.
fn pull(ia: &Ia, play: &Play) -> Result<()> {
    let threads = play.threads.min(play.clients);
    let mut groups = Vec::new();
    for thread in 0..threads {
        // The first threads take the remainder.
        let streams = play.clients / threads + u32::from(thread < play.clients % threads);
        groups.push(connect(ia, play, streams)?);
    }
    println!("{} streams are connected", play.clients);
    let begin = Instant::now();
    let end = begin + Duration::from_secs(play.seconds);
    let chunk_time = Duration::from_secs_f64(CHUNK as f64 * 8e-6 / play.rate);
    let tallies = std::thread::scope(|scope| {
        let start = |group| scope.spawn(move || Player::new(group, chunk_time, end).run());
        let running: Vec<_> = groups.into_iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Tally>>| match thread.join() {
            Ok(tally) => tally,
            Err(_) => Err(Error::Argument("a thread panicked".into())),
        };
        running.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    report(&tallies, begin.elapsed())
}

fn report(tallies: &[Tally], elapsed: Duration) -> Result<()> {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let chunks = sum(|tally| tally.chunks);
    println!(
        "{chunks} chunks in {:.1} s ({:.2} Gbit/s), {} seeks, {} under-runs; \
         {:.1} s of processor time",
        elapsed.as_secs_f64(),
        chunks as f64 * CHUNK as f64 * 8e-9 / elapsed.as_secs_f64(),
        sum(|tally| tally.seeks),
        sum(|tally| tally.under_runs),
        spent(ClockId::ProcessCPUTime).as_secs_f64()
    );
    match sum(|tally| tally.under_runs) {
        0 => Ok(()),
        some => Err(Error::Argument(format!("{some} under-runs: the server or we are too slow"))),
    }
}

/// The streams of one thread.
struct Group {
    evd: Evd,
    streams: Vec<Stream>,
}

/// Connection handling: connects the streams of one thread; they share a dispatcher.
fn connect(ia: &Ia, play: &Play, streams: u32) -> Result<Group> {
    let (pz, evd) = (ia.pz()?, ia.evd(streams * (AHEAD as u32 + 1))?);
    let mut group = Vec::new();
    for number in 0..streams {
        let ep = pz.ep(&evd).depth(AHEAD as u32, 1).max_pieces(1).reads(0, AHEAD as u16).build()?;
        let established = ep.connect(&*play.address, &play.clients.to_be_bytes())?;
        let medium = established.private_data.get(..RemoteRange::ENCODED_LEN);
        let Some(medium) = medium.and_then(RemoteRange::from_octets) else {
            return Err(Error::Argument("the server is no media_pull of this version".into()));
        };
        let slots = pz.lmr(AHEAD as usize * CHUNK).register()?;
        group.push(Stream::new(ep, medium, slots, number));
    }
    Ok(Group { evd, streams: group })
}

/// One stream. Chunks are counted from the first; number n goes to slot n modulo `AHEAD`.
struct Stream {
    ep: Ep,
    medium: RemoteRange,
    slots: Lmr,
    /// The chunk requested for each slot.
    asked: [u64; AHEAD as usize],
    posted: u64,
    arrived: u64,
    /// Chunks played, or dropped by a seek.
    played: u64,
    /// The medium's chunk to request next.
    position: u64,
    playing: bool,
    random: u64,
}

impl Stream {
    fn new(ep: Ep, medium: RemoteRange, slots: Lmr, seed: u32) -> Self {
        Self {
            ep,
            medium,
            slots,
            asked: [0; AHEAD as usize],
            posted: 0,
            arrived: 0,
            played: 0,
            position: u64::from(seed) % CHUNKS,
            playing: false,
            random: u64::from(seed),
        }
    }

    /// Posts reads for all free slots.
    fn fill(&mut self) -> Result<()> {
        while self.posted < self.played.min(self.arrived) + AHEAD {
            let (slot, from) = ((self.posted % AHEAD) as usize, self.position * CHUNK as u64);
            let chunk = self.medium.slice(from..from + CHUNK as u64)?;
            let sink = self.slots.range(slot * CHUNK..(slot + 1) * CHUNK)?;
            self.ep.post(Work::read(chunk, sink))?;
            self.asked[slot] = self.position;
            self.position = (self.position + 1) % CHUNKS;
            self.posted += 1;
        }
        Ok(())
    }

    /// True if all chunks of the read-ahead are there.
    fn is_full(&self) -> bool {
        self.arrived == self.played + AHEAD
    }

    /// Plays the next chunk; `false`: it has not arrived.
    fn play(&mut self) -> Result<bool> {
        if self.arrived <= self.played {
            return Ok(false);
        }
        let (slot, mut number) = ((self.played % AHEAD) as usize, [0; 8]);
        self.slots.read_at(slot * CHUNK, &mut number)?;
        if u64::from_be_bytes(number) != self.asked[slot] {
            return Err(Error::Argument("a chunk is not the one that was asked for".into()));
        }
        self.played += 1;
        Ok(true)
    }

    /// Sometimes jumps to another place and drops what was read ahead.
    fn seek(&mut self) -> bool {
        // Knuth's linear congruential generator; its high bits are the most random.
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1);
        let random = self.random >> 32;
        let seeks = random.is_multiple_of(SEEK_EVERY);
        if seeks {
            self.played = self.posted;
            self.position = random / SEEK_EVERY % CHUNKS;
        }
        seeks
    }
}

/// Plays the streams of one thread.
struct Player {
    evd: Evd,
    streams: Vec<Stream>,
    by_ep: HashMap<EpId, usize>,
    /// The times at which streams need their next chunks.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    chunk_time: Duration,
    end: Instant,
    tally: Tally,
}

impl Player {
    fn new(group: Group, chunk_time: Duration, end: Instant) -> Self {
        let Group { evd, streams } = group;
        let by_ep = streams.iter().enumerate().map(|(number, s)| (s.ep.id(), number)).collect();
        let (due, tally) = (BinaryHeap::new(), Tally::default());
        Self { evd, streams, by_ep, due, chunk_time, end, tally }
    }

    fn run(mut self) -> Result<Tally> {
        self.begin();
        let mut batch = Vec::new();
        loop {
            let now = Instant::now();
            if now >= self.end {
                break;
            }
            self.play_until(now)?;
            let next = self.due.peek().map_or(self.end, |Reverse((time, _))| *time);
            let wait = next.min(self.end).saturating_duration_since(Instant::now());
            batch.extend(self.evd.wait(wait)?);
            self.evd.poll_into(&mut batch)?;
            for completion in batch.drain(..) {
                completion.check()?;
                if let Some(&number) = self.by_ep.get(&completion.ep) {
                    self.arrived(number)?;
                }
            }
        }
        self.streams.iter().try_for_each(|stream| stream.ep.disconnect())?;
        Ok(self.tally)
    }

    /// Lets the streams begin one after the other, within the time that they read ahead.
    fn begin(&mut self) {
        let (now, count) = (Instant::now(), self.streams.len() as u32);
        let start = |n: u32| now + self.chunk_time * AHEAD as u32 * n / count;
        self.due = (0..count).map(|n| Reverse((start(n), n as usize))).collect();
    }

    /// Plays the chunks that are due.
    fn play_until(&mut self, now: Instant) -> Result<()> {
        while let Some(&Reverse((time, number))) = self.due.peek()
            && time <= now
        {
            self.due.pop();
            let stream = &mut self.streams[number];
            if stream.posted == 0 {
                stream.fill()?;
                continue;
            }
            if !stream.play()? {
                // Resumes when it has read ahead again.
                self.tally.under_runs += 1;
                stream.playing = false;
                continue;
            }
            self.tally.chunks += 1;
            if stream.seek() {
                self.tally.seeks += 1;
                stream.playing = false;
            } else {
                self.due.push(Reverse((time + self.chunk_time, number)));
            }
            stream.fill()?;
        }
        Ok(())
    }

    /// A chunk has arrived, perhaps one that was requested before a seek.
    fn arrived(&mut self, number: usize) -> Result<()> {
        let stream = &mut self.streams[number];
        stream.arrived += 1;
        stream.fill()?;
        if !stream.playing && stream.is_full() {
            stream.playing = true;
            self.due.push(Reverse((Instant::now(), number)));
        }
        Ok(())
    }
}
