//! Measures the cost of a channel: messages by `warpline-channel` against the same written by hand on IT-API,
//! interleaved, between two processes.
//!
//! `channel [--rounds N] [--crc off] [--octets N] [--against resume]` prints messages per second one way, and half a round trip, of both, and
//! the median of the ratios of the rounds: more than 1 is in favour of the channel. By hand means: receives of the message's
//! size posted again, credits returned for half a window at a time, buffers reused, small messages copied when
//! posted, one thread without a lock. `--against resume`: a channel whose session may be resumed, against one whose may not, which
//! stands in the columns "by hand".
#![forbid(unsafe_code)]

mod byhand;
mod channels;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use itapi::{Crc, Ia};
use warpline_benches::Result;

/// A measurement: message size and count.
#[derive(Clone, Copy)]
struct Case {
    octets: usize,
    count: u64,
    /// Each message gets a reply of the same length; otherwise only the last, an empty one.
    echo: bool,
}

impl Case {
    fn to_octets(self) -> [u8; 17] {
        let mut octets = [0; 17];
        octets[..8].copy_from_slice(&(self.octets as u64).to_be_bytes());
        octets[8..16].copy_from_slice(&self.count.to_be_bytes());
        octets[16] = self.echo.into();
        octets
    }

    fn from_octets(octets: &[u8]) -> Option<Self> {
        let (size, rest) = octets.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (size, count) = (u64::from_be_bytes(*size), u64::from_be_bytes(*count));
        Some(Self { octets: size as usize, count, echo: *rest.first()? != 0 })
    }
}

const SIZES: [usize; 7] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Messages of each connection before it is measured: the first ones touch the memory of all receives.
const WARM_UP: u64 = 300;

/// Approximate time of a measurement.
const TIME: Duration = Duration::from_millis(150);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut rounds, mut crc, mut sizes, mut rest) = (5, true, SIZES.to_vec(), &arguments[..]);
    let mut resumes = false;
    while let [option, value, more @ ..] = rest {
        match (*option, *value) {
            ("--rounds", number) => rounds = number.parse()?,
            ("--crc", on) => crc = on != "off",
            ("--against", what) => resumes = what == "resume",
            ("--octets", number) => sizes = vec![number.parse()?],
            _ => return Err(format!("unknown option {option}").into()),
        }
        rest = more;
    }
    let policy = if crc { Crc::Prefer } else { Crc::Off };
    let ia = Ia::builder().policy(move |p| p.crc = policy).open()?;
    match rest {
        ["serve"] => serve(&ia),
        [] => measure(&ia, rounds, crc, &sizes, resumes),
        other => Err(format!("unknown argument {other:?}").into()),
    }
}

fn serve(ia: &Ia) -> Result<()> {
    let (hand, channel) = (ia.listen("127.0.0.1:0")?, channels::listen(ia, false)?);
    let resuming = channels::listen(ia, true)?;
    println!("{} {} {}", hand.address(), channel.address(), resuming.address());
    std::thread::scope(|scope| {
        let by_hand = scope.spawn(|| byhand::serve(ia, &hand));
        scope.spawn(|| channels::serve(&resuming));
        channels::serve(&channel)?;
        by_hand.join().map_err(|_| "a thread of the server panicked")?
    })
}

/// The server's process, which ends with the measurement.
struct Server {
    child: Child,
    hand: String,
    channel: String,
    resuming: String,
}

impl Server {
    fn start(crc: bool) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--crc", if crc { "on" } else { "off" }, "--rounds", "1", "serve"]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let mut addresses = line.split_whitespace().map(str::to_owned);
        let mut next = || addresses.next().ok_or("the server did not start");
        Ok(Self { child, hand: next()?, channel: next()?, resuming: next()? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing it is safe: it has no state to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(ia: &Ia, rounds: usize, crc: bool, sizes: &[usize], resumes: bool) -> Result<()> {
    let server = Server::start(crc)?;
    let other = |case| match resumes {
        false => byhand::run(ia, &server.hand, case),
        true => channels::run(ia, &server.channel, case, false),
    };
    let address = if resumes { &server.resuming } else { &server.channel };
    println!("medians of {rounds} rounds, CRC {}", if crc { "on" } else { "off" });
    println!("  octets   messages/s  by hand  ratio  |  half a round trip, us  by hand  ratio");
    for &octets in sizes {
        let mut line = format!("{octets:>8}");
        for echo in [false, true] {
            let mut case = Case { octets, count: 200, echo };
            // Twice: the first messages are slower than others.
            for _ in 0..2 {
                let took = other(case)?;
                let count = case.count as f64 * TIME.as_secs_f64() / took.as_secs_f64();
                case.count = (count as u64).clamp(50, 2_000_000);
            }
            let (mut hand, mut channel) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                hand.push(other(case)?.as_secs_f64());
                channel.push(channels::run(ia, address, case, resumes)?.as_secs_f64());
            }
            // Each pair has had the same machine.
            let ratio = median(hand.iter().zip(&channel).map(|(hand, it)| hand / it).collect());
            let (hand, channel) = (median(hand), median(channel));
            let show = |took: f64| {
                let each = took / case.count as f64;
                if echo { each * 1e6 / 2.0 } else { 1.0 / each }
            };
            let digits = if echo { 2 } else { 0 };
            line += &format!(
                "  {:>11.digits$}  {:>9.digits$}  {:>5.2}  |",
                show(channel),
                show(hand),
                ratio
            );
        }
        println!("{}", line.trim_end_matches('|'));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Writes to each page of a message, as its program would. Pages that were never written are all the kernel's page of
/// zeros, which stays in the first cache.
fn touch(message: &mut [u8]) {
    message.chunks_mut(4096).for_each(|page| page[0] = 1);
}

/// Duration of `run`.
fn timed(run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed())
}
