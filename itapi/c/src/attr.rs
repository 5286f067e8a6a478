//! Attributes of endpoints: as C requests them, checked against the adapter's limits, and as granted.
//! Plain data.

use std::sync::Arc;

use ual::vp_api::{Access, Capabilities, QpChange, RnicAttrs};
use ual::{EpInit, Evd};

use super::failure::{Failure, Outcome};
use super::object;
use super::status::{self, Status};
use super::types::*;

/// Segments of a work request at most, whatever the adapter can do.
pub(crate) const MAX_SEGMENTS: u32 = 32;

/// The attributes that an endpoint was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    payload: u32,
    pub(crate) requests: u32,
    pub(crate) receives: u32,
    send_segments: u32,
    recv_segments: u32,
    read_segments: u32,
    write_segments: u32,
    reads: bool,
    writes: bool,
    atomics: bool,
    privileged: bool,
    ird: u16,
    ord: u16,
    soft_watermark: u32,
    /// The handle of its shared receive queue, or 0.
    srq: u64,
}

pub(crate) fn limit<T: TryFrom<usize> + Into<u64>>(
    what: &str,
    asked: usize,
    max: T,
    status: Status,
) -> Outcome<T> {
    let max = max.into();
    match T::try_from(asked) {
        Ok(fits) if asked as u64 <= max => Ok(fits),
        _ => Err(Failure::new(status, format!("{what} is {asked}; at most {max} are possible"))),
    }
}

/// What C wrote into the part for connected endpoints.
fn rc_of(asked: &it_ep_attributes_t) -> it_rc_only_attributes_t {
    // SAFETY: plain data: every pattern of bits is a value.
    unsafe { asked.srv.rc }
}

impl Attributes {
    /// The attributes granted for a request of C. `srq`: receives come from there, and the attributes of the
    /// endpoint's own receive queue are ignored.
    pub(crate) fn grant(
        asked: &it_ep_attributes_t,
        most: &RnicAttrs,
        srq: Option<u64>,
    ) -> Outcome<Self> {
        let rc = rc_of(asked);
        let own = srq.is_none();
        let receives = |value: usize| if own { value } else { 0 };
        let granted = Self {
            payload: payload(asked.max_dto_payload_size, most)?,
            requests: requests(asked.max_request_dtos, most)?,
            receives: own_receives(receives(asked.max_recv_dtos), most)?,
            send_segments: limit(
                "max_send_segments",
                asked.max_send_segments,
                most.max_sge_send.min(MAX_SEGMENTS),
                status::IT_ERR_RESOURCE_SSEG,
            )?,
            recv_segments: limit(
                "max_recv_segments",
                receives(asked.max_recv_segments),
                most.max_sge_recv.min(MAX_SEGMENTS),
                status::IT_ERR_RESOURCE_RSEG,
            )?,
            // Applications request many although an iWARP read has one sink: more is no error.
            read_segments: rc.max_rdma_read_segments.min(most.max_sge_read as usize) as u32,
            write_segments: limit(
                "max_rdma_write_segments",
                rc.max_rdma_write_segments,
                most.max_sge_write.min(MAX_SEGMENTS),
                status::IT_ERR_RESOURCE_RWSEG,
            )?,
            reads: rc.rdma_read_enable != IT_FALSE,
            writes: rc.rdma_write_enable != IT_FALSE,
            // Applications leave these two uninitialised: only IT_TRUE enables anything.
            atomics: rc.atomics_enable == IT_TRUE,
            privileged: asked.priv_ops_enable == IT_TRUE,
            ird: ird(rc.rdma_read_ird, most)?,
            ord: ord(rc.rdma_read_ord, most)?,
            soft_watermark: 0,
            srq: srq.unwrap_or(0),
        };
        hard_watermark(rc.hard_hi_watermark)?;
        Ok(Self { soft_watermark: granted.soft(rc.soft_hi_watermark, most)?, ..granted })
    }

    fn soft(&self, asked: usize, most: &RnicAttrs) -> Outcome<u32> {
        let places = if self.srq == 0 { self.receives } else { u32::MAX };
        if asked != 0 && !most.capabilities.contains(Capabilities::RECV_LIMIT) {
            let text = "this adapter has no soft high watermark; soft_hi_watermark must be 0";
            return Err(Failure::new(status::IT_ERR_SOFT_HI_WATERMARK, text));
        }
        limit("soft_hi_watermark", asked, places, status::IT_ERR_SOFT_HI_WATERMARK)
    }

