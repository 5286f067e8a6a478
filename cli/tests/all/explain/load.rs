//! The processes that the tests explain: this test program again, as one end of a connection that does what an
//! environment variable says until it is killed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use itapi::{Ep, Error, Evd, Ia, Lmr, Operation, Pz, RemoteRange, Result, WcStatus, Work};
use serde::{Deserialize, Serialize};

/// Variable with the [`Role`]s of the process of an end, each of which has a thread and an adapter of its own.
pub(crate) const ROLES: &str = "WARPLINE_EXPLAINED";
/// Variable with the device of an end.
pub(crate) const DEVICE: &str = "WARPLINE_EXPLAINED_DEVICE";
/// The test that is the end.
pub(crate) const TEST: &str = "explain::load::end";
/// Octets that the peer may read and write.
const REGION: usize = 1 << 20;
/// How late a late reply is.
const LATE: Duration = Duration::from_millis(20);

#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    Serve { address: String, with: Serve },
    Connect { address: String, with: Load },
}

/// How the passive side serves one connection.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Serve {
    /// Receives that it keeps posted.
    pub(crate) receives: u32,
    pub(crate) manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    Poll,
    Wait,
    /// It never calls the library.
    Park,
    /// It polls and sends each message back.
    Echo,
    /// It waits and sends each message back, some milliseconds late, in which it does not look at the connection.
    Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Write,
    Read,
    Send,
    /// Send, and wait for the reply.
    Echo,
}

/// What the active side does.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) op: Op,
    pub(crate) size: usize,
    pub(crate) depth: u32,
    pub(crate) ord: u16,
    /// Requests in a list.
    pub(crate) list: u32,
    /// Requests under way at once; beyond the depth the queue refuses.
    pub(crate) at_once: u32,
    /// It waits for completions; else it polls.
    pub(crate) wait: bool,
    /// Microseconds of other work between two lists.
    pub(crate) work_us: u64,
    /// Microseconds for which it sleeps between two lists.
    pub(crate) rest_us: u64,
    /// Messages after which it keeps the connection and sends nothing more; 0: none.
    pub(crate) messages: u64,
}

/// Writes of 64 KiB, as fast as possible.
pub(crate) const STREAM: Load = Load {
    op: Op::Write,
    size: 64 << 10,
    depth: 16,
    ord: 16,
    list: 1,
    at_once: 16,
    wait: false,
    work_us: 0,
    rest_us: 0,
    messages: 0,
};

/// The same, where the path is the limit: it sleeps meanwhile, so that other load of the machine changes little.
pub(crate) const FLOW: Load = Load { wait: true, ..STREAM };

/// Not a test by itself: one end.
#[test]
fn end() {
    let Ok(roles) = std::env::var(ROLES) else { return };
    let roles: Vec<Role> = serde_json::from_str(&roles).unwrap();
    OUT.set(keep_output().unwrap()).unwrap();
    std::thread::scope(|scope| {
        for role in &roles {
            scope.spawn(|| match role {
                Role::Serve { address, with } => serve(address, *with).unwrap(),
                Role::Connect { address, with } => connect(address, *with).unwrap(),
            });
        }
    });
}

/// What was standard output.
static OUT: OnceLock<File> = OnceLock::new();

/// Returns standard output, and directs what else is written there to nowhere: after a minute libtest writes that the
/// test runs for long, and ends the process if nobody reads that.
fn keep_output() -> std::io::Result<File> {
    let out = std::io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
    Ok(out.into())
}

/// Writes a line by one call: the threads of several roles write to one file.
fn say(what: &str) {
    OUT.get().unwrap().write_all(format!("\n{what}\n").as_bytes()).unwrap();
}

/// Keeps all objects: the connection ended, as some tests intend, and they check the record of its end.
fn keep() -> ! {
    loop {
        std::thread::park();
    }
}

fn open() -> Result<Ia> {
    match std::env::var(DEVICE) {
        Ok(device) => Ia::builder().device(&device).open(),
        Err(_) => Ia::open(),
    }
}

