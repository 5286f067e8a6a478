//! Remote procedure calls: a server of many clients in one thread, and a client.
//!
//! `rpc serve ADDRESS` prints its address; `rpc connect ADDRESS WORD...` calls it with each word.
//! The server reports a client that dies or does not read, and goes on serving the others.
#![forbid(unsafe_code)]

use itapi::Ia;
use warpline_channel::{Channel, Event, Result, Server};

/// The procedure.
fn shout(request: &[u8]) -> Vec<u8> {
    request.to_ascii_uppercase()
}

fn serve(address: &str) -> Result<()> {
    let server = Server::bind(&Ia::open()?, address)?;
    println!("listening at {}", server.address());
    loop {
        let outcome = match server.next()? {
            Event::Message(peer, request) => peer.send(shout(&request)),
            Event::Gone(_, how) => how,
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            eprintln!("rpc: a client: {error}");
        }
    }
}

fn connect(address: &str, words: &[&str]) -> Result<()> {
    let channel = Channel::connect(&Ia::open()?, address)?;
    for word in words {
        channel.send(*word)?;
        let reply = channel.recv()?.map_or_else(Vec::new, |reply| reply.to_vec());
        println!("{}", String::from_utf8_lossy(&reply));
    }
    channel.close()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address),
        ["connect", address, ref words @ ..] => connect(address, words),
        _ => return eprintln!("usage: rpc serve ADDRESS | rpc connect ADDRESS WORD..."),
    };
    if let Err(error) = result {
        eprintln!("rpc: {error}");
        std::process::exit(1);
    }
}
