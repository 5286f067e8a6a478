//! Messages by two devices: a session that goes on by the second while the first is gone, and returns to it.
//!
//! `two_ways serve DEVICE=ADDRESS...` listens at each, and sends every message back. A device that is lost is opened again once it is
//! back. `two_ways connect DEVICE=ADDRESS...` sends numbered messages of all lengths, the first device preferred, until its
//! standard input ends. It checks that each comes back whole, once and in order, and prints each move.
#![forbid(unsafe_code)]

use std::error::Error as AnyError;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use warpline_channel::{Channel, Error, Ia, Listener, Message, Options};

type Result<T> = std::result::Result<T, Box<dyn AnyError + Send + Sync>>;

/// Between the attempts to open a device, and to return to the first way.
const PAUSE: Duration = Duration::from_millis(300);

/// For three minutes without a way; at most 4 large messages under way.
const OPTIONS: Options = Options {
    small: 16 << 10,
    slots: 64,
    large: 4,
    longest: 1 << 20,
    patience: Some(Duration::from_secs(180)),
    resume: Some(Duration::from_secs(180)),
    returns: Some(PAUSE),
};

/// One that notices a silent peer soon.
fn open(device: &str) -> itapi::Result<Ia> {
    let builder = Ia::builder().device(device);
    builder.policy(|policy| policy.probe_after = Some(Duration::from_secs(1))).open()
}

fn message(n: u64) -> Vec<u8> {
    let len = match n % 64 {
        63 => 200_000,
        other => 8 + other as usize * 97,
    };
    let mut octets: Vec<u8> = (0..len as u64).map(|at| (at + n * 7) as u8).collect();
    octets[..8].copy_from_slice(&n.to_be_bytes());
    octets
}

fn check(got: &Message, n: u64) -> Result<()> {
    if got[..] == message(n) {
        return Ok(());
    }
    let number = got.first_chunk().map(|octets| u64::from_be_bytes(*octets));
    Err(format!("message {n} is another: {} octets, number {number:?}", got.len()).into())
}

/// Listens by one device, whenever it is there.
fn listen(device: &str, mut address: String, done: &Sender<Result<u64>>) -> Result<()> {
    let mut ia = open(device)?;
    loop {
        match Listener::bind_with(&ia, &address, OPTIONS) {
            Ok(listener) => {
                // The same port from now on.
                address = listener.address().to_string();
                println!("listening at {address}");
                let error = accept(&listener, done);
                println!("not listening at {address}: {error}");
            }
            // The device may be back before its address is.
            Err(error) => println!("not listening at {address}: {error}"),
        }
        std::thread::sleep(PAUSE);
        while ia.is_lost() {
            match ia.reopen() {
                Ok(again) => ia = again,
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

fn accept(listener: &Listener, done: &Sender<Result<u64>>) -> Error {
    loop {
        match listener.accept() {
            Ok(channel) => {
                let done = done.clone();
                std::thread::spawn(move || done.send(echo(channel)));
            }
            Err(error) => return error,
        }
    }
}

/// Sends back what comes; returns how many messages that were.
fn echo(channel: Channel) -> Result<u64> {
    let mut n = 0;
    while let Some(got) = channel.recv()? {
        check(&got, n)?;
        channel.send(&got)?;
        n += 1;
    }
    channel.close()?;
    Ok(n)
}

/// Serves one session.
fn serve(ways: Vec<(String, String)>) -> Result<()> {
    let (done, sessions) = channel();
    for (device, address) in ways {
        let done = done.clone();
        std::thread::spawn(move || {
            if let Err(error) = listen(&device, address, &done) {
                println!("{device}: {error}");
            }
        });
    }
    println!("{} messages, each once and in order", sessions.recv()??);
    Ok(())
}

/// Prints each move, until the session is over.
fn watch(channel: &Channel, over: &AtomicBool) {
    let mut last = None;
    while !over.load(Ordering::Relaxed) {
        if let Some(now) = channel.resumption()
            && now.connected
            && last != Some(now.moves)
        {
            let cause = now.cause.map_or_else(String::new, |cause| format!(": {cause}"));
            println!("by way {} after {} moves{cause}", now.way, now.moves);
            last = Some(now.moves);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends messages until it is told to stop; returns how many.
fn send(channel: &Channel, stop: &AtomicBool) -> Result<u64> {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        channel.send(message(n))?;
        n += 1;
    }
    channel.finish()?;
    Ok(n)
}

fn connect(ways: Vec<(String, String)>) -> Result<()> {
    let open = |(device, address): (String, String)| Ok((open(&device)?, address));
    let ways = ways.into_iter().map(open).collect::<Result<Vec<_>>>()?;
    let channel = Channel::connect_any(ways, OPTIONS)?;
    let (stop, over) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let ends = stop.clone();
    // Not in the scope: it may wait longer than the session lives.
    std::thread::spawn(move || {
        // Until its end; an error ends it, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Relaxed);
    });
    let (sent, got) = std::thread::scope(|scope| {
        scope.spawn(|| watch(&channel, &over));
        let sender = scope.spawn(|| match send(&channel, &stop) {
            Ok(sent) => sent,
            Err(error) => {
                // The other thread waits for what will not come.
                println!("{error}");
                std::process::exit(1);
            }
        });
        let receive = || -> Result<u64> {
            let mut n = 0;
            while let Some(got) = channel.recv()? {
                check(&got, n)?;
                n += 1;
            }
            Ok(n)
        };
        let got = receive();
        over.store(true, Ordering::Relaxed);
        let sent = sender.join().map_err(|_| "the sender panicked")?;
        Result::Ok((sent, got?))
    })?;
    channel.close()?;
    if sent != got {
        return Err(format!("{sent} messages were sent, and {got} came back").into());
    }
    println!("{got} messages, each once and in order");
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ways = args.iter().skip(1).filter_map(|way| way.split_once('='));
    let ways: Vec<_> = ways.map(|(device, at)| (device.to_owned(), at.to_owned())).collect();
    match args.first().map(String::as_str) {
        Some("serve") if !ways.is_empty() => serve(ways),
        Some("connect") if !ways.is_empty() => connect(ways),
        _ => Err("two_ways serve|connect DEVICE=ADDRESS...".into()),
    }
}