fn serve(address: &str, with: Serve) -> Result<()> {
    let ia = open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(4096)?);
    let region = pz.lmr(REGION).remote_read().remote_write().register()?;
    let listen = ia.listen(address)?;
    say(&format!("listening at {}", listen.address()));
    let ep = pz.ep(&evd).depth(16, with.receives.max(1)).reads(16, 16).build()?;
    for buffer in pz.buffers(with.receives as usize, 64 << 10)? {
        ep.post_recv(buffer)?;
    }
    listen.request()?.accept(&ep, &region.remote().to_octets())?;
    loop {
        let completion = match with.manner {
            Manner::Park => {
                std::thread::park();
                continue;
            }
            Manner::Wait | Manner::Late => evd.wait(Duration::from_secs(1))?,
            Manner::Poll | Manner::Echo => evd.poll()?,
        };
        let Some(completion) = completion else { continue };
        if completion.status != WcStatus::Success {
            keep();
        }
        let Some(buffer) = completion.into_buffer() else { continue };
        ep.post_recv(buffer)?;
        if with.manner == Manner::Late {
            std::thread::sleep(LATE);
        }
        if matches!(with.manner, Manner::Echo | Manner::Late) {
            ep.post(Work::send(&[0; 8]))?;
        }
    }
}

fn connect(address: &str, with: Load) -> Result<()> {
    let ia = open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(4096)?);
    let ep = pz.ep(&evd).depth(with.depth, 4).reads(16, with.ord).build()?;
    let remote = RemoteRange::from_octets(&ep.connect(address, b"")?.private_data);
    let remote = remote.ok_or(Error::Argument("the peer sent no range".into()))?;
    say("connected");
    let mut client = Client::new(&pz, evd, ep, remote, with)?;
    while client.has_more() {
        if client.round().is_err() {
            keep();
        }
    }
    let local = client.ep.ends().ok_or(Error::Argument("no connection".into()))?.local.address;
    let octets = client.sent * with.size as u64;
    let Client { sent, refused, .. } = client;
    say(&format!("done {local} {sent} messages {octets} octets {refused} refused"));
    keep();
}

struct Client {
    evd: Evd,
    ep: Ep,
    memory: Lmr,
    remote: RemoteRange,
    with: Load,
    under_way: u32,
    sent: u64,
    /// Posts that found the queue full.
    refused: u64,
    list: Vec<Work<'static>>,
}

impl Client {
    fn new(pz: &Pz, evd: Evd, ep: Ep, remote: RemoteRange, with: Load) -> Result<Self> {
        for buffer in pz.buffers(4, 8)? {
            ep.post_recv(buffer)?;
        }
        let memory = pz.lmr(with.size).register()?;
        let remote = remote.slice(0..with.size as u64)?;
        Ok(Self {
            evd,
            ep,
            memory,
            remote,
            with,
            under_way: 0,
            sent: 0,
            refused: 0,
            list: Vec::new(),
        })
    }

    fn has_more(&self) -> bool {
        self.with.messages == 0 || self.sent < self.with.messages || self.under_way > 0
    }

    fn round(&mut self) -> Result<()> {
        self.post()?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(self.with.work_us) {
            std::hint::spin_loop();
        }
        if self.with.rest_us > 0 {
            std::thread::sleep(Duration::from_micros(self.with.rest_us));
        }
        self.take()
    }

    /// Posts as many requests as are to be outstanding.
    fn post(&mut self) -> Result<()> {
        let left = |sent| match self.with.messages {
            0 => u64::MAX,
            all => all - sent,
        };
        while self.under_way < self.with.at_once && left(self.sent) > 0 {
            let mut list = std::mem::take(&mut self.list);
            list.clear();
            let length = u64::from(self.with.list).min(left(self.sent));
            list.extend((0..length).map(|_| self.work()));
            let before = list.len();
            let posted = self.ep.post_all(&mut list);
            self.sent += (before - list.len()) as u64;
            self.under_way += (before - list.len()) as u32;
            self.list = list;
            match posted {
                Ok(_) => {}
                // The queue is full.
                Err(_) if self.under_way > 0 => {
                    self.refused += 1;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn work(&self) -> Work<'static> {
        match self.with.op {
            Op::Write => Work::write(&self.memory, self.remote),
            Op::Read => Work::read(self.remote, &self.memory),
            Op::Send | Op::Echo => Work::send(&self.memory),
        }
    }

    fn take(&mut self) -> Result<()> {
        let mut next = match self.with.wait {
            true => self.evd.wait(Duration::from_secs(1))?,
            false => self.evd.poll()?,
        };
        while let Some(completion) = next {
            completion.check()?;
            let is_receive = completion.operation == Operation::Recv;
            if is_receive == (self.with.op == Op::Echo) {
                self.under_way = self.under_way.saturating_sub(1);
            }
            if let Some(buffer) = completion.into_buffer().filter(|_| is_receive) {
                self.ep.post_recv(buffer)?;
            }
            next = self.evd.poll()?;
        }
        Ok(())
    }
}
