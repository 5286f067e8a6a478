//! A key-value store: clients read values by RDMA Read of the server's hash table, which takes no
//! processor time there; they write values by Sends.
//!
//! `kv serve ADDRESS`, `kv connect ADDRESS put KEY VALUE | get KEY | stress KEY COUNT`.
//!
//! A read during a write returns a mix of old and new ("torn"). Every entry therefore has a version
//! and a checksum over all of it: the reader checks it, and reads again. Each connection belongs to
//! one thread; a lock covers changes of the table, but not reads by RDMA.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, Subcommand};
use itapi::{
    Buffer, ConnEvent, Ep, Error, Evd, Ia, Lmr, Operation, Pz, RemoteRange, Request, Result,
    WcStatus, Work,
};

/// Time-out, so that nothing hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets of an entry: version and checksum (8 each), lengths of key and value (4 each), both.
const ENTRY: usize = 1024;
/// Octets before the key.
const HEAD: usize = 24;
/// Octets of a key and its value together.
const ROOM: usize = ENTRY - HEAD;
/// Entries of the table.
const ENTRIES: usize = 4096;
/// Entries that are searched for a key, from its hash on.
const PROBES: usize = 8;
/// Octets of a reply: the new version, 0 if the table has no room.
const ANSWER: usize = 8;

/// Key-value store with one-sided reads over RDMA
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
    /// Serve a table to any number of clients; prints the address
    Serve {
        /// Where to listen; port 0 takes a free one
        address: String,
    },
    /// Use a server
    Connect {
        /// Where it listens
        address: String,
        #[command(subcommand)]
        action: Action,
    },
}

#[derive(Subcommand)]
enum Action {
    /// Set the value of a key
    Put { key: String, value: String },
    /// Print the value of a key
    Get { key: String },
    /// Set a key COUNT times and read it meanwhile; fails on a torn or stale value
    Stress { key: String, count: u32 },
}

fn main() {
    let args = Args::parse();
    let result = Ia::builder().device(args.ia).open().and_then(|ia| match args.command {
        Command::Serve { address } => serve(&ia, &address),
        Command::Connect { address, action } => use_server(&ia, &address, action),
    });
    if let Err(error) = result {
        eprintln!("kv: {error}");
        std::process::exit(1);
    }
}

/// Connection handling: one table, and a thread for each client.
fn serve(ia: &Ia, address: &str) -> Result<()> {
    let pz = ia.pz()?;
    let table = Arc::new(Mutex::new(pz.lmr(ENTRIES * ENTRY).remote_read().register()?));
    let key = lock(&table).remote();
    let listen = ia.listen(address)?;
    println!("listening at {}", listen.address());
    loop {
        let (request, ia, pz, table) = (listen.request()?, ia.clone(), pz.clone(), table.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let client = request.ends().remote.to_string();
            let served =
                accept(&ia, &pz, request, key).and_then(|(evd, ep)| keep(&evd, &ep, &table));
            if let Err(error) = served {
                eprintln!("kv: {client}: {error}");
            }
        });
        if let Err(error) = thread {
            eprintln!("kv: no thread for a client, it is rejected: {error}");
        }
    }
}

/// Connection handling: the private data of the reply is the key of the table.
fn accept(ia: &Ia, pz: &Pz, request: Request, table: RemoteRange) -> Result<(Evd, Ep)> {
    let evd = ia.evd(4)?;
    let ep = pz.ep(&evd).depth(2, 1).max_pieces(1).build()?;
    ep.post_recv(pz.buffer(ENTRY)?)?;
    request.accept(&ep, &table.to_octets())?;
    Ok((evd, ep))
}

/// A connection to a server.
struct Client {
    evd: Evd,
    ep: Ep,
    table: RemoteRange,
    /// Sink of reads; `None`: a read is outstanding.
    sink: Option<Buffer>,
    /// Buffer of puts; `None`: one is outstanding.
    message: Option<Buffer>,
    /// The server's reply to a put.
    answer: Option<u64>,
    /// Number of torn reads.
    torn: u64,
}

/// Connection handling: connects to a server.
fn connect(ia: &Ia, address: &str) -> Result<Client> {
    let (pz, evd) = (ia.pz()?, ia.evd(8)?);
    let ep = pz.ep(&evd).depth(4, 1).max_pieces(1).build()?;
    ep.post_recv(pz.buffer(ANSWER)?)?;
    let established = ep.connect(address, b"")?;
    let table = established.private_data.get(..RemoteRange::ENCODED_LEN);
    match table.and_then(RemoteRange::from_octets) {
        Some(table) if table.len == (ENTRIES * ENTRY) as u64 => {
            let [sink, message] = [pz.buffer(ENTRY)?, pz.buffer(ENTRY)?].map(Some);
            Ok(Client { evd, ep, table, sink, message, answer: None, torn: 0 })
        }
        _ => Err(Error::Argument("the server is no kv of this version".into())),
    }
}

