//! What `warpline run --sockets` costs a program: calls on descriptors that are not followed, on a connection, connections,
//! and the start. With and without the library, interleaved; medians of the processor's time, of the start by the clock. Before: `cargo build --release -p warpline-sockets`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 21;
const ROWS: [&str; 4] = [
    "read of another file",
    "write and read of 64 octets",
    "connect, accept, close",
    "start and end",
];

fn main() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some("measure") {
        let all = [of_file()?, of_connection()?, of_connections()?];
        println!("{} {} {}", all[0], all[1], all[2]);
        return Ok(());
    }
    let library = std::env::current_exe()?.with_file_name("libwarpline_sockets.so");
    let record = std::env::temp_dir().join(format!("sockets-{}", std::process::id()));
    File::create(&record)?;
    let mut rounds: [Vec<[f64; 4]>; 2] = Default::default();
    for round in 0..2 * ROUNDS {
        let with = round % 2 == 1;
        let started = |argument: &[&str], program| -> Result<_, Failure> {
            let mut command = Command::new(program);
            command.args(argument);
            if with {
                command.env("LD_PRELOAD", &library).env("WARPLINE_SOCKETS_LOG", &record);
            }
            Ok(command.output()?.stdout)
        };
        let text = String::from_utf8(started(&["measure"], std::env::current_exe()?)?)?;
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        let mut next = || words.next().ok_or("no figure").map_err(Failure::from);
        let begin = Instant::now();
        for _ in 0..10 {
            started(&[], "true".into())?;
        }
        let start = begin.elapsed().as_nanos() as f64 / 10.0;
        rounds[usize::from(with)].push([next()??, next()??, next()??, start]);
    }
    std::fs::remove_file(record)?;
    println!("{:<30}{:>12}{:>12}{:>10}{:>8}", "ns", "without", "with", "more", "ratio");
    for (row, name) in ROWS.iter().enumerate() {
        let [without, with] = [0, 1].map(|it| median(rounds[it].iter().map(|all| all[row])));
        let (more, ratio) = (with - without, with / without);
        println!("{name:<30}{without:>12.1}{with:>12.1}{more:>10.1}{ratio:>8.3}");
    }
    Ok(())
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = all.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Nanoseconds of the processor for each call of `act`: other processes do not count.
fn each(times: u32, mut act: impl FnMut() -> std::io::Result<()>) -> Result<f64, Failure> {
    let begin = of_thread();
    for _ in 0..times {
        act()?;
    }
    Ok((of_thread() - begin) / f64::from(times))
}

fn of_thread() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn of_file() -> Result<f64, Failure> {
    let mut file = File::open("/dev/null")?;
    each(300_000, || file.read(&mut [0]).map(drop))
}

fn of_connection() -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    each(20_000, || {
        client.write_all(&[7; 64])?;
        server.read_exact(&mut [0; 64])
    })
}

fn of_connections() -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    each(2_000, || {
        let client = TcpStream::connect(address)?;
        let (server, _) = listener.accept()?;
        drop(client);
        drop(server);
        Ok(())
    })
}
