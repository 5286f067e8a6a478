//! Address handles (ibv_create_ah(3), ibv_create_ah_from_wc(3), ibv_destroy_ah(3)), on devices that have datagrams.
//!
//! A device has one port; the GID at `sgid_index` says from which address datagrams are sent.

use std::ffi::c_int;
use std::sync::Arc;

use ibv_sys::*;
use ual::gid;
use vp_api::{ANY_PORT, AhId, DatagramPath, Datagrams, GRH_OCTETS};

use crate::adapter::Adapter;
use crate::advice::Advice;
use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::object::{self, Handle};
use crate::record;
use crate::verbs::context::{PORT, context_of};
use crate::verbs::pd::Pd;

/// An address handle.
pub struct Ah {
    pd: Arc<Pd>,
    id: AhId,
}

impl Handle for ibv_ah {
    type Whole = Self;
    type Private = Ah;
    const NAME: &'static str = "struct ibv_ah";
}

impl Ah {
    pub(crate) fn id(&self) -> AhId {
        self.id
    }
}

fn service(adapter: &Adapter) -> Result<Arc<dyn Datagrams>, Errno> {
    adapter.rnic().datagrams().ok_or(EOPNOTSUPP)
}

/// The provider's path. EINVAL: another port, a GID that the device does not have, or none: RoCE has no LIDs.
fn path(adapter: &Adapter, attr: &ibv_ah_attr) -> Result<DatagramPath, Errno> {
    if attr.is_global == 0 {
        Advice::NoGid.say();
    }
    if attr.port_num != PORT || attr.is_global == 0 {
        return Err(EINVAL);
    }
    let (gids, grh) = (adapter.device().gids()?, &attr.grh);
    Ok(DatagramPath {
        port: ANY_PORT,
        local_gid: *gids.table().get(usize::from(grh.sgid_index)).ok_or(EINVAL)?,
        remote_gid: grh.dgid.raw,
        service_level: attr.sl,
        flow_label: grh.flow_label,
        traffic_class: grh.traffic_class,
        hop_limit: grh.hop_limit,
        ..DatagramPath::default()
    })
}

fn create(handle: *mut ibv_pd, pd: &Arc<Pd>, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    let adapter = pd.adapter()?;
    let service = service(adapter)?;
    let id = service.create_ah(pd.id, &path(adapter, attr)?)?;
    pd.enter();
    let whole = ibv_ah { context: pd.context.handle(), pd: handle, handle: id.0 };
    Ok(object::new(whole, Arc::new(Ah { pd: pd.clone(), id })))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    // SAFETY: NULL, or the caller's structure.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    let made = private.and_then(|private| create(pd, private, attr?));
    errno::pointer(record::call("ibv_create_ah", made))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's address handle.
    let private = unsafe { object::with(ah) };
    errno::code(private.and_then(|private| {
        service(private.pd.adapter()?)?.destroy_ah(private.id)?;
        private.pd.remove_user();
        // SAFETY: the caller gives it up.
        unsafe { object::destroy(ah) }.map(drop)
    }))
}

/// The two GIDs and the other fields of the header that precedes a datagram. InfiniBand volume 1, annex A17: of an
/// IPv4 header the last 20 octets, otherwise one of IPv6.
struct Header {
    from: [u8; 16],
    to: [u8; 16],
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
}

fn header(octets: &[u8; GRH_OCTETS]) -> Header {
    let part = |at: usize| -> [u8; 16] { std::array::from_fn(|n| octets[at + n]) };
    let mapped = |at: usize| {
        let v4 = std::net::Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|n| octets[at + n]));
        v4.to_ipv6_mapped().octets()
    };
    let first = u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]);
    match first >> 28 {
        6 => Header {
            from: part(8),
            to: part(24),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit: octets[7],
        },
        _ => Header {
            from: mapped(20 + 12),
            to: mapped(20 + 16),
            traffic_class: octets[20 + 1],
            flow_label: 0,
            hop_limit: octets[20 + 8],
        },
    }
}

/// The attributes of an address handle for the sender of a datagram. EINVAL: it is not a datagram's completion, or
/// it was not sent to an address of the device.
fn back(
    adapter: &Adapter,
    port: u8,
    wc: &ibv_wc,
    grh: &[u8; GRH_OCTETS],
) -> Result<ibv_ah_attr, Errno> {
    service(adapter)?;
    if port != PORT || wc.wc_flags & IBV_WC_GRH == 0 {
        return Err(EINVAL);
    }
    let Header { from, to, traffic_class, flow_label, hop_limit } = header(grh);
    let gids = adapter.device().gids()?;
    let same = |gid: &[u8; 16]| gid::address_of(*gid) == gid::address_of(to);
    let index = gids.table().iter().position(same).ok_or(EINVAL)?;
    let sgid_index = u8::try_from(index).map_err(|_| EINVAL)?;
    let dgid = ibv_gid { raw: from };
    let grh = ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class };
    Ok(ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const [u8; GRH_OCTETS],
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    errno::minus(context.and_then(|context| {
        // SAFETY: NULL, or the caller's completion.
        let wc = unsafe { wc.as_ref() }.ok_or(EINVAL)?;
        // SAFETY: NULL, or the caller's octets, of which each is a value.
        let grh = unsafe { grh.as_ref() }.ok_or(EINVAL)?;
        let known = back(context.adapter()?, port, wc, grh)?;
        // SAFETY: NULL, or the caller's structure.
        *unsafe { attr.as_mut() }.ok_or(EINVAL)? = known;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *const ibv_wc,
    grh: *const [u8; GRH_OCTETS],
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the caller's protection domain.
    let private = unsafe { object::with(pd) };
    errno::pointer(private.and_then(|private| {
        // SAFETY: NULL, or the caller's completion.
        let wc = unsafe { wc.as_ref() }.ok_or(EINVAL)?;
        // SAFETY: NULL, or the caller's octets, of which each is a value.
        let grh = unsafe { grh.as_ref() }.ok_or(EINVAL)?;
        create(pd, private, &back(private.adapter()?, port, wc, grh)?)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_either_family_names_both_ends() {
        let mut v4 = [0; GRH_OCTETS];
        v4[20..22].copy_from_slice(&[0x45, 7]);
        v4[28] = 64;
        v4[32..].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        let Header { from, to, traffic_class, hop_limit, .. } = header(&v4);
        let ends = [from, to].map(|gid| gid::address_of(gid).to_string());
        assert_eq!(ends, ["192.0.2.1", "192.0.2.2"]);
        assert_eq!((traffic_class, hop_limit), (7, 64));
        let mut v6 = [0; GRH_OCTETS];
        v6[..4].copy_from_slice(&[0x60, 0x71, 0x23, 0x45]);
        v6[7] = 63;
        (v6[23], v6[39]) = (1, 2);
        let Header { from, to, traffic_class, flow_label, hop_limit } = header(&v6);
        let ends = [from, to].map(|gid| gid::address_of(gid).to_string());
        assert_eq!(ends, ["::1", "::2"]);
        assert_eq!((traffic_class, flow_label, hop_limit), (7, 0x1_2345, 63));
    }
}
