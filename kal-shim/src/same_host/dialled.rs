//! The end that dials: finds the peer's name, offers memory, and has the last word.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};

use super::message::{Kind, LEN, decode, encode};
use super::waiting::is_peer;
use super::{Connection, Met, NotLocal, Place};

/// A peer that was found, and may not have agreed yet.
#[derive(Debug)]
pub struct Dialled {
    socket: OwnedFd,
    connection: Connection,
    wishes: u8,
    met: Met,
}

impl Dialled {
    /// Looks for the peer; `make` makes memory and doorbells once it is found, which are offered to it with
    /// the `wishes` of this end.
    ///
    /// # Errors
    /// Why there will be no meeting; nothing waits for this end then.
    pub fn dial(
        place: &Place,
        connection: Connection,
        wishes: u8,
        make: impl FnOnce() -> Result<(OwnedFd, [OwnedFd; 2]), NotLocal>,
    ) -> Result<Self, NotLocal> {
        let socket = place.dial(connection.waiting)?;
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

    /// To be watched until [`Dialled::advance`] has returned something: it becomes readable.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the peer has agreed; `None`: it has not said so yet.
    pub fn advance(&mut self) -> Option<Result<(), NotLocal>> {
        let mut octets = [0; LEN + 1];
        let len = loop {
            match recv(&self.socket, &mut octets[..], RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(errno) => return Some(Err(gone(errno))),
                Ok((_, 0)) => return Some(Err(NotLocal::PeerLeft)),
                Ok((_, len)) => break len,
            }
        };
        let Some(message) = decode(octets.get(..len).unwrap_or(&[]), &self.connection) else {
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

    /// The last word: what follows goes through the memory. To be said before anything on TCP that has the
    /// peer look whether it was said.
    ///
    /// # Errors
    /// The peer has left; what follows goes over TCP.
    pub fn go(self) -> Result<Met, NotLocal> {
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
        // As many descriptors on their way as the system allows.
        Errno::TOOMANYREFS => NotLocal::NoDescriptors,
        other => other.into(),
    }
}
