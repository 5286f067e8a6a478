//! Receives the messages of the rendezvous from a peer that may pass any descriptors beside them.
//!
//! A message is looked at first (`MSG_PEEK`), and removed only when this process has copies of all its descriptors, or it has
//! none. So the kernel never discards a descriptor in the calling thread, which could wait for that as long as the peer
//! likes; a message that stays is discarded with its socket ([`Foreign`]).

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use kal_os::fork::Foreign;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg,
};

use super::NotLocal;
use super::message::LEN;
use crate::fork::Host;

/// The descriptors of an offer.
pub(super) const OFFERED: usize = 3;

/// A message.
pub(super) struct Received {
    /// One octet more than a message has: then it is malformed.
    pub(super) octets: Vec<u8>,
    pub(super) passed: Vec<Foreign<Host>>,
}

/// The next message; `None`: there is none yet. Does not block. After an error the socket is of no use.
pub(super) fn receive(socket: impl AsFd) -> Result<Option<Received>, NotLocal> {
    let mut octets = [0; LEN + 1];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(OFFERED))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::PEEK;
    let looked = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut octets)], &mut control, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(NotLocal::PeerLeft),
            Err(errno) => return Err(errno.into()),
            Ok(looked) => break looked,
        }
    };
    let mut passed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            passed.extend(rights.map(Foreign::received));
        }
    }
    if looked.flags.contains(ReturnFlags::CTRUNC) {
        // More than are expected, or this process has no descriptors left.
        let few = passed.len() < OFFERED;
        return Err(if few { NotLocal::NoDescriptors } else { NotLocal::PeerMalformed });
    }
    if looked.bytes == 0 {
        return Err(NotLocal::PeerLeft);
    }
    // The same message: there is no other reader.
    let _ = recv(&socket, &mut [0; 0][..], RecvFlags::DONTWAIT);
    Ok(Some(Received { octets: octets[..looked.bytes.min(LEN + 1)].to_vec(), passed }))
}
