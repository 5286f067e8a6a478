//! A stream of octets: what one program reads from its standard input, the other writes to its
//! standard output.
//!
//! `stream serve ADDRESS` prints its address on standard error; `stream connect ADDRESS` sends.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, BufReader, Write};

use warpline_channel::{Channel, Ia, Listener};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn serve(address: &str) -> Result {
    let listener = Listener::bind(&Ia::open()?, address)?;
    eprintln!("listening at {}", listener.address());
    let mut stream = listener.accept()?.into_stream();
    io::copy(&mut stream, &mut io::stdout())?;
    Ok(stream.into_channel().close()?)
}

fn connect(address: &str) -> Result {
    let mut stream = Channel::connect(&Ia::open()?, address)?.into_stream();
    let mut input = BufReader::with_capacity(1 << 20, io::stdin());
    while let octets @ 1.. = stream.write(input.fill_buf()?)? {
        input.consume(octets);
    }
    Ok(stream.into_channel().close()?) // all of it has arrived
}

fn main() -> Result {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address] if mode == "serve" => serve(address),
        [mode, address] if mode == "connect" => connect(address),
        _ => Err("usage: stream serve ADDRESS | stream connect ADDRESS".into()),
    }
}