/// Connection handling: waits for the end, an error unless it was orderly.
fn ended(ep: &Ep) -> Result<()> {
    match ep.ended(PATIENCE)? {
        None | Some(ConnEvent::Disconnected { .. }) => Ok(()),
        Some(other) => Err(Error::Connection(Box::new(other))),
    }
}

/// An entry outside of the table.
#[derive(Clone)]
struct Entry([u8; ENTRY]);

/// FNV-1a, 64 bits.
fn fnv(octets: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |sum: u64, octet: u8| (sum ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3);
    octets.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

impl Entry {
    const EMPTY: Self = Self([0; ENTRY]);

    /// An entry; `None`: key and value do not fit.
    fn new(key: &[u8], value: &[u8]) -> Option<Self> {
        let mut entry = Self::EMPTY;
        entry.0[16..20].copy_from_slice(&(key.len() as u32).to_be_bytes());
        entry.0[20..24].copy_from_slice(&(value.len() as u32).to_be_bytes());
        let end = HEAD.checked_add(key.len())?;
        entry.0.get_mut(HEAD..end)?.copy_from_slice(key);
        entry.0.get_mut(end..end.checked_add(value.len())?)?.copy_from_slice(value);
        Some(entry)
    }

    fn word(&self, at: usize) -> u64 {
        self.0[at..at + 8].iter().fold(0, |word, octet| word << 8 | u64::from(*octet))
    }

    /// 0: empty.
    fn version(&self) -> u64 {
        self.word(0)
    }

    fn sum(&self) -> u64 {
        fnv(self.0[..8].iter().chain(&self.0[16..]).copied())
    }

    /// True if all of it is of one version.
    fn is_whole(&self) -> bool {
        self.version() == 0 || self.word(8) == self.sum()
    }

    fn seal(&mut self, version: u64) {
        self.0[..8].copy_from_slice(&version.to_be_bytes());
        let sum = self.sum();
        self.0[8..16].copy_from_slice(&sum.to_be_bytes());
    }

    /// Key and value; `None`: the lengths are invalid.
    fn parts(&self) -> Option<(&[u8], &[u8])> {
        let [keys, values] = [self.word(16) >> 32, self.word(16) & 0xffff_ffff];
        let (key, rest) = self.0[HEAD..].split_at_checked(keys as usize)?;
        Some((key, rest.get(..values as usize)?))
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.parts().is_some_and(|(own, _)| own == key)
    }
}

/// The entries that may have a key.
fn places(key: &[u8]) -> impl Iterator<Item = usize> {
    let first = fnv(key.iter().copied()) as usize;
    (0..PROBES).map(move |probe| first.wrapping_add(probe) % ENTRIES * ENTRY)
}

fn lock(table: &Mutex<Lmr>) -> std::sync::MutexGuard<'_, Lmr> {
    // Entries are written whole or not at all.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server: executes the client's messages until it disconnects.
fn keep(evd: &Evd, ep: &Ep, table: &Mutex<Lmr>) -> Result<()> {
    loop {
        let Some(completion) = evd.wait(Duration::MAX)? else { continue };
        if completion.status == WcStatus::Flushed {
            return ended(ep);
        }
        completion.check()?;
        if completion.operation != Operation::Recv {
            continue;
        }
        let Some(message) = completion.into_buffer() else { continue };
        let mut entry = Entry::EMPTY;
        message.read_at(0, &mut entry.0[..message.len()])?;
        let version = put(&lock(table), entry)?;
        ep.post_recv(message)?;
        ep.post(Work::send(&version.to_be_bytes()))?;
    }
}

/// Puts an entry into the table; returns its version, 0 if there is no room or it is malformed.
fn put(table: &Lmr, mut entry: Entry) -> Result<u64> {
    let Some(key) = entry.parts().map(|(key, _)| key.to_vec()) else { return Ok(0) };
    for place in places(&key) {
        let mut old = Entry::EMPTY;
        table.read_at(place, &mut old.0)?;
        if old.version() == 0 || old.has_key(&key) {
            let version = old.version() + 1;
            entry.seal(version);
            // A read during this copy is torn, which its checksum shows.
            table.write_at(place, &entry.0)?;
            return Ok(version);
        }
    }
    Ok(0)
}

/// Connection handling: disconnects also if the action failed.
fn use_server(ia: &Ia, address: &str, action: Action) -> Result<()> {
    let mut client = connect(ia, address)?;
    let acted = act(&mut client, action);
    let ended = client.ep.disconnect();
    acted.and(ended)
}

fn act(client: &mut Client, action: Action) -> Result<()> {
    match action {
        Action::Put { key, value } => {
            let version = client.put(key.as_bytes(), value.as_bytes())?;
            println!("{key}: version {version}");
        }
        Action::Get { key } => match client.get(key.as_bytes())? {
            Some((_, value)) => println!("{}", String::from_utf8_lossy(&value)),
            None => return Err(Error::Argument(format!("there is no {key}"))),
        },
        Action::Stress { key, count } => client.stress(key.as_bytes(), count)?,
    }
    Ok(())
}

impl Client {
    /// Sets a value; returns its version.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64> {
        self.send(key, value)?;
        loop {
            if let Some(version) = self.answer.take() {
                return Ok(version);
            }
            self.step()?;
        }
    }

    /// Sends a value; [`Client::step`] takes the reply.
    fn send(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = Entry::new(key, value)
            .ok_or_else(|| Error::Argument(format!("key and value exceed {ROOM} octets")))?;
        let mut message = loop {
            match self.message.take() {
                Some(message) => break message,
                None => self.step()?,
            }
        };
        message.fill(&entry.0[..HEAD + key.len() + value.len()])?;
        self.ep.post(Work::send(message))?;
        Ok(())
    }

    /// Version and value of a key, by RDMA Reads.
    fn get(&mut self, key: &[u8]) -> Result<Option<(u64, Vec<u8>)>> {
        for place in places(key) {
            let entry = self.read(place)?;
            match entry.parts() {
                _ if entry.version() == 0 => return Ok(None),
                Some((own, value)) if own == key => {
                    return Ok(Some((entry.version(), value.to_vec())));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads an entry until it is not torn.
    fn read(&mut self, place: usize) -> Result<Entry> {
        let (from, mut entry) = (place as u64, Entry::EMPTY);
        let remote = self.table.slice(from..from + ENTRY as u64)?;
        loop {
            if let Some(sink) = self.sink.take() {
                self.ep.post(Work::read(remote, sink))?;
            }
            while self.sink.is_none() {
                self.step()?;
            }
            if let Some(sink) = &self.sink {
                sink.read_at(0, &mut entry.0)?;
            }
            if entry.is_whole() {
                return Ok(entry);
            }
            self.torn += 1;
        }
    }

    /// Takes the next completion.
    fn step(&mut self) -> Result<()> {
        let completion = self.evd.wait(PATIENCE)?.ok_or(Error::Timeout(PATIENCE))?;
        if completion.status == WcStatus::Flushed {
            ended(&self.ep)?;
        }
        completion.check()?;
        match (completion.operation, completion.into_buffer()) {
            (Operation::Read, sink) => self.sink = sink,
            (Operation::Send, message) => self.message = message,
            (Operation::Recv, Some(buffer)) => {
                let mut version = [0; ANSWER];
                buffer.read_at(0, &mut version)?;
                self.ep.post_recv(buffer)?;
                match u64::from_be_bytes(version) {
                    0 => return Err(Error::Argument("the table has no room for this key".into())),
                    version => self.answer = Some(version),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the key `count` times and reads it meanwhile.
    fn stress(&mut self, key: &[u8], count: u32) -> Result<()> {
        let room = ROOM.saturating_sub(key.len());
        let (mut reads, mut known) = (0, self.put(key, &vec![b'a'; room])?);
        for turn in 0..count {
            self.send(key, &vec![b'a' + (turn % 26) as u8; room])?;
            known = loop {
                let Some((version, value)) = self.get(key)? else {
                    return Err(Error::Argument("the key has vanished".into()));
                };
                if version < known || value.iter().any(|octet| *octet != value[0]) {
                    return Err(Error::Argument(format!("version {version} is stale or torn")));
                }
                reads += 1;
                if let Some(version) = self.answer.take() {
                    break version;
                }
            };
        }
        let torn = self.torn;
        println!("{count} writes, {reads} reads; {torn} torn reads were noticed and repeated");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_of_two_versions_is_detected() {
        let [mut old, mut new] = [b"aaaa", b"bbbb"].map(|v| Entry::new(b"key", v).unwrap());
        old.seal(1);
        new.seal(2);
        assert!(old.is_whole() && new.is_whole() && Entry::EMPTY.is_whole());
        let used = HEAD + 7;
        for at in 1..used {
            let mut mix = old.clone();
            mix.0[..at].copy_from_slice(&new.0[..at]);
            assert_eq!(mix.is_whole(), mix.0 == old.0 || mix.0 == new.0, "new up to {at}");
        }
    }

    #[test]
    fn entries_hold_what_fits() {
        assert_eq!(Entry::new(b"k", b"v").unwrap().parts(), Some((&b"k"[..], &b"v"[..])));
        assert!(Entry::new(b"k", &[0; ROOM - 1]).is_some());
        assert!(Entry::new(b"k", &[0; ROOM]).is_none());
        let mut nonsense = Entry::EMPTY;
        nonsense.0[16..24].fill(0xff);
        assert_eq!(nonsense.parts(), None);
    }
}
