//! Work requests: operation, memory and flags. Built by value, then posted with [`crate::Ep::post`], which
//! takes the memory. No state.

use std::sync::Arc;

use vp_api::{Access, Addressing, AtomicOp, SendFlags, Sge, Stag};

use crate::buffer::Buffer;
use crate::error::Result;
use crate::lmr::{Lmr, LmrRange};
use crate::remote::{RemoteRange, RmrContext};
use crate::rmr::Rmr;

/// Local memory of a work request, in order.
#[derive(Debug, Default)]
pub struct Local(pub(crate) Parts);

#[derive(Debug, Default)]
pub(crate) enum Parts {
    #[default]
    None,
    One(Part),
    /// Never shared. The content of an `Arc` is dropped by a call, which keeps the drop of completions short: they
    /// mostly have no piece or one.
    Many(Arc<Vec<Part>>),
}

/// One piece of local memory.
#[derive(Debug)]
pub(crate) enum Part {
    Buffer(Buffer),
    Range(LmrRange),
}

impl Part {
    /// Its capacity in octets.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.capacity(),
            Self::Range(range) => range.len(),
        }
    }

    /// The first `len` octets, at most all, as a scatter/gather element.
    pub(crate) fn sge(&self, len: usize) -> Result<Sge> {
        match self {
            Self::Buffer(buffer) => buffer.sge(len),
            Self::Range(range) => range.sge(len),
        }
    }
}

impl Local {
    /// Its pieces.
    pub(crate) fn parts(&self) -> &[Part] {
        match &self.0 {
            Parts::None => &[],
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// The first buffer in it, if there is one.
    #[inline]
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.0 {
            Parts::One(Part::Buffer(buffer)) => Some(buffer),
            Parts::None | Parts::One(Part::Range(_)) => None,
            Parts::Many(_) => self.into_buffers().next(),
        }
    }

    /// The buffers in it, in order.
    pub fn into_buffers(self) -> impl Iterator<Item = Buffer> {
        let (one, many) = match self.0 {
            Parts::None => (None, Vec::new()),
            Parts::One(part) => (Some(part), Vec::new()),
            Parts::Many(parts) => (None, Arc::into_inner(parts).unwrap_or_default()),
        };
        one.into_iter().chain(many).filter_map(|part| match part {
            Part::Buffer(buffer) => Some(buffer),
            Part::Range(_) => None,
        })
    }

    /// Sets the lengths of the buffers, first to last, for `octets` that arrived.
    #[inline(never)] // so that completions of sends need fewer registers
    pub(crate) fn set_received(&mut self, mut octets: usize) {
        let parts = match &mut self.0 {
            Parts::None => return,
            Parts::One(part) => std::slice::from_mut(part),
            Parts::Many(parts) => match Arc::get_mut(parts) {
                Some(parts) => parts,
                None => return,
            },
        };
        for part in parts {
            if let Part::Buffer(buffer) = part {
                buffer.set_len(octets);
            }
            octets = octets.saturating_sub(part.room());
        }
    }
}

impl From<Buffer> for Local {
    fn from(buffer: Buffer) -> Self {
        Self(Parts::One(Part::Buffer(buffer)))
    }
}

impl From<LmrRange> for Local {
    fn from(range: LmrRange) -> Self {
        Self(Parts::One(Part::Range(range)))
    }
}

impl From<&Lmr> for Local {
    fn from(lmr: &Lmr) -> Self {
        lmr.whole().into()
    }
}

impl From<Vec<Buffer>> for Local {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self(Parts::Many(Arc::new(buffers.into_iter().map(Part::Buffer).collect())))
    }
}

impl From<Vec<LmrRange>> for Local {
    fn from(ranges: Vec<LmrRange>) -> Self {
        Self(Parts::Many(Arc::new(ranges.into_iter().map(Part::Range).collect())))
    }
}

/// Payload of an outgoing work request: registered memory, or octets copied while posting.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Registered memory, returned by the completion.
    Memory(Local),
    /// Octets to copy; at most [`crate::EpBuilder::max_inline`].
    Inline(&'a [u8]),
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self::Inline(octets)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(octets: &'a [u8; N]) -> Self {
        Self::Inline(octets)
    }
}

impl<L: Into<Local>> From<L> for Payload<'_> {
    fn from(local: L) -> Self {
        Self::Memory(local.into())
    }
}

