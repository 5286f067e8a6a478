//! Converts work requests to C structures, chained on the stack. Posting allocates nothing.
//!
//! Owner: one post call, on its own stack. Pointers in a batch are set just before it is posted, because until then
//! it may be moved.

use std::ffi::{c_int, c_uint};

use vp_api::{AtomicOp, Data, SendFlags, SendOp, SendWr, Sge, Stag, VpStatus};

use crate::map;
use crate::mw::Memory;
use crate::tuning::POST_BATCH;
use ibv_sys::*;

/// Scatter/gather elements of a batch. One request may use all of them.
pub(crate) const SGES: usize = 32;

/// A chain of one kind of work request.
pub(crate) struct Batch<W> {
    wrs: [W; POST_BATCH],
    /// Index of the first element of each request.
    starts: [usize; POST_BATCH],
    used: usize,
    sges: [ibv_sge; SGES],
    sges_used: usize,
}

/// The fields that both kinds have.
pub(crate) trait Link: Copy {
    const BLANK: Self;
    fn set(&mut self, next: *mut Self, sges: *mut ibv_sge);
    fn sges(&mut self) -> &mut c_int;
}

impl Link for ibv_send_wr {
    const BLANK: Self = Self {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: IBV_WR_SEND,
        send_flags: 0,
        imm_or_rkey: 0,
        wr: wr_union { atomic: wr_atomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 } },
        xrc_remote_srqn: 0,
        bind_mw: wr_bind_mw {
            mw: std::ptr::null_mut(),
            rkey: 0,
            bind_info: ibv_mw_bind_info {
                mr: std::ptr::null_mut(),
                addr: 0,
                length: 0,
                mw_access_flags: 0,
            },
        },
    };
    fn set(&mut self, next: *mut Self, sges: *mut ibv_sge) {
        (self.next, self.sg_list) = (next, sges);
    }
    fn sges(&mut self) -> &mut c_int {
        &mut self.num_sge
    }
}

