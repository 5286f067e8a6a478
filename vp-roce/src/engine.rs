//! The engine of a process: its UDP sockets at port 4791, its queue pair numbers, and the thread that serves them.
//!
//! Owner: the process, as long as an RNIC is open or a connection is being ended; then the thread ends and the
//! sockets close. The slot is taken, and the thread started, with the first socket or queue pair number. Any thread sends. One thread at a time receives: the engine's thread `roce`, which sleeps in
//! `poll`, or a thread that polls a CQ; while threads poll, the engine's thread leaves the sockets to them (`attendance`). The engine knows a peer only by the number in its packets; connections and
//! their ends are in `qp` and `cm`. Numbers are random, so a number is reused only after 2^24 others, on average. A
//! packet for an unused number is dropped without a reply. A child made by fork(2) has its own engine.

mod attendance;
mod batch;
mod drops;
mod groups;
mod holder;
mod kept;
mod name;
mod neighbours;
mod numbers;
mod owner;
mod served;
mod socket;
mod steering;
mod timers;
mod touched;
mod visits;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use kal_os::fork::{Descriptors, Ours, Owner, PerProcess};
use kal_os::progress::Progress;
use kal_os::sync::Patience;
use kal_os::udp::segments::MAX_OCTETS;
use kal_os::{Spinner, lock, timespec};
use roce_proto::cm::mad::{self, Mad};
use roce_proto::cm::{QKEY, QPN};
use roce_proto::ud;
use roce_proto::wire::bth::DEFAULT_PKEY;
use roce_proto::wire::packet::Packet;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use vp_api::{MULTICAST_QPN, VpError, VpResult, VpStatus, room};

use self::attendance::{Attendance, Turns};
pub(crate) use self::batch::{Batch, with as with_batch};
pub(crate) use self::drops::{Drops, Reason};
use self::groups::Groups;
use self::kept::Kept;
use self::neighbours::{Lock, Share, Slot};
use self::numbers::Numbers;
pub(crate) use self::served::Served;
use self::socket::Pressure;
pub(crate) use self::socket::{Arrived, ECN_CAPABLE, HOPS, PORT, Socket, TooLong};
pub(crate) use self::steering::DESCRIPTORS;
use self::steering::{MAX_SERVICES, SLOTS};
use self::timers::Timers;
pub(crate) use self::touched::Touched;
use self::visits::{Visit, Visits};
use crate::cm::{ConnectionTable, Services};
use crate::tuning::{KEEP, RECEIVE_OCTETS, RECEIVE_PACKETS, ROUNDS, SPIN};

/// The descriptors that a child made by fork(2) must close.
#[derive(Debug)]
pub(crate) struct RoceFds;

impl Owner for RoceFds {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// The engine of this process, and how many RNICs use it.
#[derive(Default)]
struct Shared {
    engine: Option<Arc<Engine>>,
    users: u32,
}

static SHARED: PerProcess<Mutex<Shared>> = PerProcess::new();

/// In errors.
const SERVICES: &str = "services of RoCE's port";

/// See the module's documentation.
pub(crate) struct Engine {
    begun: Instant,
    /// None before the first socket or number.
    slot: OnceLock<Slot>,
    sockets: RwLock<Vec<Arc<Socket>>>,
    /// Held while a socket is opened or a listener added, with [`Lock`].
    joining: Mutex<()>,
    pub(crate) numbers: Numbers,
    groups: Groups,
    timers: Timers,
    pub(crate) connections: ConnectionTable,
    pub(crate) services: Services,
    pub(crate) drops: Drops,
    /// Threads that may hold references to queue pairs.
    visits: Visits,
    /// Whether the engine's thread watches the sockets, or threads that poll receive.
    progress: Progress,
    attendance: Attendance,
    kept: Kept,
    /// Held by the thread that receives.
    receiving: Mutex<Box<[u8]>>,
    /// Wakes the engine's thread.
    bell: Ours<RoceFds, OwnedFd>,
}

impl Engine {
    /// The engine of this process, for one more RNIC.
    pub(crate) fn enter() -> VpResult<Arc<Self>> {
        let mut shared = lock(SHARED.get::<RoceFds>());
        let engine = match &shared.engine {
            Some(engine) => engine.clone(),
            None => {
                let engine = Self::start().map_err(|error| VpError::os("starting RoCE", &error))?;
                shared.engine = Some(engine.clone());
                engine
            }
        };
        shared.users += 1;
        Ok(engine)
    }

