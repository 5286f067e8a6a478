//! Copies files by RDMA Write, many chunks in flight, and verifies what arrived.
//!
//! `rdma_copy serve ADDRESS DIRECTORY` stores files; `rdma_copy connect ADDRESS FILE...` sends
//! them.
//!
//! The server offers a window of slots. The client writes a chunk into the next slot and sends a
//! header of 16 octets; the server takes the chunk and replies, which frees the slot. Each
//! connection belongs to one thread. When the client dies, its incomplete file is removed.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use itapi::{
    Buffer, ConnEvent, Ep, Error, Evd, Ia, Lmr, Operation, RemoteRange, Request, WcStatus, Work,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time-out, so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Octets of a slot.
const SLOT: usize = 256 * 1024;
/// Slots of a connection: chunks in flight.
const SLOTS: usize = 16;
/// Octets of the Send after a chunk: kind and length (4 each), value (8).
const HEADER: usize = 16;
/// Octets of a reply: 0 if the chunk is taken, else 1 and the reason.
const ANSWER: usize = 64;
/// A chunk is a file's name; value: the file's size.
const OPEN: u32 = 1;
/// A chunk is octets of the file.
const DATA: u32 = 2;
/// The file is complete; value: its checksum.
const CLOSE: u32 = 3;

/// Copy files over RDMA
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
    /// Store files of any number of clients; prints the address
    Serve {
        /// Where to listen; port 0 takes a free one
        address: String,
        /// Where to store them
        directory: PathBuf,
    },
    /// Send files to a server
    Connect {
        /// Where it listens
        address: String,
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

fn main() {
    let args = Args::parse();
    let opened = Ia::builder().device(args.ia).open().map_err(Into::into);
    let result = opened.and_then(|ia| match args.command {
        Command::Serve { address, directory } => serve(&ia, &address, &directory),
        Command::Connect { address, files } => bring(&ia, &address, &files),
    });
    if let Err(error) = result {
        eprintln!("rdma_copy: {error}");
        std::process::exit(1);
    }
}

/// FNV-1a, 64 bits: detects accidental damage.
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = (self.0 ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// Connection handling: a thread for each client.
fn serve(ia: &Ia, address: &str, directory: &Path) -> Result<()> {
    let listen = ia.listen(address)?;
    println!("listening at {}", listen.address());
    loop {
        let (ia, request, directory) = (ia.clone(), listen.request()?, directory.to_owned());
        let thread = std::thread::Builder::new().spawn(move || {
            let client = request.ends().remote.to_string();
            let kept = accept(&ia, request).and_then(|peer| keep(peer, &directory));
            if let Err(error) = kept {
                eprintln!("rdma_copy: {client}: {error}");
            }
        });
        if let Err(error) = thread {
            eprintln!("rdma_copy: no thread for a client, it is rejected: {error}");
        }
    }
}

/// One connection with its slots: the server's, or the client's copies of them.
struct Peer {
    evd: Evd,
    ep: Ep,
    slots: Lmr,
}

/// Connection handling: a connection's objects with `SLOTS` receives, before it is connected.
fn prepare(ia: &Ia, message: usize) -> Result<Peer> {
    let (pz, evd) = (ia.pz()?, ia.evd(4 * SLOTS as u32)?);
    let slots = pz.lmr(SLOTS * SLOT).remote_write().register()?;
    let ep = pz.ep(&evd).depth(2 * SLOTS as u32, SLOTS as u32).max_pieces(1).build()?;
    for buffer in pz.buffers(SLOTS, message)? {
        ep.post_recv(buffer)?;
    }
    Ok(Peer { evd, ep, slots })
}

/// Connection handling: the private data of the reply is the key of the slots.
fn accept(ia: &Ia, request: Request) -> Result<Peer> {
    let peer = prepare(ia, HEADER)?;
    request.accept(&peer.ep, &peer.slots.remote().to_octets())?;
    Ok(peer)
}

/// Connection handling: connects; also returns the server's slots.
fn connect(ia: &Ia, address: &str) -> Result<(Peer, RemoteRange)> {
    let peer = prepare(ia, ANSWER)?;
    let established = peer.ep.connect(address, b"")?;
    let window = established.private_data.get(..RemoteRange::ENCODED_LEN);
    match window.and_then(RemoteRange::from_octets) {
        Some(window) if window.len == (SLOTS * SLOT) as u64 => Ok((peer, window)),
        _ => Err("the server is no rdma_copy of this version".into()),
    }
}

/// Connection handling: waits for the end, an error unless it was orderly.
fn ended(ep: &Ep) -> Result<()> {
    match ep.ended(PATIENCE)? {
        None | Some(ConnEvent::Disconnected { .. }) => Ok(()),
        Some(other) => Err(Error::Connection(Box::new(other)).into()),
    }
}

/// The header of a chunk, sent after it.
struct Header {
    kind: u32,
    len: usize,
    value: u64,
}

impl Header {
    fn to_octets(&self) -> [u8; HEADER] {
        let mut octets = [0; HEADER];
        octets[..4].copy_from_slice(&self.kind.to_be_bytes());
        octets[4..8].copy_from_slice(&(self.len as u32).to_be_bytes());
        octets[8..].copy_from_slice(&self.value.to_be_bytes());
        octets
    }

    /// Decodes a header; `None`: it is malformed, or its chunk does not fit a slot.
    fn from_octets(octets: &[u8]) -> Option<Self> {
        let (kind, rest) = octets.split_first_chunk()?;
        let (len, value) = rest.split_first_chunk()?;
        let (kind, value) = (u32::from_be_bytes(*kind), u64::from_be_bytes(value.try_into().ok()?));
        let len = u32::from_be_bytes(*len) as usize;
        (len <= SLOT).then_some(Self { kind, len, value })
    }
}

/// Stores the client's files until it disconnects.
fn keep(peer: Peer, directory: &Path) -> Result<()> {
    let (mut incoming, mut chunk) = (None, vec![0; SLOT]);
    for slot in (0..SLOTS).cycle() {
        let Some(message) = next_message(&peer)? else { return ended(&peer.ep) };
        let header = Header::from_octets(&message).ok_or("a malformed header")?;
        let chunk = &mut chunk[..header.len];
        peer.slots.read_at(slot * SLOT, chunk)?;
        let taken = take(&mut incoming, directory, &header, chunk);
        peer.ep.post_recv(message)?;
        let answer = match taken {
            Ok(()) => 0u32.to_be_bytes().to_vec(),
            Err(error) => [&1u32.to_be_bytes(), error.to_string().as_bytes()].concat(),
        };
        let answer = &answer[..answer.len().min(ANSWER)];
        peer.ep.post(Work::send(answer))?;
    }
    Ok(())
}

/// The client's next message; `None`: it has disconnected.
fn next_message(peer: &Peer) -> Result<Option<Buffer>> {
    loop {
        let Some(completion) = peer.evd.wait(Duration::MAX)? else { continue };
        if completion.status == WcStatus::Flushed {
            return Ok(None);
        }
        completion.check()?;
        if completion.operation == Operation::Recv {
            return Ok(completion.into_buffer());
        }
    }
}

/// A file that is being received. Dropping it removes an incomplete file.
struct Incoming {
    file: File,
    part: PathBuf,
    path: PathBuf,
    left: u64,
    sum: Checksum,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // A complete file has been renamed.
        let _ = fs::remove_file(&self.part);
    }
}

/// Processes one chunk.
fn take(
    incoming: &mut Option<Incoming>,
    directory: &Path,
    header: &Header,
    chunk: &[u8],
) -> Result<()> {
    match (header.kind, incoming.as_mut()) {
        (OPEN, None) => *incoming = Some(Incoming::create(directory, chunk, header.value)?),
        (DATA, Some(file)) => file.add(chunk)?,
        (CLOSE, Some(file)) => {
            file.finish(header.value)?;
            *incoming = None;
        }
        _ => return Err("a chunk out of order".into()),
    }
    Ok(())
}

impl Incoming {
    /// Creates the file. Only plain names, so that no client chooses another directory.
    fn create(directory: &Path, name: &[u8], size: u64) -> Result<Self> {
        let name = std::str::from_utf8(name)?;
        if Path::new(name).file_name().is_none_or(|plain| plain != name) {
            return Err(format!("{name:?} is no file name").into());
        }
        let (part, path) = (directory.join(format!("{name}.part")), directory.join(name));
        let file = File::create_new(&part).map_err(|e| format!("{}: {e}", part.display()))?;
        Ok(Self { file, part, path, left: size, sum: Checksum::new() })
    }

    fn add(&mut self, chunk: &[u8]) -> Result<()> {
        let left = self.left.checked_sub(chunk.len() as u64);
        self.left = left.ok_or("more octets than announced")?;
        self.sum.add(chunk);
        Ok(self.file.write_all(chunk)?)
    }

    fn finish(&mut self, sum: u64) -> Result<()> {
        if self.left != 0 || self.sum.0 != sum {
            return Err("checksum mismatch".into());
        }
        println!("{}", self.path.display());
        Ok(fs::rename(&self.part, &self.path)?)
    }
}

/// The client: its connection, the server's slots, and the numbers of chunks posted, sent and acknowledged.
struct Uploader {
    peer: Peer,
    window: RemoteRange,
    posted: usize,
    sent: usize,
    answered: usize,
}

fn bring(ia: &Ia, address: &str, files: &[PathBuf]) -> Result<()> {
    let (peer, window) = connect(ia, address)?;
    let mut bringer = Uploader { peer, window, posted: 0, sent: 0, answered: 0 };
    let (begin, mut octets) = (Instant::now(), 0);
    for path in files {
        octets += bringer.file(path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    while bringer.answered < bringer.posted {
        bringer.progress()?;
    }
    let rate = octets as f64 / begin.elapsed().as_secs_f64() / 1e6;
    println!("{} files, {octets} octets, {rate:.0} MB/s, verified", files.len());
    Ok(bringer.peer.ep.disconnect()?)
}

impl Uploader {
    /// Sends one file; returns its size.
    fn file(&mut self, path: &Path) -> Result<u64> {
        let name =
            path.file_name().and_then(|name| name.to_str()).ok_or("the path has no file name")?;
        let mut file = File::open(path)?;
        let (size, mut chunk, mut sum) = (file.metadata()?.len(), vec![0; SLOT], Checksum::new());
        self.push(OPEN, size, name.as_bytes())?;
        let mut left = size;
        while left > 0 {
            let len = left.min(SLOT as u64);
            let chunk = &mut chunk[..len as usize];
            file.read_exact(chunk)?;
            sum.add(chunk);
            self.push(DATA, 0, chunk)?;
            left -= len;
        }
        self.push(CLOSE, sum.0, b"")?;
        Ok(size)
    }

    /// Writes a chunk into the next slot, once it is free, and sends its header.
    fn push(&mut self, kind: u32, value: u64, chunk: &[u8]) -> Result<()> {
        // On RoCE a chunk's reply may come before the Send of its header is complete.
        while self.posted - self.answered.min(self.sent) == SLOTS {
            self.progress()?;
        }
        let at = self.posted % SLOTS * SLOT;
        let range = at..at + chunk.len();
        if !chunk.is_empty() {
            self.peer.slots.write_at(at, chunk)?;
            let window = self.window.slice(range.start as u64..range.end as u64)?;
            let write = Work::write(self.peer.slots.range(range)?, window).unsignalled();
            self.peer.ep.post(write)?;
        }
        let header = Header { kind, len: chunk.len(), value }.to_octets();
        self.peer.ep.post(Work::send(&header))?;
        self.posted += 1;
        Ok(())
    }

    /// Waits for the next reply, or until the next chunk is sent.
    fn progress(&mut self) -> Result<()> {
        let completion = self.peer.evd.wait(PATIENCE)?.ok_or(Error::Timeout(PATIENCE))?;
        if completion.status == WcStatus::Flushed {
            ended(&self.peer.ep)?;
        }
        completion.check()?;
        if completion.operation != Operation::Recv {
            self.sent += 1;
            return Ok(());
        }
        let buffer = completion.into_buffer().ok_or("a receive without memory")?;
        let answer = buffer.to_vec();
        if answer.first_chunk() != Some(&0u32.to_be_bytes()) {
            let why = String::from_utf8_lossy(answer.get(4..).unwrap_or_default()).into_owned();
            return Err(format!("the server says: {why}").into());
        }
        self.peer.ep.post_recv(buffer)?;
        self.answered += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_to_other_directories_are_refused() {
        for name in ["", ".", "..", "a/b", "/a", "../a", "a/"] {
            let Err(error) = Incoming::create(Path::new("nowhere"), name.as_bytes(), 0) else {
                panic!("{name:?} was taken");
            };
            assert!(error.to_string().contains("no file name"), "{name:?}: {error}");
        }
    }

    #[test]
    fn headers_are_encoded_and_checked() {
        let header = Header { kind: DATA, len: SLOT, value: u64::MAX - 1 };
        let decoded = Header::from_octets(&header.to_octets()).unwrap();
        assert_eq!((decoded.kind, decoded.len, decoded.value), (DATA, SLOT, u64::MAX - 1));
        assert!(Header::from_octets(&Header { len: SLOT + 1, ..header }.to_octets()).is_none());
        assert!(Header::from_octets(&[0; HEADER - 1]).is_none());
        assert!(Header::from_octets(&[0; HEADER + 1]).is_none());
    }
}
