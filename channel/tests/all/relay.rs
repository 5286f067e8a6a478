//! A relay of TCP between two ends, which cuts its connections at random octets: by FIN, by RST, by silence, or one half.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Random numbers from a seed (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// How a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Both ends see the other one close.
    Fin,
    /// Both ends see a reset.
    Reset,
    /// Nothing passes any more.
    Silence,
    /// One end sees a reset, the other nothing more.
    Half,
}

struct Shared {
    to: Mutex<SocketAddr>,
    /// Cuts that are still to be made, and how.
    left: AtomicU64,
    kinds: Vec<Cut>,
    most: u64,
    made: AtomicU64,
    over: AtomicBool,
    /// Octets of each request, and of each reply, to be replayed: the first ones of each direction.
    first: Mutex<Vec<[Vec<u8>; 2]>>,
}

/// See the module.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Relay {
    /// To this address: `cuts` connections are cut, each after less than `most` octets, in one of these ways.
    pub(crate) fn start(to: SocketAddr, cuts: u64, most: u64, kinds: &[Cut], seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            to: Mutex::new(to),
            left: AtomicU64::new(cuts),
            kinds: kinds.to_vec(),
            most,
            made: AtomicU64::new(0),
            over: AtomicBool::new(false),
            first: Mutex::default(),
        });
        let inside = shared.clone();
        std::thread::spawn(move || {
            let mut random = Random::new(seed);
            while let Ok((client, _)) = listener.accept() {
                if inside.over.load(Ordering::SeqCst) {
                    return;
                }
                let plan = Plan::new(&inside, &mut random);
                let to = *inside.to.lock().unwrap();
                if let Ok(server) = TcpStream::connect(to) {
                    [&client, &server].into_iter().for_each(|it| it.set_nodelay(true).unwrap());
                    pass(&inside, plan, client, server);
                }
            }
        });
        Self { shared, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts that were made.
    pub(crate) fn made(&self) -> u64 {
        self.shared.made.load(Ordering::SeqCst)
    }

    /// The first octets of both directions of connection `at`.
    pub(crate) fn first(&self, at: usize) -> [Vec<u8>; 2] {
        self.shared.first.lock().unwrap()[at].clone()
    }

    /// From now on it leads to another address.
    pub(crate) fn lead_to(&self, address: SocketAddr) {
        *self.shared.to.lock().unwrap() = address;
    }

    /// So many more connections are cut.
    pub(crate) fn cut(&self, cuts: u64) {
        self.shared.left.fetch_add(cuts, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// When and how one connection is cut.
struct Plan {
    how: Cut,
    /// Octets of both directions until then.
    left: AtomicU64,
    done: AtomicBool,
    /// The half that sees a reset.
    half: bool,
}

impl Plan {
    fn new(shared: &Shared, random: &mut Random) -> Arc<Self> {
        let how = shared.kinds[random.below(shared.kinds.len() as u64) as usize];
        let left = random.below(shared.most);
        let half = random.below(2) == 0;
        Arc::new(Self { how, left: AtomicU64::new(left), done: AtomicBool::new(false), half })
    }
}

fn pass(shared: &Arc<Shared>, plan: Arc<Plan>, client: TcpStream, server: TcpStream) {
    let number = {
        let mut first = shared.first.lock().unwrap();
        first.push(Default::default());
        first.len() - 1
    };
    for (at, (from, to)) in [(&client, &server), (&server, &client)].into_iter().enumerate() {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let (shared, plan) = (shared.clone(), plan.clone());
        std::thread::spawn(move || one_way(&shared, &plan, from, to, number, at));
    }
}

fn one_way(
    shared: &Shared,
    plan: &Plan,
    mut from: TcpStream,
    mut to: TcpStream,
    number: usize,
    at: usize,
) {
    let mut octets = [0; 4096];
    // A read that ends now and then sees that the other direction was cut.
    from.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    loop {
        let read = match from.read(&mut octets) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(_) => break,
        };
        if plan.done.load(Ordering::SeqCst) {
            return;
        }
        if number < 4 {
            let first = &mut shared.first.lock().unwrap()[number][at];
            if first.len() < 1024 {
                first.extend(&octets[..read]);
            }
        }
        let left = plan.left.load(Ordering::SeqCst);
        let cuts = shared.left.load(Ordering::SeqCst) > 0;
        if cuts && left <= read as u64 {
            let _ = to.write_all(&octets[..left as usize]);
            return cut(shared, plan, from, to);
        }
        plan.left.store(left.saturating_sub(read as u64), Ordering::SeqCst);
        if to.write_all(&octets[..read]).is_err() {
            break;
        }
    }
    // As the ends do it.
    let _ = to.shutdown(Shutdown::Write);
}

fn cut(shared: &Shared, plan: &Plan, from: TcpStream, to: TcpStream) {
    if plan.done.swap(true, Ordering::SeqCst) {
        return;
    }
    shared.left.fetch_sub(1, Ordering::SeqCst);
    shared.made.fetch_add(1, Ordering::SeqCst);
    let reset = |stream: &TcpStream| set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    let silent = |stream: TcpStream| {
        // Until the end gives up.
        std::thread::spawn(move || {
            let mut stream = stream;
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut octets = [0; 4096];
            while stream.read(&mut octets).is_ok_and(|read| read > 0) {}
        });
    };
    match plan.how {
        Cut::Fin => {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
        Cut::Reset => {
            reset(&from);
            reset(&to);
        }
        Cut::Silence => {
            silent(from);
            silent(to);
        }
        Cut::Half => {
            let (one, other) = if plan.half { (from, to) } else { (to, from) };
            reset(&one);
            silent(other);
        }
    }
}
