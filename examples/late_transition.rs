//! A dialogue over a plain TCP socket that switches to RDMA over the same socket, if both sides
//! agree.
//!
//! `late_transition serve ADDRESS` serves HTTP; with `--decline` it declines RDMA. `late_transition
//! connect ADDRESS` asks for an upgrade and fetches two documents, over RDMA or, if the server
//! declines, over the socket as it is.
//!
//! The client's upgrade request describes its memory. Over RDMA it sends the name of a document,
//! and the server writes the document there and sends its length. Each connection belongs to one
//! thread. When the peer dies, reads end, or requests complete as flushed.
#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use clap::{Parser, Subcommand};
use itapi::{
    Buffer, ConnEvent, ConvertParams, Ep, Error, Evd, Ia, Lmr, Operation, RemoteRange, RmrContext,
    Role, WcStatus, Work,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time-out, so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest document in octets.
const DOCUMENT: usize = 4096;
/// Octets of a message over RDMA: a name or a length.
const MESSAGE: usize = 128;
/// The server's last response by HTTP.
const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: rdma\r\n\r\n";

/// HTTP that becomes RDMA
#[derive(Parser)]
struct Args {
    /// Interface adapter: a provider or one of its devices
    #[arg(long, global = true, default_value = "vp_softrdma")]
    ia: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve any number of clients; prints the address
    Serve {
        /// Where to listen; port 0 takes a free one
        address: String,
        /// Stay with HTTP
        #[arg(long)]
        decline: bool,
    },
    /// Fetch two documents
    Connect {
        /// Where the server listens
        address: String,
    },
}

fn main() {
    let args = Args::parse();
    let opened = Ia::builder().device(args.ia).open().map_err(Into::into);
    let result = opened.and_then(|ia| match args.command {
        Command::Serve { address, decline } => serve(&ia, &address, decline),
        Command::Connect { address } => fetch(&ia, TcpStream::connect(address)?),
    });
    if let Err(error) = result {
        eprintln!("late_transition: {error}");
        std::process::exit(1);
    }
}

/// An endpoint, the memory of documents, and a buffer for messages to send.
struct Peer {
    evd: Evd,
    ep: Ep,
    document: Lmr,
}

/// An unconnected endpoint with its receive posted.
fn prepare(ia: &Ia) -> Result<Peer> {
    let (pz, evd) = (ia.pz()?, ia.evd(8)?);
    let ep = pz.ep(&evd).depth(4, 1).max_pieces(1).build()?;
    ep.post_recv(pz.buffer(MESSAGE)?)?;
    let document = pz.lmr(DOCUMENT).remote_write().register()?;
    Ok(Peer { evd, ep, document })
}

/// Connection handling: converts the socket to the endpoint's connection. The server passes its
/// last response, which the stack sends; the client sends first over RDMA.
fn convert(peer: &Peer, socket: TcpStream, last_words: &[u8]) -> Result<()> {
    let role = if last_words.is_empty() { Role::Initiator } else { Role::Responder };
    let params = ConvertParams { last_message: last_words.to_vec(), ..ConvertParams::new(role) };
    peer.ep.convert(socket, params)?;
    Ok(())
}

/// Connection handling: a thread for each client.
fn serve(ia: &Ia, address: &str, decline: bool) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("listening at {}", listener.local_addr()?);
    loop {
        let (ia, (socket, client)) = (ia.clone(), listener.accept()?);
        let thread = std::thread::Builder::new().spawn(move || {
            if let Err(error) = answer(&ia, socket, decline) {
                eprintln!("late_transition: {client}: {error}");
            }
        });
        if let Err(error) = thread {
            eprintln!("late_transition: no thread for a client, its connection is closed: {error}");
        }
    }
}

/// Connection handling: waits for the end, an error unless it was orderly.
fn ended(ep: &Ep) -> Result<()> {
    match ep.ended(PATIENCE)? {
        None | Some(ConnEvent::Disconnected { .. }) => Ok(()),
        Some(other) => Err(Error::Connection(Box::new(other)).into()),
    }
}

/// Reads a head up to its empty line and not an octet more: what follows may belong to RDMA.
/// `None`: the end of the stream.
fn read_head(socket: &mut TcpStream) -> Result<Option<String>> {
    let (mut head, mut octet) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_exact(&mut octet) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        head.push(octet[0]);
        if head.len() > 1024 {
            return Err("the head of a message is too long".into());
        }
    }
    Ok(Some(String::from_utf8(head)?))
}