    /// For creating the endpoint. Queues have at least one place.
    pub(crate) fn init(&self, requests: &Arc<Evd>, receives: &Arc<Evd>, conn: &Arc<Evd>) -> EpInit {
        let rights = [
            (self.reads, Access::REMOTE_READ),
            (self.writes, Access::REMOTE_WRITE),
            (self.atomics, Access::REMOTE_ATOMIC),
            (true, Access::BIND),
        ];
        EpInit {
            recv_evd: receives.clone(),
            send_depth: self.requests,
            recv_depth: self.receives,
            max_send_sge: self.send_segments.max(self.write_segments).max(1),
            max_recv_sge: self.recv_segments.max(1),
            max_inline: 0,
            ird: self.ird,
            ord: self.ord,
            allow: rights.iter().filter(|right| right.0).map(|right| right.1).collect(),
            privileged: self.privileged,
            recv_high_watermark: self.soft_watermark,
            ..EpInit::new(requests, conn)
        }
    }

    /// Segments that a send, a receive, and an RDMA Write may have, at least one each.
    pub(crate) fn segments(&self) -> [u32; 3] {
        [self.send_segments, self.recv_segments, self.write_segments].map(|most| most.max(1))
    }

    /// Octets that a request may move.
    pub(crate) fn payload(&self) -> u64 {
        self.payload.into()
    }

    /// STag 0 and linking of regions allowed.
    pub(crate) fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// The attributes after a change of those in `mask`, and the change for the provider.
    pub(crate) fn modified(
        &self,
        mask: it_ep_param_mask_t,
        asked: &it_ep_attributes_t,
        most: &RnicAttrs,
    ) -> Outcome<(Self, QpChange)> {
        let rc = rc_of(asked);
        let mut new = *self;
        let chosen = |bit| mask & bit != 0;
        if chosen(IT_EP_PARAM_MAX_PAYLOAD) {
            new.payload = payload(asked.max_dto_payload_size, most)?;
        }
        if chosen(IT_EP_PARAM_MAX_REQ_DTO) {
            new.requests = requests(asked.max_request_dtos, most)?;
        }
        if chosen(IT_EP_PARAM_MAX_RECV_DTO) && self.srq == 0 {
            new.receives = own_receives(asked.max_recv_dtos, most)?;
        }
        if chosen(IT_EP_PARAM_MAX_IRD) {
            new.ird = ird(rc.rdma_read_ird, most)?;
        }
        if chosen(IT_EP_PARAM_MAX_ORD) {
            new.ord = ord(rc.rdma_read_ord, most)?;
        }
        if chosen(IT_EP_PARAM_SOFT_HI_WATERMARK) {
            new.soft_watermark = new.soft(rc.soft_hi_watermark, most)?;
        }
        if chosen(IT_EP_PARAM_HARD_HI_WATERMARK) {
            hard_watermark(rc.hard_hi_watermark)?;
        }
        self.check_fixed(mask, asked, &rc)?;
        let change = QpChange::Limits {
            ord: (new.ord != self.ord).then_some(new.ord),
            ird: (new.ird != self.ird).then_some(new.ird),
            send_depth: (new.requests != self.requests).then_some(new.requests),
            recv_depth: (new.receives != self.receives).then_some(new.receives),
            // It fires once; setting it arms it again.
            recv_limit: chosen(IT_EP_PARAM_SOFT_HI_WATERMARK).then_some(new.soft_watermark),
        };
        Ok((new, change))
    }

