//! What the captured process writes: records in shared memory ([`ual::vp_api::capture`]), read by one thread.
//!
//! The process is hostile: the memory checks its positions, and records are verified. It does not wake this command
//! while records follow each other within [`PAUSE`]: each wake-up would take the processor from it. It dies with its
//! socket; what it wrote before is read first.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType,
};
use shm_ring::{End, MAX_RING, Side};
use ual::vp_api::capture::{CONTENT_MAX, RECORD_LEN, Record};

use crate::error::{CliError, CliResult, Exit};

/// How long to wait for records before checking for an interrupt.
const STEP: Duration = Duration::from_millis(100);
/// How long not to look for records after some were read. The memory has room for 10 ms of the shortest FPDUs.
const PAUSE: Duration = Duration::from_millis(1);
/// Octets to read at once: several of the longest records.
const PART: usize = 4 * (RECORD_LEN + CONTENT_MAX);

pub(super) struct Feed {
    ring: End,
    socket: OwnedFd,
    part: Vec<u8>,
    /// Octets of `part` that are the begin of a record.
    rest: usize,
    /// Nothing was read since the last wait.
    idle: bool,
    ended: bool,
}

impl Feed {
    /// A feed, and the socket for the process.
    pub(super) fn new() -> CliResult<(Self, OwnedFd)> {
        let memory = shm_ring::create(MAX_RING).map_err(|error| {
            CliError::new(Exit::Failed, "there is no memory for the capture")
                .because(format!("two rings of {} MiB: {error}", MAX_RING >> 20))
                .hint("free memory, or raise the limits (`ulimit -v`, `ulimit -f`)")
        })?;
        let ring = End::map(&memory, Side::Maker).map_err(io::Error::other)?;
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
            .map_err(io::Error::from)?;
        pass(&socket, &memory)?;
        let part = vec![0; PART];
        Ok((Self { ring, socket, part, rest: 0, idle: true, ended: false }, theirs))
    }

    /// Reads some records; false if there are none.
    pub(super) fn read(
        &mut self,
        mut each: impl FnMut(&Record<'_>) -> CliResult<()>,
    ) -> CliResult<bool> {
        let read =
            self.ring.read_slice(&mut self.part[self.rest..], || ()).map_err(|_| broken())?;
        let len = self.rest + read;
        let mut rest = &self.part[..len];
        while let Some(record) = Record::take(&mut rest).map_err(|_| broken())? {
            each(&record)?;
        }
        self.rest = rest.len();
        self.part.copy_within(len - self.rest..len, 0);
        self.idle &= read == 0;
        Ok(read > 0)
    }

    /// Waits for records, for [`STEP`] at most.
    pub(super) fn wait(&mut self) -> CliResult<()> {
        if !std::mem::replace(&mut self.idle, true) {
            std::thread::sleep(PAUSE);
            return Ok(());
        }
        if !self.ring.fall_asleep(false, || ()).map_err(|_| broken())? {
            let step = Timespec::try_from(STEP).unwrap_or_default();
            match rustix::event::poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&step))
            {
                Ok(_) | Err(Errno::INTR) => {}
                Err(other) => return Err(io::Error::from(other).into()),
            }
        }
        self.ring.wake();
        self.take_octets()
    }

    /// Whether the process has ended, or has ended the capture: what [`Feed::read`] does not find does not follow.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Removes the octets of wake-ups from the socket.
    fn take_octets(&mut self) -> CliResult<()> {
        let mut octets = [0; 8];
        loop {
            match rustix::net::recv(&self.socket, &mut octets[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => {
                    // Records may have followed the last read.
                    self.ended = true;
                    return Ok(());
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(other) => return Err(io::Error::from(other).into()),
            }
        }
    }
}

fn broken() -> CliError {
    CliError::new(
        Exit::Failed,
        "the process wrote no records of FPDUs into the memory of the capture",
    )
    .because("it is of another version, or something overwrote the memory")
}

/// Sends an octet, and the memory beside it.
fn pass(socket: &OwnedFd, memory: &OwnedFd) -> io::Result<()> {
    let descriptors = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut beside, flags)?;
    Ok(())
}