    /// Called after an RNIC is closed and its queue pairs are destroyed. When it returns, no thread uses them any
    /// more. After the last one the port and the slot are free, too, unless a connection is still being ended.
    pub(crate) fn leave(&self) {
        self.kept.flush();
        self.visits.wait_for_others();
        {
            let mut shared = lock(SHARED.get::<RoceFds>());
            shared.users -= 1;
            // There is no thread that would.
            if shared.users == 0 && self.slot.get().is_none() {
                shared.engine = None;
            }
        }
        self.wake();
        let has_name = || self.slot.get().is_some_and(|slot| slot.name().is_some());
        let is_ending = || {
            let shared = lock(SHARED.get::<RoceFds>());
            shared.users == 0 && has_name() && self.connections.is_empty()
        };
        let mut patience = Patience::default();
        while is_ending() && !self.visits.is_own() && patience.wait() {}
    }

    fn start() -> std::io::Result<Arc<Self>> {
        static EXIT: AtomicBool = AtomicBool::new(false);
        if !EXIT.swap(true, Ordering::Relaxed) {
            // If that fails, a peer may have to repeat its last requests in vain.
            let _ = kal_os::at_exit(settle_at_exit);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let buffer = room::try_filled(MAX_OCTETS, 0).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Self {
            begun: Instant::now(),
            sockets: RwLock::default(),
            joining: Mutex::default(),
            numbers: Numbers::new(),
            groups: Groups::default(),
            slot: OnceLock::new(),
            timers: Timers::default(),
            connections: ConnectionTable::default(),
            services: Services::default(),
            drops: Drops::default(),
            visits: Visits::default(),
            progress: Progress::new(),
            attendance: Attendance::default(),
            kept: Kept::default(),
            receiving: Mutex::new(buffer),
            bell: Ours::make(|| Ok(eventfd(0, flags)?))?,
        }))
    }

    /// This process's slot, which it takes if it has none. Then the engine's thread runs.
    fn joined(&self) -> VpResult<&Slot> {
        self.joined_within(SLOTS)
    }

    /// Takes a slot for listeners that stand aside, if this process has none: one of the first half, so that they leave
    /// the others to programs that use RoCE.
    pub(crate) fn join_aside(&self) -> VpResult<()> {
        self.joined_within(SLOTS / 2).map(drop)
    }

    /// A slot below `end`, or the one that this process has.
    fn joined_within(&self, end: u8) -> VpResult<&Slot> {
        if let Some(slot) = self.slot.get() {
            return Ok(slot);
        }
        let shared = lock(SHARED.get::<RoceFds>());
        // Objects of the application may keep an engine that is over.
        let own = |engine: &&Arc<Self>| std::ptr::eq(Arc::as_ptr(engine), self);
        let Some(engine) = shared.engine.as_ref().filter(own).cloned() else {
            return Err(VpError::new(VpStatus::InvalidHandle, "the device was closed"));
        };
        // Another thread may have taken it.
        if let Some(slot) = self.slot.get() {
            return Ok(slot);
        }
        let os = |error| VpError::os("starting RoCE", &error);
        let slot = Slot::take(end).map_err(os)?;
        self.numbers.begin(slot.index);
        // It waits for the lock before it sleeps, and then finds the slot.
        kal_os::spawn("roce", move || engine.run()).map_err(os)?;
        Ok(self.slot.get_or_init(|| slot))
    }

