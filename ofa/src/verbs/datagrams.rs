//! Datagrams on the data path: sends with an address handle, and completions with their source.

use ibv_sys::*;
use ual::gid;
use vp_api::{Data, DatagramSource, UdAddress, UdQp, UdSendWr, VpStatus};

use crate::object;
use crate::qp::Qp;
use crate::send;
use crate::verbs::post::{Elements, Inline};

/// A Q_Key with this bit stands for that of the sending queue pair (InfiniBand volume 1, 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// Posts a list, one request after the other.
pub(super) unsafe fn post_each(
    qp: &Qp,
    to: &dyn UdQp,
    mut next: *mut ibv_send_wr,
) -> Result<(), (*mut ibv_send_wr, VpStatus)> {
    // SAFETY: the caller's list, which ends with NULL.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: the caller's request.
        unsafe { post(qp, to, wr) }.map_err(|status| (next, status))?;
        next = wr.next;
    }
    Ok(())
}

/// The address that a request names.
pub(super) fn destination(own: &dyn UdQp, qpn: u32, qkey: u32) -> UdAddress {
    UdAddress { qpn, qkey: if qkey & OWN_QKEY != 0 { own.address().qkey } else { qkey } }
}

unsafe fn post(qp: &Qp, own: &dyn UdQp, wr: &ibv_send_wr) -> Result<(), VpStatus> {
    let immediate = match wr.opcode {
        IBV_WR_SEND => None,
        // In network order, as on the wire.
        IBV_WR_SEND_WITH_IMM => Some(u32::from_be(wr.imm_or_rkey)),
        _ => return Err(VpStatus::InvalidWr),
    };
    // SAFETY: any bits are a value of it, and sends of datagrams have it.
    let wr_ud { ah, remote_qpn, remote_qkey } = unsafe { wr.wr.ud };
    // SAFETY: the caller's address handle.
    let ah = unsafe { object::with(ah) }.map_err(|_| VpStatus::InvalidHandle)?.id();
    let to = destination(own, remote_qpn, remote_qkey);
    let num = usize::try_from(wr.num_sge).map_err(|_| VpStatus::InvalidSgl)?;
    let (mut inline, mut elements) = (Inline::new(), Elements::new());
    let data = if wr.send_flags & IBV_SEND_INLINE != 0 {
        // SAFETY: the caller's list of elements.
        unsafe { inline.take(wr.sg_list, num) }?;
        Data::Inline(inline.octets())
    } else {
        // SAFETY: as above.
        Data::Sgl(unsafe { elements.take(wr.sg_list, num) }?)
    };
    let request = UdSendWr {
        wr_id: wr.wr_id,
        data,
        flags: send::flags(wr.send_flags, qp.init().signal_all),
        solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
        immediate,
        ah,
        to,
    };
    own.post_send(&[request]).map_err(|failure| failure.status)
}

/// The kind of packet: InfiniBand volume 1, annex A17.4.5.1 has a completion tell it, and programs (UCX) read it
/// where adapters write it, in place of the service level: UDP, over IPv6 or IPv4.
fn packet_type(gid: [u8; 16]) -> u8 {
    const UDP: u8 = 8;
    if gid::address_of(gid).is_ipv4() { UDP | 2 } else { UDP | 1 }
}

/// A completion with its source.
pub(super) fn with_source(wc: ibv_wc, source: &DatagramSource) -> ibv_wc {
    let grh = if source.grh { IBV_WC_GRH } else { 0 };
    let sl = source.path.map_or(0, |path| packet_type(path.remote_gid));
    ibv_wc { src_qp: source.qpn, wc_flags: wc.wc_flags | grh, sl, ..wc }
}