/// A work request for the send queue.
///
/// Signalled unless [`Work::unsignalled`]: an unsignalled request gives its memory back with the next signalled
/// completion of its endpoint ([`crate::Completion::earlier`]), or with its own if it fails. Post a signalled
/// one before the queue is full of unsignalled ones: they leave the queue with it.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Ia, Work};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let (ep, peer) = (pz.ep(&evd).build()?, pz.ep(&ia.evd(16)?).build()?);
/// # let listen = ia.listen("127.0.0.1:0")?;
/// # std::thread::scope(|scope| {
/// #     scope.spawn(|| listen.request()?.accept(&peer, b""));
/// #     ep.connect(listen.address(), b"")
/// # })?;
/// # peer.post_recv(pz.buffers(2, 8)?)?;
/// # let board = pz.lmr(8).remote_read().remote_write().register()?;
/// # let theirs = board.remote();
/// let [mut source, sink] = [pz.buffer(8)?, pz.buffer(8)?];
/// source.fill(b"one-sided".split_at(8).0)?;
/// ep.post(Work::write(source, theirs).unsignalled())?; // the next completion covers it
/// ep.post(Work::read(theirs, sink))?; // after the write: it reads what was written
/// ep.post(Work::send(b"look").solicited().read_fence())?; // few octets: copied while posting
/// let read = evd.wait_success(Duration::from_secs(20))?;
/// assert_eq!(read.earlier.len(), 1); // the memory of the write
/// assert_eq!(read.into_buffer().map(|sink| sink.to_vec()).as_deref(), Some(&b"one-side"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Work<'a> {
    pub(crate) kind: Kind,
    pub(crate) payload: Payload<'a>,
    pub(crate) flags: SendFlags,
    /// Its completion notifies.
    pub(crate) notify: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Send { solicited: bool, invalidate: Option<Stag> },
    Write { remote: RemoteRange, immediate: Option<u64>, solicited: bool },
    Immediate { data: u64, solicited: bool },
    Read { remote: RemoteRange, unlink_sink: bool },
    ReadToWindow { remote: RemoteRange, rmr: Rmr, offset: u64, unlink_sink: bool },
    Atomic { remote: RemoteRange, op: AtomicOp },
    Link { rmr: Rmr, range: LmrRange, access: Access, addressing: Addressing },
    Unlink { rmr: Rmr },
    LinkLmr { lmr: Lmr },
    UnlinkLmr { lmr: Lmr },
}

impl<'a> Work<'a> {
    fn new(kind: Kind, payload: impl Into<Payload<'a>>) -> Self {
        Self { kind, payload: payload.into(), flags: SendFlags::SIGNALED, notify: true }
    }

    /// Send (IT-API `it_post_send`): the peer's next receive takes it.
    pub fn send(data: impl Into<Payload<'a>>) -> Self {
        Self::new(Kind::Send { solicited: false, invalidate: None }, data)
    }

    /// RDMA Write (`it_post_rdma_write`) to the first octets of `remote`; the peer gets no event.
    pub fn write(data: impl Into<Payload<'a>>, remote: RemoteRange) -> Self {
        Self::new(Kind::Write { remote, immediate: None, solicited: false }, data)
    }

    /// RDMA Read (`it_post_rdma_read`): all of `remote` into the first octets of `sink`, which is
    /// one buffer or range.
    pub fn read(remote: RemoteRange, sink: impl Into<Local>) -> Self {
        let payload = Payload::Memory(sink.into());
        Self::new(Kind::Read { remote, unlink_sink: false }, payload)
    }

    /// RDMA Read into a window (`it_post_rdma_read_to_rmr`): all of `remote`, from octet `offset`
    /// of the window on. The window is linked, through this endpoint if it is narrow, and grants
    /// remote writing.
    pub fn read_to_window(remote: RemoteRange, rmr: &Rmr, offset: u64) -> Self {
        let kind = Kind::ReadToWindow { remote, rmr: rmr.clone(), offset, unlink_sink: false };
        Self::new(kind, Local::default())
    }

    /// Eight octets of Immediate Data (RFC 7306 section 6); they complete the peer's next receive.
    pub fn immediate(data: u64) -> Self {
        Self::new(Kind::Immediate { data, solicited: false }, Local::default())
    }

    /// Fetch and add (`it_post_atomic`): adds to the 8 octets at `remote`; the original value arrives in `sink`, in this
    /// machine's octet order.
    ///
    /// The address is a multiple of 8, else the post is refused, on every device. With zero-based addresses that is the
    /// offset, as InfiniBand requires (volume 1, 9.4.5), and the memory begins at a multiple of 8, too, as RFC 7306
    /// section 5.1 requires, else the peer ends the connection.
    pub fn fetch_add(remote: RemoteRange, add: u64, sink: impl Into<Local>) -> Self {
        let op = AtomicOp::FetchAdd { add, mask: 0 };
        Self::new(Kind::Atomic { remote, op }, Payload::Memory(sink.into()))
    }