    /// Gives a queue pair a number that no other has.
    pub(crate) fn number(&self, qp: Weak<impl Served + 'static>) -> VpResult<u32> {
        self.joined()?;
        Ok(self.numbers.assign(qp))
    }

    /// Microseconds since the engine was created.
    pub(crate) fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// The socket at port 4791 of a local address; opened if it does not exist.
    pub(crate) fn socket(&self, local: IpAddr) -> VpResult<Arc<Socket>> {
        if let Some(socket) = self.find_socket(local) {
            return Ok(socket);
        }
        let slot = self.joined()?;
        let _joining = lock(&self.joining);
        // Another thread may have opened it.
        if let Some(socket) = self.find_socket(local) {
            return Ok(socket);
        }
        let _lock = Lock::take().map_err(|error| VpError::os("joining RoCE's port", &error))?;
        let (socket, shares) = Socket::open(local, slot)?;
        socket.steer(&self.services_at(local, slot, &shares)?, slot)?;
        let socket = Arc::new(socket);
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        sockets.push(socket.clone());
        drop(sockets);
        // So that the engine's thread polls the new socket.
        self.wake();
        Ok(socket)
    }

    fn find_socket(&self, local: IpAddr) -> Option<Arc<Socket>> {
        self.find(|own| own == local)
    }

