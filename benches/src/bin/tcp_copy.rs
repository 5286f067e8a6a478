//! Sends a file over plain TCP, as the example `transfer` does over RDMA, for `benches/transfer` to compare
//! with. `tcp_copy serve ADDRESS FILE`, `tcp_copy connect ADDRESS FILE`: pieces of 256 KiB, read and written.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use warpline_benches::Result;

fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<()> {
    let mut piece = vec![0; 256 << 10];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            octets => to.write_all(&piece[..octets])?,
        }
    }
}

fn main() -> Result<()> {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [mode, address, path] if mode == "serve" => {
            let (listener, mut file) = (TcpListener::bind(address)?, File::create(path)?);
            println!("listening at {}", listener.local_addr()?);
            copy(&mut listener.accept()?.0, &mut file)
        }
        [mode, address, path] if mode == "connect" => {
            copy(&mut File::open(path)?, &mut TcpStream::connect(address)?)
        }
        _ => Err("usage: tcp_copy serve ADDRESS FILE | tcp_copy connect ADDRESS FILE".into()),
    }
}