    /// An attribute that is fixed at creation may be set only to the value that it has.
    fn check_fixed(
        &self,
        mask: it_ep_param_mask_t,
        asked: &it_ep_attributes_t,
        rc: &it_rc_only_attributes_t,
    ) -> Outcome {
        let same = |granted: u32, asked: usize| granted as usize == asked;
        let fixed = [
            (IT_EP_PARAM_RDMA_RD_ENABLE, self.reads == (rc.rdma_read_enable != IT_FALSE)),
            (IT_EP_PARAM_RDMA_WR_ENABLE, self.writes == (rc.rdma_write_enable != IT_FALSE)),
            (IT_EP_PARAM_ATOMICS_ENABLE, self.atomics == (rc.atomics_enable == IT_TRUE)),
            (IT_EP_PARAM_PRIV_OPS_ENABLE, self.privileged == (asked.priv_ops_enable == IT_TRUE)),
            (IT_EP_PARAM_MAX_SEND_SEG, same(self.send_segments, asked.max_send_segments)),
            (IT_EP_PARAM_MAX_RECV_SEG, same(self.recv_segments, asked.max_recv_segments)),
            (IT_EP_PARAM_MAX_RDMA_READ_SEG, same(self.read_segments, rc.max_rdma_read_segments)),
            (IT_EP_PARAM_MAX_RDMA_WRITE_SEG, same(self.write_segments, rc.max_rdma_write_segments)),
            (IT_EP_PARAM_SRQ, self.srq == rc.srq.addr() as u64),
        ];
        match fixed.iter().find(|(bit, same)| mask & bit != 0 && !same) {
            None => Ok(()),
            Some((bit, _)) => Err(Failure::new(
                status::IT_ERR_OP_NOT_SUPPORTED,
                format!("the attribute of mask bit {bit:#x} is fixed when the endpoint is created"),
            )),
        }
    }

    /// For C; `soft_hi_watermark` as requested.
    pub(crate) fn to_c(self) -> it_ep_attributes_t {
        let rc = it_rc_only_attributes_t {
            rdma_read_enable: boolean(self.reads),
            rdma_write_enable: boolean(self.writes),
            max_rdma_read_segments: self.read_segments as usize,
            max_rdma_write_segments: self.write_segments as usize,
            rdma_read_ird: self.ird.into(),
            rdma_read_ord: self.ord.into(),
            srq: object::handle(self.srq),
            soft_hi_watermark: self.soft_watermark as usize,
            hard_hi_watermark: IT_HARD_HI_WATERMARK_DISABLE,
            atomics_enable: boolean(self.atomics),
        };
        it_ep_attributes_t {
            max_dto_payload_size: self.payload as usize,
            max_request_dtos: self.requests as usize,
            max_recv_dtos: self.receives as usize,
            max_send_segments: self.send_segments as usize,
            max_recv_segments: self.recv_segments as usize,
            srv: it_service_attributes_t { rc },
            priv_ops_enable: boolean(self.privileged),
        }
    }
}

/// 0 means the default.
fn payload(asked: usize, most: &RnicAttrs) -> Outcome<u32> {
    let asked = if asked == 0 { most.max_message as usize } else { asked };
    limit("max_dto_payload_size", asked, most.max_message, status::IT_ERR_PAYLOAD_SIZE)
}

pub(crate) fn requests(asked: usize, most: &RnicAttrs) -> Outcome<u32> {
    let status = status::IT_ERR_RESOURCE_REQ_DTO;
    limit("max_request_dtos", asked.max(1), most.max_wr_per_qp, status)
}

pub(crate) fn own_receives(asked: usize, most: &RnicAttrs) -> Outcome<u32> {
    limit("max_recv_dtos", asked.max(1), most.max_wr_per_qp, status::IT_ERR_RESOURCE_RECV_DTO)
}

fn ird(asked: u32, most: &RnicAttrs) -> Outcome<u16> {
    limit("rdma_read_ird", asked as usize, most.max_ird, status::IT_ERR_RESOURCE_IRD)
}

fn ord(asked: u32, most: &RnicAttrs) -> Outcome<u16> {
    limit("rdma_read_ord", asked as usize, most.max_ord, status::IT_ERR_RESOURCE_ORD)
}

/// RDMAC has no such limit. Applications write 0 for "off".
fn hard_watermark(asked: usize) -> Outcome {
    if matches!(asked, 0 | IT_HARD_HI_WATERMARK_DISABLE) {
        return Ok(());
    }
    Err(Failure::new(
        status::IT_ERR_HARD_HI_WATERMARK,
        format!("hard_hi_watermark is {asked}; only IT_HARD_HI_WATERMARK_DISABLE or 0 is possible"),
    ))
}

#[cfg(test)]
mod tests {
    use ual::vp_api::ConnectionModel;

    use super::*;
    use crate::ptr::Plain;

    fn most() -> RnicAttrs {
        let mut most = RnicAttrs::new("", "", ConnectionModel::LlpStream);
        most.max_message = u32::MAX;
        most.capabilities = Capabilities::RECV_LIMIT;
        (most.max_wr_per_qp, most.max_sge_send, most.max_sge_recv) = (100, 4, 4);
        (most.max_sge_write, most.max_sge_read, most.max_ird, most.max_ord) = (4, 1, 16, 16);
        most
    }

