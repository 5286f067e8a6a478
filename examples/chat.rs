//! A chat: the server passes each line on to all other guests.
//!
//! `chat serve ADDRESS` prints its address; `chat connect ADDRESS NAME` sends its standard input.
use std::collections::HashMap;

use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use warpline_channel::{AsyncChannel, Event, Ia, Server};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn serve(address: &str) -> Result {
    let (server, mut guests) = (Server::bind(&Ia::open()?, address)?, HashMap::new());
    println!("listening at {}", server.address());
    loop {
        match server.next()? {
            Event::Connected(guest) => {
                guest.send(format!("welcome, guest {}", guests.len() + 1))?;
                guests.insert(guest.id(), guest);
            }
            Event::Message(from, line) => {
                for guest in guests.values().filter(|guest| guest.id() != from.id()) {
                    _ = guest.send(&line); // who reads too slowly misses it
                }
            }
            Event::Gone(guest, _) => _ = guests.remove(&guest.id()),
            _ => {}
        }
    }
}

async fn connect(address: &str, name: &str) -> Result {
    let channel = AsyncChannel::connect(&Ia::open()?, address).await?;
    let mut typed = BufReader::new(stdin()).lines();
    loop {
        tokio::select! {
            line = channel.recv() => match line? {
                Some(line) => println!("{}", String::from_utf8_lossy(&line)),
                None => return Ok(channel.close().await?),
            },
            line = typed.next_line() => match line? {
                Some(line) => channel.send(format!("{name}: {line}")).await?,
                None => return Ok(channel.close().await?),
            },
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address] if mode == "serve" => serve(address),
        [mode, address, name] if mode == "connect" => connect(address, name).await,
        _ => Err("usage: chat serve ADDRESS | chat connect ADDRESS NAME".into()),
    }
}