    /// Compare and swap (`it_post_atomic`) of the 8 octets at `remote`, which begin at a multiple of 8 as those of
    /// [`Work::fetch_add`]; the original value arrives in `sink`.
    pub fn compare_swap(
        remote: RemoteRange,
        compare: u64,
        swap: u64,
        sink: impl Into<Local>,
    ) -> Self {
        let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
        let op = AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask };
        Self::new(Kind::Atomic { remote, op }, Payload::Memory(sink.into()))
    }

    /// Links a window to part of a region (`it_rmr_link`). The window keeps the region until it is
    /// linked anew, unlinked or dropped. A narrow window must be unlinked before it is linked anew.
    pub fn link(rmr: &Rmr, range: LmrRange, access: Access) -> Self {
        let addressing = Addressing::Absolute;
        Self::new(Kind::Link { rmr: rmr.clone(), range, access, addressing }, Local::default())
    }

    /// Window links only: peers address the window by offset, so they do not learn where its
    /// region lies.
    pub fn zero_based(mut self) -> Self {
        if let Kind::Link { addressing, .. } = &mut self.kind {
            *addressing = Addressing::ZeroBased;
        }
        self
    }

    /// Revokes a window's rights (`it_rmr_unlink`).
    pub fn unlink(rmr: &Rmr) -> Self {
        Self::new(Kind::Unlink { rmr: rmr.clone() }, Local::default())
    }

    /// Registers the memory of an unlinked region, with the builder's rights (`it_lmr_link`); needs a
    /// privileged endpoint. Requests posted after it may use the region, and a Send posted after it may
    /// describe it to the peer: [`Lmr::remote`] has the new key as soon as this is posted.
    pub fn link_lmr(lmr: &Lmr) -> Self {
        Self::new(Kind::LinkLmr { lmr: lmr.clone() }, Local::default())
    }

    /// Revokes all rights to a region, local ones included (`it_lmr_unlink`), until it is linked again.
    pub fn unlink_lmr(lmr: &Lmr) -> Self {
        Self::new(Kind::UnlinkLmr { lmr: lmr.clone() }, Local::default())
    }

    /// RDMA Reads only: unlinks the sink, a range of an [`Lmr`] or a window, when all octets are placed
    /// (`IT_UNLINK_LOCAL_SINK`).
    pub fn unlink_sink(mut self) -> Self {
        if let Kind::Read { unlink_sink, .. } | Kind::ReadToWindow { unlink_sink, .. } =
            &mut self.kind
        {
            *unlink_sink = true;
        }
        self
    }

    /// Its completion does not notify, unless the request fails.
    pub fn quiet(mut self) -> Self {
        self.notify = false;
        self
    }

    /// More requests follow at once: this one may wait briefly for them (`IT_COALESCE_WR_FLAG`).
    /// [`crate::Ep::post_all`] needs no such hint.
    pub fn coalesce(mut self) -> Self {
        self.flags.insert(SendFlags::COALESCE);
        self
    }

    /// No completion on success.
    pub fn unsignalled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Starts only when all earlier RDMA Reads of the endpoint are complete.
    pub fn read_fence(mut self) -> Self {
        self.flags.insert(SendFlags::READ_FENCE);
        self
    }

    /// Starts only when all earlier work requests of the endpoint are complete.
    pub fn local_fence(mut self) -> Self {
        self.flags.insert(SendFlags::LOCAL_FENCE);
        self
    }

    /// Sends and Immediate Data only: wakes a peer that waits for solicited events.
    pub fn solicited(mut self) -> Self {
        if let Kind::Send { solicited, .. }
        | Kind::Write { solicited, .. }
        | Kind::Immediate { solicited, .. } = &mut self.kind
        {
            *solicited = true;
        }
        self
    }

    /// Sends only: invalidates an STag of the peer, giving back the right that it granted
    /// (`it_post_send_and_unlink`).
    pub fn invalidate(mut self, context: RmrContext) -> Self {
        if let Kind::Send { invalidate, .. } = &mut self.kind {
            *invalidate = Some(Stag(context.0));
        }
        self
    }

    /// RDMA Writes only: Immediate Data follows the octets and completes a receive of the peer.
    pub fn with_immediate(mut self, data: u64) -> Self {
        if let Kind::Write { immediate, .. } = &mut self.kind {
            *immediate = Some(data);
        }
        self
    }
}