    /// A socket of such an address.
    fn find(&self, is: impl Fn(IpAddr) -> bool) -> Option<Arc<Socket>> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().find(|socket| is(socket.local())).cloned()
    }

    /// All services at an address, with the slots that listen for them.
    fn services_at(
        &self,
        local: IpAddr,
        slot: &Slot,
        shares: &[Share],
    ) -> VpResult<Vec<(u32, u8)>> {
        let own = self.own_services(local)?.into_iter().map(|service| (service, slot.index));
        let theirs = shares.iter().flat_map(|Share { slot, services, .. }| {
            services.iter().map(|service| (*service, *slot))
        });
        let mut all = room::list(SERVICES, MAX_SERVICES)?;
        all.extend(own.chain(theirs).take(MAX_SERVICES));
        Ok(all)
    }

    /// The services that this process listens for at an address: the lower halves of their ids.
    fn own_services(&self, local: IpAddr) -> VpResult<Vec<u32>> {
        let mut all = room::list(SERVICES, MAX_SERVICES)?;
        self.connections.services(local, &mut all);
        self.services.services(local, &mut all);
        Ok(all)
    }

    /// Has `add` add a listener at these sockets. Requests for it come to this process from then on. `add` gets which
    /// services other processes listen for there. If that fails, `remove` removes the listener.
    pub(crate) fn announce<T>(
        &self,
        sockets: &[Arc<Socket>],
        add: impl FnOnce(&dyn Fn(u32) -> bool) -> VpResult<T>,
        remove: impl FnOnce(T),
    ) -> VpResult<T> {
        let slot = self.joined()?;
        let _joining = lock(&self.joining);
        let os = |error| VpError::os("listening at RoCE's port", &error);
        let _lock = Lock::take().map_err(os)?;
        let ask = |socket: &Arc<Socket>| slot.ask(socket.local()).map_err(os);
        let shares: Vec<Vec<Share>> = sockets.iter().map(ask).collect::<VpResult<_>>()?;
        let is_taken = |service| shares.iter().flatten().any(|one| one.services.contains(&service));
        let added = add(&is_taken)?;
        let steered = sockets.iter().zip(&shares).try_for_each(|(socket, shares)| {
            socket.steer(&self.services_at(socket.local(), slot, shares)?, slot)
        });
        match steered {
            Ok(()) => Ok(added),
            Err(error) => {
                remove(added);
                Err(error)
            }
        }
    }

    /// Replies to neighbours' questions.
    fn serve_neighbours(&self) {
        let Some(slot) = self.slot.get() else { return };
        slot.serve(|address| {
            let sockets = self.find_socket(address).and_then(|socket| socket.copies().ok());
            Some((sockets.unwrap_or_default(), self.own_services(address).ok()?))
        });
    }

    /// Whether there is a socket of such an address.
    pub(crate) fn has_socket(&self, is: impl Fn(IpAddr) -> bool) -> bool {
        self.find(is).is_some()
    }

    /// The socket of the address from which a peer is reached. Another process may have port 4791 of the loopback
    /// address; then another address of 127.0.0.0/8 is used, one that this process has or any that is free.
    pub(crate) fn socket_towards(&self, peer: SocketAddr) -> VpResult<Arc<Socket>> {
        const TRIES: u32 = 8;
        let local = self.local_address(peer)?;
        self.socket(local).or_else(|taken| {
            if !local.is_loopback() || local.is_ipv6() {
                return Err(taken);
            }
            if let Some(socket) = self.find(|own| own.is_ipv4() && own.is_loopback()) {
                return Ok(socket);
            }
            let other = || {
                let [_, b, c, d] = self.numbers.random().to_be_bytes();
                self.socket([127, b, c, d.clamp(1, 254)].into())
            };
            (0..TRIES).find_map(|_| other().ok()).ok_or(taken)
        })
    }

    /// The local address from which a peer is reached.
    pub(crate) fn local_address(&self, mut peer: SocketAddr) -> VpResult<IpAddr> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => [0, 0, 0, 0].into(),
            SocketAddr::V6(_) => [0u16; 8].into(),
        };
        peer.set_port(PORT);
        let route = UdpSocket::bind((any, 0)).and_then(|probe| {
            probe.connect(peer)?;
            probe.local_addr()
        });
        let route = route.map_err(|error| {
            VpError::new(VpStatus::Os, format!("there is no route to {}: {error}", peer.ip()))
        })?;
        Ok(route.ip())
    }

    /// Wakes the engine's thread.
    pub(crate) fn wake(&self) {
        // If the eventfd is full, the thread wakes up all the same.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    /// Has [`Served::on_timer`] called for the queue pair with this number, at that time or somewhat earlier.
    pub(crate) fn set_timer(&self, at: u64, number: u32) {
        if self.timers.set(at, number) {
            self.wake();
        }
    }

    /// A thread relies on the engine's thread for completions from now on, until [`Engine::end_events`].
    pub(crate) fn begin_events(&self) {
        self.rest();
        self.kept.flush();
        if self.progress.rely() {
            self.wake();
        }
    }

    /// A thread will wait for an event.
    pub(crate) fn rest(&self) {
        self.attendance.restart();
    }

    /// Whether requests and acknowledgements may be kept: [`Served::settle`] is called soon.
    pub(crate) fn may_keep(&self) -> bool {
        self.kept.may_keep()
    }

    /// Has [`Served::settle`] called soon. Called without locks.
    pub(crate) fn keep(&self, qp: &Arc<dyn Served>) {
        if !self.kept.add(qp, self.now()) {
            self.kept.flush();
        }
    }

    /// Whether threads poll all the time.
    pub(crate) fn is_polled(&self) -> bool {
        self.attendance.lasts()
    }

    /// A thread polls, and finds what others received. What is kept leaves, as the thread may poll its memory next.
    pub(crate) fn attend(&self) {
        drop(self.begin_poll());
    }

    fn begin_poll(&self) -> Visit<'_> {
        self.attendance.poll();
        let visit = self.visits.begin();
        self.kept.flush();
        visit
    }

    /// The thread polls instead.
    pub(crate) fn end_events(&self) {
        self.progress.withdraw();
    }

    /// For a thread that polls: receives what has arrived, unless another thread is receiving. Called without locks.
    pub(crate) fn poll(&self) {
        let _visit = self.begin_poll();
        match self.receiving.try_lock() {
            Err(TryLockError::WouldBlock) if self.attendance.refuse() => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => {}
            Ok(receiving) => self.attendance.received(self.receive(receiving)),
            Err(TryLockError::Poisoned(receiving)) => {
                self.attendance.received(self.receive(receiving.into_inner()));
            }
        }
    }

    /// Returns whether anything arrived.
    fn receive(&self, mut buffer: MutexGuard<'_, Box<[u8]>>) -> bool {
        let mut any = false;
        let mut touched = Touched::default();
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.iter() {
            let (mut octets, mut packets) = (0, 0);
            let is_full = |octets, packets| octets >= RECEIVE_OCTETS || packets >= RECEIVE_PACKETS;
            while !is_full(octets, packets)
                && let Some(together) = socket.receive(&mut buffer)
            {
                any = true;
                (octets, packets) = (octets + together.len(), packets + together.packets());
                // Only then may more wait. Senders are told to slow down before packets are lost.
                let pressure = match is_full(octets, packets) {
                    true => socket.pressure(),
                    false => Pressure::default(),
                };
                if pressure.overruns != 0 {
                    self.drops.add(Reason::Overrun, pressure.overruns);
                }
                let now = self.now();
                for arrived in together.each(pressure.crowded) {
                    self.dispatch(now, socket, &arrived, &mut touched);
                }
            }
        }
        drop(sockets);
        drop(buffer);
        touched.settle(self);
        any
    }

    fn dispatch(
        &self,
        now: u64,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        touched: &mut Touched,
    ) {
        let stray = || self.drops.count(Reason::Stray);
        let Ok(packet) = Packet::parse(arrived.datagram) else { return stray() };
        // [IBRC-27]
        if packet.headers.bth.pkey & DEFAULT_PKEY >> 1 != DEFAULT_PKEY >> 1 {
            return stray();
        }
        let number = packet.headers.bth.destination;
        if number == QPN && !socket.is_group() {
            return self.message(socket, arrived, &packet, touched);
        }
        // [IBUD-04]
        if socket.is_group() {
            if number != MULTICAST_QPN {
                return stray();
            }
            return self.groups.each(socket.local(), |qp| {
                qp.receive(now, socket, arrived, &packet);
                touched.add(qp);
            });
        }
        let Some(qp) = touched.find(number, &self.numbers) else { return stray() };
        let unconfirmed = qp.receive(now, socket, arrived, &packet);
        if let Some(id) = unconfirmed {
            self.connections.confirm(self, id, touched);
        }
    }

    /// Handles a message of the connection manager.
    fn message(
        &self,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        packet: &Packet<'_>,
        touched: &mut Touched,
    ) {
        if !socket.is_whole(arrived, false) {
            return self.drops.count(Reason::Damaged);
        }
        let mad = ud::accept(packet, QKEY, mad::LEN)
            .ok()
            .and_then(|incoming| Mad::parse(incoming.payload).ok());
        match mad {
            Some(mad) => self.connections.handle(self, socket, arrived.from.ip(), &mad, touched),
            None => self.drops.count(Reason::Stray),
        }
    }

    /// The main loop of the engine's thread.
    fn run(self: Arc<Self>) {
        // Without it a short sleep takes twice its time.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let (mut turns, mut woken) = (Turns::default(), Woken::default());
        let (spinner, mut arrived, mut rounds) = (Spinner::default(), false, 0);
        loop {
            let visit = self.visits.begin();
            self.kept.flush_late(self.now());
            // Threads that poll have the packets sooner.
            if turns.away().is_none() {
                // Not by `try_lock`: this thread would spin until the other goes on.
                arrived |= self.receive(lock(&self.receiving));
            }
            let mut touched = Touched::default();
            let now = self.now();
            while let Some((at, number)) = self.timers.due(now) {
                if let Some(qp) = self.numbers.find(number) {
                    qp.on_timer(at, now);
                    touched.add(qp);
                }
            }
            self.connections.run(&self, now, &mut touched);
            self.services.run(now, &mut touched);
            touched.settle(&self);
            drop(visit);
            if woken.asked {
                self.serve_neighbours();
            }
            if self.is_over() {
                return;
            }
            if turns.away().is_some() {
                self.progress.mark_polled();
            }
            // Threads that poll receive for one that relies on this thread, too, as long as they poll.
            self.progress.decide(|| false);
            arrived = arrived && rounds < ROUNDS && turns.away().is_none() && self.spin(&spinner);
            if arrived {
                (rounds, woken) = (rounds + 1, Woken::default());
                continue;
            }
            rounds = 0;
            turns.sleep(&self.attendance);
            woken = self.sleep(turns.away());
            self.progress.end_wait();
            turns.wake(&self.attendance, woken.packets, self.progress.is_relied_on());
        }
    }

    /// Packets mostly follow each other: looks for more for a moment, as waking a thread takes its peer's time, too.
    /// Returns whether any arrived.
    fn spin(&self, spinner: &Spinner) -> bool {
        let _visit = self.visits.begin();
        let mut spin = spinner.begin(SPIN);
        while spin.again() {
            if self.receive(lock(&self.receiving)) {
                return true;
            }
            self.kept.flush_late(self.now());
        }
        false
    }

    /// Ends the engine if no RNIC is open and no connection is being ended. True if it has ended.
    fn is_over(&self) -> bool {
        let mut shared = lock(SHARED.get::<RoceFds>());
        let over = shared.users == 0 && self.connections.is_empty();
        if over {
            // Under the lock, so that the next engine finds the port and the slot free.
            if let Some(slot) = self.slot.get() {
                slot.leave();
            }
            self.connections.clear();
            self.sockets.write().unwrap_or_else(PoisonError::into_inner).clear();
            shared.engine = None;
        }
        over
    }

    /// Sleeps until a packet arrives, until the next deadline, or until [`Engine::wake`]. For the time of `back_off`
    /// the packets are those of threads that poll.
    fn sleep(&self, back_off: Option<Duration>) -> Woken {
        let mut sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner).clone();
        if back_off.is_some() {
            sockets.clear();
        }
        let next = [self.timers.next(), self.connections.next(), self.services.next()];
        let next = next.into_iter().flatten().min();
        let left = next.map(|at| Duration::from_micros(at.saturating_sub(self.now())));
        let most = back_off.or_else(|| (!self.kept.begin_sleep()).then_some(KEEP));
        let left = [left, most].into_iter().flatten().min();
        let (name, bell) = (self.slot.get().and_then(Slot::name), sockets.len());
        let mut fds: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|socket| socket.as_fd())
            .chain([self.bell.as_fd()])
            .chain(name.as_deref().map(|name| name.as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // Signals are blocked in this thread. A failure is treated as a wake-up.
        let _ = poll(&mut fds, left.map(timespec).as_ref());
        self.kept.end_sleep();
        let woken = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if woken(&fds[bell]) {
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        }
        Woken {
            packets: fds[..bell].iter().any(woken),
            asked: fds.get(bell + 1).is_some_and(woken),
        }
    }
}

/// How the engine's thread slept.
#[derive(Clone, Copy, Default)]
struct Woken {
    /// Packets arrived.
    packets: bool,
    /// Neighbours ask.
    asked: bool,
}

/// The process exits, perhaps because of a completion that another thread has added: the acknowledgement, which that
/// thread sends next, still leaves.
extern "C" fn settle_at_exit() {
    let engine = SHARED.get::<RoceFds>().try_lock().ok().and_then(|shared| shared.engine.clone());
    if let Some(engine) = engine {
        engine.kept.flush();
        engine.visits.wait_for_others();
    }
}
