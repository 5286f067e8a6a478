//! A complete RDMA connection: connect, exchange keys, one RDMA Write, one Send, close.
//!
//! `hello_rdma` serves one client and prints its address; `hello_rdma ADDRESS` is that client; both
//! take `--ia NAME` before. Each side is one thread; when the peer dies, a call returns an
//! error.
#![forbid(unsafe_code)]

use std::{env, net::Ipv4Addr, time::Duration};

use itapi::{Error, Ia, RemoteRange, Result, Work};

/// Time-out, so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(10);

fn serve(ia: &Ia) -> Result<()> {
    let (pz, evd) = (ia.pz()?, ia.evd(16)?);
    let board = pz.lmr(64).remote_write().register()?; // the client writes here
    let home = ia.ports()?.iter().find_map(|port| port.addresses.first().copied());
    let listen = ia.listen((home.unwrap_or(Ipv4Addr::LOCALHOST.into()), 0))?;
    println!("{}", listen.address());

    let request = listen.request()?;
    let ep = pz.ep(&evd).build()?;
    ep.post_recv(pz.buffer(64)?)?; // the endpoint owns the buffer now ...
    request.accept(&ep, &board.remote().to_octets())?; // private data: our key

    let message = evd.wait_success(PATIENCE)?.into_buffer(); // ... and returns it
    let message = message.map_or_else(Vec::new, |buffer| buffer.to_vec());
    let mut written = vec![0; 19];
    board.read_at(0, &mut written)?; // complete: the Send arrived after it
    println!("{}, {}", String::from_utf8_lossy(&written), String::from_utf8_lossy(&message));
    ep.ended(PATIENCE)?; // the client closes
    Ok(())
}

fn greet(ia: &Ia, server: &str) -> Result<()> {
    let (pz, evd) = (ia.pz()?, ia.evd(16)?);
    let ep = pz.ep(&evd).build()?;
    let connected = ep.connect(server, b"")?;
    let board = RemoteRange::from_octets(&connected.private_data)
        .ok_or_else(|| Error::Argument("the server sent no key".into()))?;

    ep.post(Work::write(b"hello by RDMA Write", board).unsignalled())?;
    ep.post(Work::send(b"hello by Send"))?;
    evd.wait_success(PATIENCE)?;
    ep.disconnect()
}

fn main() {
    let mut args = env::args().skip(1).peekable();
    let chosen = args.next_if(|arg| arg == "--ia").and_then(|_| args.next());
    let ia = Ia::builder().device(chosen.as_deref().unwrap_or("vp_softrdma")).open();
    let result = ia.and_then(|ia| args.next().map_or_else(|| serve(&ia), |at| greet(&ia, &at)));
    if let Err(error) = result {
        eprintln!("hello_rdma: {error}");
        std::process::exit(1);
    }
}