impl Link for ibv_recv_wr {
    const BLANK: Self =
        Self { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
    fn set(&mut self, next: *mut Self, sges: *mut ibv_sge) {
        (self.next, self.sg_list) = (next, sges);
    }
    fn sges(&mut self) -> &mut c_int {
        &mut self.num_sge
    }
}

impl<W: Link> Batch<W> {
    pub(crate) fn new() -> Self {
        Self {
            wrs: [W::BLANK; POST_BATCH],
            starts: [0; POST_BATCH],
            used: 0,
            sges: [ibv_sge::default(); SGES],
            sges_used: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Whether a request with this many elements still fits.
    pub(crate) fn fits(&self, sges: usize) -> bool {
        self.used < POST_BATCH && self.sges_used + sges <= SGES
    }

    /// Adds a request that fits.
    pub(crate) fn add(&mut self, mut wr: W, sges: impl Iterator<Item = ibv_sge>) {
        let start = self.sges_used;
        for (place, sge) in self.sges.iter_mut().skip(start).zip(sges) {
            *place = sge;
            self.sges_used += 1;
        }
        *wr.sges() = (self.sges_used - start) as c_int;
        if let (Some(place), Some(at)) =
            (self.wrs.get_mut(self.used), self.starts.get_mut(self.used))
        {
            (*place, *at) = (wr, start);
            self.used += 1;
        }
    }

    /// Passes the chain to `post`, which returns an error number and the first refused request. Empties the batch;
    /// an error says how many requests the device took.
    pub(crate) fn submit(
        &mut self,
        post: impl FnOnce(*mut W, *mut *mut W) -> c_int,
    ) -> Result<(), (usize, VpStatus)> {
        let used = std::mem::take(&mut self.used);
        self.sges_used = 0;
        if used == 0 {
            return Ok(());
        }
        let (wrs, sges) = (self.wrs.as_mut_ptr(), self.sges.as_mut_ptr());
        for n in 0..used {
            let next = if n + 1 < used { wrs.wrapping_add(n + 1) } else { std::ptr::null_mut() };
            let first = sges.wrapping_add(self.starts[n]);
            // SAFETY: within the array, to which there is no other reference.
            unsafe { &mut *wrs.wrapping_add(n) }.set(next, first);
        }
        let mut bad = std::ptr::null_mut();
        let code = post(wrs, &mut bad);
        if code == 0 {
            return Ok(());
        }
        let taken = bad.addr().wrapping_sub(wrs.addr()) / size_of::<W>();
        // If the library does not say which, it refused the first.
        let taken = if taken < used { taken } else { 0 };
        let status = match code.abs() {
            libc::ENOMEM | libc::ENOSPC => VpStatus::TooManyWrs,
            libc::EINVAL | libc::EOPNOTSUPP => VpStatus::InvalidWr,
            libc::ENOTCONN => VpStatus::InvalidState,
            _ => VpStatus::Os,
        };
        Err((taken, status))
    }
}

/// Converts an element for the device.
pub(crate) fn sge(memory: &Memory, sge: &Sge) -> ibv_sge {
    ibv_sge { addr: sge.to, length: sge.len, lkey: memory.lkey(sge.stag) }
}

/// Converts a list of elements for the device, and omits zero-length elements, unless the list has only one
/// element. Linux 6.1's siw sends without end at such an element, and some devices take its length as 2^31 octets.
pub(crate) fn list<'a>(memory: &'a Memory, sgl: &'a [Sge]) -> impl Iterator<Item = ibv_sge> + 'a {
    let counts = |element: &&Sge| element.len != 0 || sgl.len() == 1;
    sgl.iter().filter(counts).map(|element| sge(memory, element))
}

/// Converts the elements of a receive. The drivers of iWARP devices need at least one, if necessary of zero length.
pub(crate) fn sink<'a>(
    memory: &'a Memory,
    sgl: &'a [Sge],
    iwarp: bool,
) -> impl Iterator<Item = ibv_sge> + 'a {
    let filler = (iwarp && list(memory, sgl).next().is_none()).then(ibv_sge::default);
    list(memory, sgl).chain(filler)
}

/// All fields of a send request except its elements and its number.
pub(crate) fn send(memory: &Memory, wr: &SendWr<'_>) -> Result<ibv_send_wr, VpStatus> {
    let mut out = ibv_send_wr::BLANK;
    out.send_flags = flags(wr);
    let mut rdma = |to, stag: Stag| {
        out.wr = wr_union { rdma: wr_rdma { remote_addr: to, rkey: stag.0 } };
    };
    out.opcode = match &wr.op {
        SendOp::Send { invalidate: None, .. } => IBV_WR_SEND,
        SendOp::Send { invalidate: Some(stag), .. } => {
            // libsiw takes the key from the field where a Write has it.
            rdma(0, *stag);
            out.imm_or_rkey = stag.0;
            IBV_WR_SEND_WITH_INV
        }
        SendOp::Write { remote } => {
            rdma(remote.to, remote.stag);
            IBV_WR_RDMA_WRITE
        }
        SendOp::WriteImmediate { remote, data, .. } => {
            rdma(remote.to, remote.stag);
            out.imm_or_rkey = immediate(*data)?;
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
        SendOp::SendImmediate { data, .. } => {
            out.imm_or_rkey = data.to_be();
            IBV_WR_SEND_WITH_IMM
        }
        SendOp::Immediate { data, .. } => {
            out.imm_or_rkey = immediate(*data)?;
            IBV_WR_SEND_WITH_IMM
        }
        SendOp::Read { invalidate_sink: true, .. } => return Err(VpStatus::InvalidWr),
        SendOp::Read { remote, .. } => {
            rdma(remote.to, remote.stag);
            IBV_WR_RDMA_READ
        }
        // Devices end the connection for it (InfiniBand volume 1, 9.4.5).
        SendOp::Atomic { remote, .. } if !remote.to.is_multiple_of(8) => {
            return Err(VpStatus::InvalidWr);
        }
        SendOp::Atomic { remote, op } => {
            let (opcode, compare_add, swap) = atomic(op)?;
            out.wr = wr_union {
                atomic: wr_atomic {
                    remote_addr: remote.to,
                    compare_add,
                    swap,
                    rkey: remote.stag.0,
                },
            };
            opcode
        }
        SendOp::InvalidateLocal { stag } => {
            out.imm_or_rkey = memory.invalidate(*stag)?;
            IBV_WR_LOCAL_INV
        }
        SendOp::BindMw(bind) => {
            let (mw, rkey, bind_info) = memory.bind(bind)?;
            out.bind_mw = wr_bind_mw { mw, rkey, bind_info };
            IBV_WR_BIND_MW
        }
        // Only the kernel can do these.
        SendOp::FastRegister(_) => return Err(VpStatus::InvalidWr),
    };
    Ok(out)
}

/// The elements of a send request.
pub(crate) fn elements<'a>(data: &'a Data<'a>) -> (&'a [Sge], Option<ibv_sge>) {
    match data {
        Data::Sgl(sgl) => (sgl, None),
        Data::Inline(octets) => {
            let addr = octets.as_ptr().expose_provenance() as u64;
            (&[], Some(ibv_sge { addr, length: octets.len() as u32, lkey: 0 }))
        }
    }
}

/// Refuses a request of more elements, or octets inline, than its queue takes.
pub(crate) fn check(data: &Data<'_>, max_sge: u32, max_inline: u32) -> Result<(), VpStatus> {
    let fits = match data {
        Data::Sgl(sgl) => sgl.len() <= SGES.min(max_sge as usize),
        Data::Inline(octets) => octets.len() <= max_inline as usize,
    };
    if fits { Ok(()) } else { Err(VpStatus::InvalidSgl) }
}

fn flags(wr: &SendWr<'_>) -> c_uint {
    let solicited = matches!(
        wr.op,
        SendOp::Send { solicited: true, .. }
            | SendOp::WriteImmediate { solicited: true, .. }
            | SendOp::SendImmediate { solicited: true, .. }
            | SendOp::Immediate { solicited: true, .. }
    );
    let fence = SendFlags::READ_FENCE | SendFlags::LOCAL_FENCE;
    let list = [
        (wr.flags.contains(SendFlags::SIGNALED), IBV_SEND_SIGNALED),
        // Sends and writes are executed in order anyway: only reads and atomics overlap.
        (wr.flags.intersects(fence), IBV_SEND_FENCE),
        (solicited, IBV_SEND_SOLICITED),
        (matches!(wr.data, Data::Inline(_)), IBV_SEND_INLINE),
    ];
    list.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag)
}

/// Immediate Data of InfiniBand: 4 octets.
fn immediate(data: u64) -> Result<u32, VpStatus> {
    u32::try_from(data).map(u32::to_be).map_err(|_| VpStatus::InvalidModifier)
}

/// The plain forms only; RFC 7306 has masked ones.
fn atomic(op: &AtomicOp) -> Result<(c_uint, u64, u64), VpStatus> {
    match *op {
        AtomicOp::FetchAdd { add, mask: 0 } => Ok((IBV_WR_ATOMIC_FETCH_AND_ADD, add, 0)),
        AtomicOp::CmpSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX } => {
            Ok((IBV_WR_ATOMIC_CMP_AND_SWP, compare, swap))
        }
        _ => Err(VpStatus::InvalidWr),
    }
}

/// Access rights of a window for the device.
pub(crate) fn window_access(access: vp_api::Access) -> c_uint {
    map::access(access & vp_api::Access::REMOTE)
}
