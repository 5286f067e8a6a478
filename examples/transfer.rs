//! Sends a file to a server and shows the progress.
//!
//! `transfer serve ADDRESS FILE` prints its address; `transfer connect ADDRESS FILE` sends the
//! file. Pieces are read into registered memory, sent, received in registered memory, and written
//! to the file.
#![forbid(unsafe_code)]

use std::{error::Error, fs::File, io::Write, time::Duration};

use itapi::Ia;
use warpline_channel::{Channel, Listener};

/// Who waits for bulk data sleeps at once: a spin costs processor time, and the data come no sooner.
fn adapter() -> itapi::Result<Ia> {
    Ia::builder().policy(|policy| policy.spin = Duration::ZERO).open()
}

fn serve(address: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let (listener, mut file) = (Listener::bind(&adapter()?, address)?, File::create(path)?);
    println!("listening at {}", listener.address());
    let channel = listener.accept()?;
    while let Some(piece) = channel.recv()? {
        file.write_all(&piece)?;
    }
    Ok(channel.close()?)
}

fn connect(address: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let (channel, mut file) = (Channel::connect(&adapter()?, address)?, File::open(path)?);
    let (size, mut sent) = (file.metadata()?.len().max(1), 0);
    loop {
        let mut piece = channel.draft(256 << 10)?;
        match piece.read_from(&mut file)? as u64 {
            0 => break Ok(channel.close()?), // all of it has arrived
            octets => sent += octets,
        }
        channel.send(piece)?;
        print!("\r{} % of {size} octets", sent * 100 / size);
    }
}

fn main() {
    let result = match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address, path] if mode == "serve" => serve(address, path),
        [mode, address, path] if mode == "connect" => connect(address, path),
        _ => Err("usage: transfer serve ADDRESS FILE | transfer connect ADDRESS FILE".into()),
    };
    if let Err(error) = result {
        eprintln!("transfer: {error}");
        std::process::exit(1);
    }
}
