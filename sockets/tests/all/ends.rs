//! Two equal worlds of connections, one made and used by system calls and one through the library; and a wait until the
//! kernel has delivered everything in both. Owner: the test's stack; one thread.

use std::ffi::c_int;

use libc::{POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP};
use warpline_patience::Bound;

use crate::lane::{LANES, Lane, Outcome};

/// A descriptor of each lane.
pub(crate) type Fds = [c_int; 2];

/// One end of a connection.
pub(crate) struct End {
    /// Duplicates; none: it is closed.
    pub(crate) fds: Vec<Fds>,
    pub(crate) peer: usize,
    /// Whether it connected.
    pub(crate) active: bool,
    pub(crate) sent: u64,
    pub(crate) taken: u64,
    /// Whether it no longer sends.
    pub(crate) is_shut: bool,
    /// Whether it has sent to a peer that is closed.
    pub(crate) reset_due: bool,
    /// Whether urgent octets were sent or taken at either end.
    pub(crate) urgent: bool,
    pub(crate) blocks: bool,
    /// Calls that sent since the peer took anything.
    pub(crate) queued: u32,
    /// Addresses of the library's lane, as in the record.
    pub(crate) names: [String; 2],
}

impl End {
    pub(crate) fn is_open(&self) -> bool {
        !self.fds.is_empty()
    }
}

/// The ends, of which each has its peer beside it.
#[derive(Default)]
pub(crate) struct Ends(pub(crate) Vec<End>);

/// What of TCP_INFO shows whether all has arrived: state, octets acknowledged, and received.
fn info(fd: c_int) -> (u8, u64, u64) {
    let mut all = [0_u8; 136];
    let mut len = 136;
    let at = all.as_mut_ptr().cast();
    let done = Lane::Kernel.getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len);
    assert_eq!(done, 0);
    let word = |at: usize| u64::from_ne_bytes(all[at..at + 8].try_into().unwrap());
    (all[0], word(120), word(128))
}

pub(crate) fn queue(lane: Lane, fd: c_int, request: libc::Ioctl) -> i64 {
    let mut octets: c_int = -1;
    let done = lane.ioctl(fd, request, (&raw mut octets).cast());
    assert_eq!(done, 0);
    i64::from(octets)
}

/// What it is ready for.
pub(crate) fn ready(lane: Lane, fd: c_int) -> i16 {
    let events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP;
    let mut one = libc::pollfd { fd, events, revents: 0 };
    let count = lane.poll(&raw mut one, 1, 0);
    assert_eq!(count, Outcome::from(one.revents != 0));
    one.revents
}

const CLOSED: u8 = 7;
/// States in which an end was sent: FIN_WAIT1, LAST_ACK, CLOSING.
const UNACKNOWLEDGED: [u8; 3] = [4, 9, 11];

impl Ends {
    /// Waits until what both ends did has arrived in both lanes, and both lanes show the same.
    pub(crate) fn settle(&self, end: usize) {
        let pair = [end, self.0[end].peer];
        let bound = Bound::new("a connection that is the same with and without the library");
        loop {
            let arrived = |lane| {
                pair.iter().all(|it| self.has_arrived(*it, lane)) && self.is_through(pair, lane)
            };
            if (0..2).all(arrived) && pair.iter().all(|it| self.state(*it, 0) == self.state(*it, 1))
            {
                return;
            }
            let show = pair.map(|it| [0, 1].map(|lane| self.state(it, lane)));
            if std::panic::catch_unwind(|| bound.check()).is_err() {
                panic!("the lanes differ: octets to read and readiness of {pair:?}: {show:?}");
            }
            std::thread::yield_now();
        }
    }

    /// Octets to read, and readiness.
    fn state(&self, end: usize, lane: usize) -> Option<(i64, i16)> {
        let fd = self.0[end].fds.first()?[lane];
        Some((queue(LANES[lane], fd, libc::FIONREAD), ready(LANES[lane], fd)))
    }

    /// Whether the end of the peer has arrived at an end, and the peer has acknowledged this one's.
    fn has_arrived(&self, end: usize, lane: usize) -> bool {
        let (this, peer) = (&self.0[end], &self.0[self.0[end].peer]);
        let Some(fds) = this.fds.first() else { return true };
        let seen = ready(Lane::Kernel, fds[lane]);
        let ended = !peer.is_open() || peer.is_shut;
        // An acknowledgement, which may be late, is an edge.
        let acknowledged = !UNACKNOWLEDGED.contains(&info(fds[lane]).0);
        (!ended || seen & POLLRDHUP != 0)
            && (!this.reset_due || seen & POLLHUP != 0)
            && acknowledged
    }

    /// Whether all octets between two open ends have arrived.
    fn is_through(&self, pair: [usize; 2], lane: usize) -> bool {
        let ends = pair.map(|it| &self.0[it]);
        let [Some(a), Some(b)] = ends.map(|end| end.fds.first().map(|fds| fds[lane])) else {
            return true;
        };
        let [of_a, of_b] = [a, b].map(info);
        if of_a.0 == CLOSED || of_b.0 == CLOSED {
            return true;
        }
        let written = |(_, acked, _): (u8, u64, u64), fd, active| {
            acked + queue(Lane::Kernel, fd, libc::TIOCOUTQ) as u64 - u64::from(active)
        };
        written(of_a, a, ends[0].active) == of_b.2 && written(of_b, b, ends[1].active) == of_a.2
    }
}