/// The value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    head.split("\r\n").find_map(value)
}

/// The content of a document.
fn document(name: &str) -> String {
    format!("This is document {name:.100}.\n")
}

/// The server's side of the dialogue.
fn answer(ia: &Ia, mut socket: TcpStream, decline: bool) -> Result<()> {
    while let Some(head) = read_head(&mut socket)? {
        if let (Some(sink), false) = (field(&head, "RDMA-Sink").and_then(parse_sink), decline) {
            println!("a client switches to RDMA");
            let peer = prepare(ia)?;
            convert(&peer, socket, SWITCHING)?;
            return answer_by_rdma(&peer, sink);
        }
        let mut words = head.split(' ');
        let body = match (words.next(), words.next()) {
            (Some("GET"), Some(name)) => document(name),
            _ => String::new(),
        };
        write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
    Ok(())
}

/// The client's memory for documents: key and address, hexadecimal.
fn parse_sink(text: &str) -> Option<RemoteRange> {
    let (key, addr) = text.split_once(' ')?;
    let context = RmrContext(u32::from_str_radix(key, 16).ok()?);
    let addr = u64::from_str_radix(addr, 16).ok()?;
    Some(RemoteRange { context, addr, len: DOCUMENT as u64 })
}

/// The server after the transition.
fn answer_by_rdma(peer: &Peer, sink: RemoteRange) -> Result<()> {
    while let Some(message) = next_message(peer, Duration::MAX)? {
        let body = document(&String::from_utf8_lossy(&message));
        peer.document.write_at(0, body.as_bytes())?;
        let source = peer.document.range(0..body.len())?;
        peer.ep.post_recv(message)?;
        peer.ep.post(Work::write(source, sink).unsignalled())?;
        let length = (body.len() as u32).to_be_bytes();
        peer.ep.post(Work::send(&length))?;
    }
    ended(&peer.ep)
}

/// The peer's next message; `None`: it has disconnected.
fn next_message(peer: &Peer, patience: Duration) -> Result<Option<Buffer>> {
    loop {
        let completion = peer.evd.wait(patience)?.ok_or(Error::Timeout(patience))?;
        if completion.status == WcStatus::Flushed {
            return Ok(None);
        }
        completion.check()?;
        if completion.operation == Operation::Recv {
            return Ok(completion.into_buffer());
        }
    }
}

/// The client's side of the dialogue.
fn fetch(ia: &Ia, mut socket: TcpStream) -> Result<()> {
    let peer = prepare(ia)?;
    let RemoteRange { context, addr, .. } = peer.document.remote();
    write!(
        socket,
        "OPTIONS * HTTP/1.1\r\nHost: example\r\nConnection: Upgrade\r\nUpgrade: rdma\r\n\
         RDMA-Sink: {:x} {addr:x}\r\n\r\n",
        context.0
    )?;
    let head = read_head(&mut socket)?.ok_or("no answer")?;
    if head.starts_with("HTTP/1.1 101 ") {
        convert(&peer, socket, b"")?;
        fetch_by_rdma(&peer, "/first")?;
        fetch_by_rdma(&peer, "/second")?;
        return Ok(peer.ep.disconnect()?);
    }
    println!("the server declines; going on with HTTP");
    fetch_plain(&mut socket, "/first")?;
    fetch_plain(&mut socket, "/second")
}

/// Fetches a document by HTTP over the socket.
fn fetch_plain(socket: &mut TcpStream, name: &str) -> Result<()> {
    write!(socket, "GET {name} HTTP/1.1\r\nHost: example\r\n\r\n")?;
    let head = read_head(socket)?.ok_or("no answer")?;
    let length: usize =
        field(&head, "Content-Length").ok_or("a response without length")?.parse()?;
    let mut body = vec![0; length.min(DOCUMENT)];
    socket.read_exact(&mut body)?;
    print!("plain: {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// Fetches a document over RDMA.
fn fetch_by_rdma(peer: &Peer, name: &str) -> Result<()> {
    peer.ep.post(Work::send(name.as_bytes()))?;
    let Some(message) = next_message(peer, PATIENCE)? else {
        return ended(&peer.ep).and(Err("the server disconnected".into()));
    };
    let length = u32::from_be_bytes(message.to_vec().as_slice().try_into()?) as usize;
    let mut body = vec![0; length.min(DOCUMENT)];
    peer.document.read_at(0, &mut body)?;
    print!("RDMA: {}", String::from_utf8_lossy(&body));
    peer.ep.post_recv(message)?;
    Ok(())
}
