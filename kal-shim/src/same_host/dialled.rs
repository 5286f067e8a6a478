//! The dialling end of the rendezvous: finds the peer's name, offers memory, and confirms.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kal_os::fork::Foreign;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use super::message::{Kind, decode, encode};
use super::receive::{Received, receive};
use super::waiting::is_peer;
use super::{Connection, Met, NotLocal, Place};
use crate::fork::Host;

/// A peer that was found and may not have agreed yet.
#[derive(Debug)]
pub struct Dialled {
    socket: Foreign<Host>,
    connection: Connection,
    wishes: u8,
    met: Met,
}

impl Dialled {
    /// Looks for the peer; once it is found, `make` creates memory and doorbells, which are offered to it with
    /// the `wishes` of this end.
    ///
    /// # Errors
    /// Why there is no rendezvous; the peer does not wait for this end then.
    pub fn dial(
        place: &Place,
        connection: Connection,
        wishes: u8,
        make: impl FnOnce() -> Result<(OwnedFd, [OwnedFd; 2]), NotLocal>,
    ) -> Result<Self, NotLocal> {
        let socket = place.dial(&connection)?;
        is_peer(place, &socket, connection.waiting, connection.dialling)?;
        let (memory, [doorbell, peer_doorbell]) = make()?;
        let met = Met { memory, doorbell, peer_doorbell, peer_wishes: 0 };
        let dialled = Self { socket, connection, wishes, met };
        dialled.offer()?;
        Ok(dialled)
    }

    fn offer(&self) -> Result<(), NotLocal> {
        let met = &self.met;
        let fds = [met.memory.as_fd(), met.peer_doorbell.as_fd(), met.doorbell.as_fd()];
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let octets = encode(Kind::Offer, self.wishes, &self.connection);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&self.socket, &[IoSlice::new(&octets)], &mut control, flags);
        sent.map(drop).map_err(gone)
    }

    /// The descriptor to watch for reading until [`Dialled::advance`] returns a result.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the peer has agreed; `None`: not known yet.
    pub fn advance(&mut self) -> Option<Result<(), NotLocal>> {
        let octets = match receive(&self.socket) {
            Ok(None) => return None,
            Err(why) => return Some(Err(why)),
            Ok(Some(Received { octets, passed })) if passed.is_empty() => octets,
            Ok(Some(_)) => return Some(Err(NotLocal::PeerMalformed)),
        };
        let Some(message) = decode(&octets, &self.connection) else {
            return Some(Err(NotLocal::PeerMalformed));
        };
        self.met.peer_wishes = message.wishes;
        Some(match message.kind {
            _ if !message.is_ours => Err(NotLocal::OtherConnection),
            Kind::Agree => Ok(()),
            Kind::Refuse => Err(NotLocal::PeerRefused),
            Kind::Offer | Kind::Go => Err(NotLocal::PeerMalformed),
        })
    }

    /// Confirms that the stream continues in the memory. To be sent before anything on TCP that makes the peer
    /// check for it.
    ///
    /// # Errors
    /// The peer has left; the stream stays on TCP.
    pub fn finish(self) -> Result<Met, NotLocal> {
        let octets = encode(Kind::Go, self.wishes, &self.connection);
        match send(&self.socket, &octets, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => Ok(self.met),
            Err(errno) => Err(gone(errno)),
        }
    }
}

fn gone(errno: Errno) -> NotLocal {
    match errno {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => NotLocal::PeerLeft,
        // The system's limit of descriptors in flight is reached.
        Errno::TOOMANYREFS => NotLocal::NoDescriptors,
        other => other.into(),
    }
}
