//! The waiting end of the rendezvous: binds its name, takes only the peer's offer, and waits for the
//! confirmation.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use kal_os::fork::Foreign;
use rustix::net::{SendFlags, SocketFlags, accept_with, send, sockopt};

use super::memory::is_eventfd;
use super::message::{Kind, decode, encode};
use super::place::Bound;
use super::receive::{OFFERED, receive};
use super::{Connection, Met, NotLocal, Place, owner};
use crate::fork::{Host, take};

/// Callers that are not the peer before the name is given up.
const STRANGERS: u32 = 16;

/// Watches a descriptor that came with a caller.
pub type Watch<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> std::io::Result<()>;

/// A name that is bound for one connection.
#[derive(Debug)]
pub struct Waiting {
    place: Place,
    connection: Connection,
    wishes: u8,
    /// `None` when no caller is accepted any more.
    bound: Option<Bound>,
    caller: Option<Caller>,
    pub(super) strangers: u32,
    /// The last failure.
    pub(super) last: NotLocal,
    met: Option<Met>,
}

/// A caller that owns the peer's TCP socket.
#[derive(Debug)]
struct Caller {
    socket: Foreign<Host>,
    offered: Option<Met>,
}

/// What a caller did.
enum Did {
    Nothing,
    Agreed(Met),
    Go,
    Wrong(NotLocal),
}

impl Waiting {
    /// Binds the name of a connection's waiting end, which has these `wishes`.
    ///
    /// # Errors
    /// Why the name cannot be bound.
    pub fn bind(place: Place, connection: Connection, wishes: u8) -> Result<Self, NotLocal> {
        let bound = Some(place.bind(&connection)?);
        let last = NotLocal::PeerPlain;
        let (caller, met) = (None, None);
        Ok(Self { place, connection, wishes, bound, caller, strangers: 0, last, met })
    }

    /// The descriptor to watch at first, for reading.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.bound.as_ref().map(|bound| bound.socket.as_fd())
    }

    /// Whether the peer has confirmed.
    pub fn is_met(&self) -> bool {
        self.met.is_some()
    }

    /// Handles all callers that are ready. `verify`: checks the memory. `watch`: registers a descriptor, so
    /// that this is called again when it is readable; earlier ones are closed here when they have ended.
    pub fn advance(&mut self, verify: impl Fn(BorrowedFd<'_>) -> bool, watch: Watch<'_>) {
        loop {
            let Some(caller) = &mut self.caller else {
                match self.accept_next(watch) {
                    true => continue,
                    false => return,
                }
            };
            match caller.receive(&self.connection, self.wishes, &verify) {
                Did::Nothing => return,
                Did::Agreed(met) => caller.offered = Some(met),
                Did::Go => {
                    self.met = self.caller.take().and_then(|caller| caller.offered);
                    self.bound = None;
                    return;
                }
                Did::Wrong(why) => self.drop_caller(why),
            }
        }
    }

    /// Takes the next caller, and keeps it if it is the peer; false: no caller waits.
    fn accept_next(&mut self, watch: Watch<'_>) -> bool {
        let Some(bound) = &self.bound else { return false };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = Foreign::make(|| Ok(accept_with(&bound.socket, flags)?));
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            // Otherwise the name would stay readable.
            Err(error) => {
                (self.last, self.bound) = (error.into(), None);
                return false;
            }
        };
        let Connection { waiting, dialling } = self.connection;
        let known = is_peer(&self.place, &socket, dialling, waiting)
            .and_then(|()| Ok(watch(socket.as_fd())?));
        match known {
            Ok(()) => self.caller = Some(Caller { socket, offered: None }),
            Err(why) => self.count_stranger(why),
        }
        true
    }

    fn drop_caller(&mut self, why: NotLocal) {
        if let Some(caller) = self.caller.take() {
            // It may have left.
            let refusal = encode(Kind::Refuse, self.wishes, &self.connection);
            let _ = send(&caller.socket, &refusal, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        self.count_stranger(why);
    }

    fn count_stranger(&mut self, why: NotLocal) {
        self.last = why;
        self.strangers += 1;
        if self.strangers >= STRANGERS {
            self.bound = None;
        }
    }

    /// Ends the wait: returns the shared memory if the peer has confirmed, else the reason.
    ///
    /// # Errors
    /// The reason.
    pub fn finish(self) -> Result<Met, NotLocal> {
        self.met.ok_or(match self.caller {
            // The peer connected, and did not continue.
            Some(_) => NotLocal::TimedOut,
            None => self.last,
        })
    }
}

impl Caller {
    fn receive(
        &self,
        connection: &Connection,
        wishes: u8,
        verify: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Did {
        let message = match receive(&self.socket) {
            Ok(None) => return Did::Nothing,
            Ok(Some(message)) => message,
            Err(why) => return Did::Wrong(why),
        };
        let passed = message.passed;
        let Some(message) = decode(&message.octets, connection) else {
            return Did::Wrong(NotLocal::PeerMalformed);
        };
        match (message.kind, &self.offered) {
            _ if !message.is_ours => Did::Wrong(NotLocal::OtherConnection),
            (Kind::Offer, None) => {
                let agree = encode(Kind::Agree, wishes, connection);
                self.take_offer(passed, message.wishes, &agree, verify)
            }
            (Kind::Go, Some(_)) if passed.is_empty() => Did::Go,
            _ => Did::Wrong(NotLocal::PeerMalformed),
        }
    }

    fn take_offer(
        &self,
        passed: Vec<Foreign<Host>>,
        peer_wishes: u8,
        agree: &[u8],
        verify: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Did {
        let Ok([memory, bells @ ..]) = <[Foreign<Host>; OFFERED]>::try_from(passed) else {
            return Did::Wrong(NotLocal::PeerMalformed);
        };
        if !verify(memory.as_fd()) || !bells.iter().all(is_eventfd) {
            return Did::Wrong(NotLocal::BadMemory);
        }
        let memory = memory.into_harmless();
        let [doorbell, peer_doorbell] = bells.map(Foreign::into_harmless);
        // Without memory to record them, a child keeps them, which does no other harm.
        [&memory, &doorbell, &peer_doorbell].into_iter().for_each(|fd| _ = take(fd));
        match send(&self.socket, agree, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => Did::Agreed(Met { memory, doorbell, peer_doorbell, peer_wishes }),
            Err(_) => Did::Wrong(NotLocal::PeerLeft),
        }
    }
}

/// Whether the process at the other end of a unix socket is the owner of the TCP socket that is bound to `local`
/// and connected to `remote`.
pub(super) fn is_peer(
    place: &Place,
    socket: impl AsFd,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<(), NotLocal> {
    let uid = sockopt::socket_peercred(socket)?.uid.as_raw();
    let due = match place {
        Place::Abstract(_) => owner(local, remote)?,
        Place::Directory(..) => rustix::process::geteuid().as_raw(),
    };
    if uid == due { Ok(()) } else { Err(NotLocal::OtherUser) }
}