    fn asked() -> it_ep_attributes_t {
        let rc = it_rc_only_attributes_t {
            rdma_read_enable: 7,
            max_rdma_read_segments: 16,
            max_rdma_write_segments: 2,
            atomics_enable: 0xCDCD,
            ..it_rc_only_attributes_t::zeroed()
        };
        it_ep_attributes_t {
            max_request_dtos: 10,
            max_send_segments: 3,
            srv: it_service_attributes_t { rc },
            priv_ops_enable: 0xCDCD,
            ..it_ep_attributes_t::zeroed()
        }
    }

    type Change = fn(&mut it_ep_attributes_t, &mut it_rc_only_attributes_t);

    #[test]
    fn uninitialised_members_enable_nothing_and_read_segments_are_clamped() {
        let granted = Attributes::grant(&asked(), &most(), None).unwrap();
        assert!(granted.reads && !granted.writes && !granted.atomics && !granted.privileged);
        assert_eq!((granted.read_segments, granted.requests, granted.receives), (1, 10, 1));
    }

    #[test]
    fn without_a_limit_event_there_is_no_watermark() {
        let mut most = most();
        most.capabilities = Capabilities::empty();
        let mut asked = asked();
        Attributes::grant(&asked, &most, None).unwrap();
        asked.max_recv_dtos = 10;
        let mut rc = rc_of(&asked);
        rc.soft_hi_watermark = 2;
        asked.srv.rc = rc;
        let refused = Attributes::grant(&asked, &most, None).unwrap_err();
        assert_eq!(refused.status, status::IT_ERR_SOFT_HI_WATERMARK);
    }

    #[test]
    fn each_attribute_has_its_own_status() {
        let cases: [(Change, Status); 10] = [
            (|a, _| a.max_dto_payload_size = 1 << 32, status::IT_ERR_PAYLOAD_SIZE),
            (|a, _| a.max_request_dtos = 101, status::IT_ERR_RESOURCE_REQ_DTO),
            (|a, _| a.max_recv_dtos = usize::MAX, status::IT_ERR_RESOURCE_RECV_DTO),
            (|a, _| a.max_send_segments = 5, status::IT_ERR_RESOURCE_SSEG),
            (|a, _| a.max_recv_segments = 5, status::IT_ERR_RESOURCE_RSEG),
            (|_, rc| rc.max_rdma_write_segments = 5, status::IT_ERR_RESOURCE_RWSEG),
            (|_, rc| rc.rdma_read_ird = 17, status::IT_ERR_RESOURCE_IRD),
            (|_, rc| rc.rdma_read_ord = u32::MAX, status::IT_ERR_RESOURCE_ORD),
            (|_, rc| rc.soft_hi_watermark = 2, status::IT_ERR_SOFT_HI_WATERMARK),
            (|_, rc| rc.hard_hi_watermark = 2, status::IT_ERR_HARD_HI_WATERMARK),
        ];
        for (change, expected) in cases {
            let mut asked = asked();
            let mut rc = rc_of(&asked);
            change(&mut asked, &mut rc);
            asked.srv.rc = rc;
            let refused = Attributes::grant(&asked, &most(), None).unwrap_err();
            assert_eq!(refused.status, expected, "{}", refused.text);
        }
    }

    #[test]
    fn with_a_shared_queue_the_endpoints_own_one_is_ignored() {
        let mut asked = asked();
        (asked.max_recv_dtos, asked.max_recv_segments) = (usize::MAX, usize::MAX);
        assert_eq!(Attributes::grant(&asked, &most(), Some(5)).unwrap().srq, 5);
    }

    #[test]
    fn fixed_attributes_may_be_set_to_their_value() {
        let granted = Attributes::grant(&asked(), &most(), None).unwrap();
        let mut asked = granted.to_c();
        let all = IT_EP_PARAM_MAX_SEND_SEG | IT_EP_PARAM_SRQ | IT_EP_PARAM_MAX_ORD;
        let (same, _) = granted.modified(all, &asked, &most()).unwrap();
        assert_eq!(same, granted);
        asked.max_send_segments = 4;
        let refused = granted.modified(all, &asked, &most()).unwrap_err();
        assert_eq!(refused.status, status::IT_ERR_OP_NOT_SUPPORTED);
        assert!(granted.modified(IT_EP_PARAM_MAX_ORD, &asked, &most()).is_ok());
    }
}
