//! The messages of the communication manager as values (InfiniBand volume 1, 12.6 and 12.11).
//!
//! Fields that InfiniBand's subnets need and Ethernet does not (LIDs, EE contexts, alternate paths) are sent as
//! zeros and not read. A time code `n` means 4.096 microseconds times 2^n.
//!
//! Owner of the state: none, pure functions. Any thread.

mod parts;

pub use self::parts::{ConnectionIds, Gid, Private, RejectReason, Rejected, SidrStatus};
use super::mad::{Body, Mad, MadError};
use crate::psn::Psn;

/// Request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's communication id.
    pub local_id: u32,
    /// Service id of the listener.
    pub service: u64,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// The sender's queue pair.
    pub qpn: u32,
    /// RDMA Reads and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// RDMA Reads and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// Code of the time within which the receiver is to reply, 5 bits.
    pub remote_response_timeout: u8,
    /// Code of the time within which the sender replies, 5 bits.
    pub local_response_timeout: u8,
    /// Transport service, 2 bits: 0 is RC, 1 is UC.
    pub transport: u8,
    /// The PSN with which the **receiver** of this message begins to send.
    pub starting_psn: Psn,
    /// Retries of the receiver's requests, 3 bits.
    pub retry_count: u8,
    /// Retries after RNR NAKs, 3 bits; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// Partition.
    pub pkey: u16,
    /// Code of the path MTU, 4 bits: 1 to 5 for 256 to 4096.
    pub mtu: u8,
    /// Retries of messages such as this one, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's GID; for RoCE v2 its IP address.
    pub local_gid: Gid,
    /// The receiver's GID.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Code of the path's rate, 6 bits.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Code of the sender's acknowledgement time-out, 5 bits.
    pub ack_timeout: u8,
    /// Private data.
    pub private: Private<92>,
}

/// Reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// Communication ids.
    pub ids: ConnectionIds,
    /// The sender's queue pair.
    pub qpn: u32,
    /// The PSN with which the **receiver** of this message begins to send.
    pub starting_psn: Psn,
    /// RDMA Reads and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// RDMA Reads and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// Code of the time that the sender takes to acknowledge, 5 bits.
    pub target_ack_delay: u8,
    /// Retries after RNR NAKs, 3 bits; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub ca_guid: u64,
    /// Private data.
    pub private: Private<196>,
}

/// A message of the communication manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Message {
    /// Request for a connection.
    Req(Req),
    /// The receiver needs longer than the sender's time-out.
    Mra {
        /// Communication ids.
        ids: ConnectionIds,
        /// Which message was received.
        of: Rejected,
        /// Code of the time that it needs, 5 bits.
        timeout: u8,
        /// Private data.
        private: Private<222>,
    },
    /// Refusal.
    Rej {
        /// Communication ids; the remote one is 0 where it is not known.
        ids: ConnectionIds,
        /// Which message is refused.
        of: Rejected,
        /// Why.
        reason: RejectReason,
        /// Private data.
        private: Private<148>,
    },
    /// Reply to a request.
    Rep(Rep),
    /// Ready to use: the end of the three-way handshake.
    Rtu {
        /// Communication ids.
        ids: ConnectionIds,
        /// Private data.
        private: Private<224>,
    },
    /// Request to disconnect.
    Dreq {
        /// Communication ids.
        ids: ConnectionIds,
        /// The receiver's queue pair.
        remote_qpn: u32,
        /// Private data.
        private: Private<220>,
    },
    /// Reply to a request to disconnect.
    Drep {
        /// Communication ids.
        ids: ConnectionIds,
        /// Private data.
        private: Private<224>,
    },
    /// Request for the queue pair of a datagram service.
    SidrReq {
        /// Chosen by the sender; the reply repeats it.
        request: u32,
        /// Partition.
        pkey: u16,
        /// Service id.
        service: u64,
        /// Private data.
        private: Private<216>,
    },
    /// Reply to a service request.
    SidrRep {
        /// That of the request.
        request: u32,
        /// Whether the service was found.
        status: SidrStatus,
        /// Its queue pair.
        qpn: u32,
        /// Service id.
        service: u64,
        /// Its queue key.
        qkey: u32,
        /// Private data.
        private: Private<136>,
    },
}

/// Attribute ids (InfiniBand volume 1).
mod attribute {
    pub(super) const REQ: u16 = 0x10;
    pub(super) const MRA: u16 = 0x11;
    pub(super) const REJ: u16 = 0x12;
    pub(super) const REP: u16 = 0x13;
    pub(super) const RTU: u16 = 0x14;
    pub(super) const DREQ: u16 = 0x15;
    pub(super) const DREP: u16 = 0x16;
    pub(super) const SIDR_REQ: u16 = 0x17;
    pub(super) const SIDR_REP: u16 = 0x18;
}

impl Message {
    /// Reads the message of a management datagram.
    pub fn parse(mad: &Mad) -> Result<Self, MadError> {
        let body = &mad.body;
        Ok(match mad.attribute {
            attribute::REQ => Self::Req(Req::parse(body)),
            attribute::MRA => Self::Mra {
                ids: ConnectionIds::parse(body),
                of: Rejected::parse(body.bits(8, 0, 2)),
                timeout: body.bits(9, 0, 5),
                private: Private::parse(body, 10),
            },
            attribute::REJ => Self::Rej {
                ids: ConnectionIds::parse(body),
                of: Rejected::parse(body.bits(8, 0, 2)),
                reason: RejectReason(body.u16(10)),
                private: Private::parse(body, 84),
            },
            attribute::REP => Self::Rep(Rep::parse(body)),
            attribute::RTU => {
                Self::Rtu { ids: ConnectionIds::parse(body), private: Private::parse(body, 8) }
            }
            attribute::DREQ => Self::Dreq {
                ids: ConnectionIds::parse(body),
                remote_qpn: body.u24(8),
                private: Private::parse(body, 12),
            },
            attribute::DREP => {
                Self::Drep { ids: ConnectionIds::parse(body), private: Private::parse(body, 8) }
            }
            attribute::SIDR_REQ => Self::SidrReq {
                request: body.u32(0),
                pkey: body.u16(4),
                service: body.u64(8),
                private: Private::parse(body, 16),
            },
            attribute::SIDR_REP => Self::SidrRep {
                request: body.u32(0),
                status: SidrStatus(body.u8(4)),
                qpn: body.u24(8),
                service: body.u64(12),
                qkey: body.u32(20),
                private: Private::parse(body, 96),
            },
            other => return Err(MadError::Attribute(other)),
        })
    }

    /// The management datagram with this message and `transaction`.
    pub fn emit(&self, transaction: u64) -> Mad {
        let mut body = Body::default();
        match self {
            Self::Req(req) => req.emit(&mut body),
            Self::Rep(rep) => rep.emit(&mut body),
            Self::Mra { ids, of, timeout, private } => {
                ids.emit(&mut body);
                body.put_bits(8, 0, 2, *of as u8);
                body.put_bits(9, 0, 5, *timeout);
                private.emit(&mut body, 10);
            }
            Self::Rej { ids, of, reason, private } => {
                ids.emit(&mut body);
                body.put_bits(8, 0, 2, *of as u8);
                body.put(10, &reason.0.to_be_bytes());
                private.emit(&mut body, 84);
            }
            Self::Rtu { ids, private } | Self::Drep { ids, private } => {
                ids.emit(&mut body);
                private.emit(&mut body, 8);
            }
            Self::Dreq { ids, remote_qpn, private } => {
                ids.emit(&mut body);
                body.put_u24(8, *remote_qpn);
                private.emit(&mut body, 12);
            }
            Self::SidrReq { request, pkey, service, private } => {
                body.put_u32(0, *request);
                body.put(4, &pkey.to_be_bytes());
                body.put_u64(8, *service);
                private.emit(&mut body, 16);
            }
            Self::SidrRep { request, status, qpn, service, qkey, private } => {
                body.put_u32(0, *request);
                body.put(4, &[status.0]);
                body.put_u24(8, *qpn);
                body.put_u64(12, *service);
                body.put_u32(20, *qkey);
                private.emit(&mut body, 96);
            }
        }
        Mad { transaction, attribute: self.attribute(), body }
    }

    const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => attribute::REQ,
            Self::Mra { .. } => attribute::MRA,
            Self::Rej { .. } => attribute::REJ,
            Self::Rep(_) => attribute::REP,
            Self::Rtu { .. } => attribute::RTU,
            Self::Dreq { .. } => attribute::DREQ,
            Self::Drep { .. } => attribute::DREP,
            Self::SidrReq { .. } => attribute::SIDR_REQ,
            Self::SidrRep { .. } => attribute::SIDR_REP,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "ConnectRequest",
            Self::Mra { .. } => "MsgRcptAck",
            Self::Rej { .. } => "ConnectReject",
            Self::Rep(_) => "ConnectReply",
            Self::Rtu { .. } => "ReadyToUse",
            Self::Dreq { .. } => "DisconnectRequest",
            Self::Drep { .. } => "DisconnectReply",
            Self::SidrReq { .. } => "ServiceIDResReq",
            Self::SidrRep { .. } => "ServiceIDResReqResp",
        }
    }
}

/// LIDs of peers that have none: the permissive LID, as the kernel's rdma_cm sends it.
const NO_LID: u16 = 0xffff;

impl Req {
    fn parse(body: &Body) -> Self {
        Self {
            local_id: body.u32(0),
            service: body.u64(8),
            ca_guid: body.u64(16),
            qpn: body.u24(32),
            responder_resources: body.u8(35),
            initiator_depth: body.u8(39),
            remote_response_timeout: body.bits(43, 0, 5),
            transport: body.bits(43, 5, 2),
            starting_psn: Psn::new(body.u24(44)),
            local_response_timeout: body.bits(47, 0, 5),
            retry_count: body.bits(47, 5, 3),
            pkey: body.u16(48),
            mtu: body.bits(50, 0, 4),
            rnr_retry_count: body.bits(50, 5, 3),
            max_cm_retries: body.bits(51, 0, 4),
            srq: body.bits(51, 4, 1) == 1,
            local_gid: Gid(body.octets(56)),
            remote_gid: Gid(body.octets(72)),
            flow_label: body.u32(88) >> 12,
            rate: body.bits(91, 2, 6),
            traffic_class: body.u8(92),
            hop_limit: body.u8(93),
            service_level: body.bits(94, 0, 4),
            ack_timeout: body.bits(95, 0, 5),
            private: Private::parse(body, 140),
        }
    }

    fn emit(&self, body: &mut Body) {
        body.put_u32(0, self.local_id);
        body.put_u64(8, self.service);
        body.put_u64(16, self.ca_guid);
        body.put_u24(32, self.qpn);
        body.put(35, &[self.responder_resources]);
        body.put(39, &[self.initiator_depth]);
        body.put_bits(43, 0, 5, self.remote_response_timeout);
        body.put_bits(43, 5, 2, self.transport);
        // [IBCM-02]
        body.put_u24(44, self.starting_psn.get());
        body.put_bits(47, 0, 5, self.local_response_timeout);
        body.put_bits(47, 5, 3, self.retry_count);
        body.put(48, &self.pkey.to_be_bytes());
        body.put_bits(50, 0, 4, self.mtu);
        body.put_bits(50, 5, 3, self.rnr_retry_count);
        body.put_bits(51, 0, 4, self.max_cm_retries);
        body.put_bits(51, 4, 1, u8::from(self.srq));
        body.put(52, &NO_LID.to_be_bytes());
        body.put(54, &NO_LID.to_be_bytes());
        body.put(56, &self.local_gid.0);
        body.put(72, &self.remote_gid.0);
        body.put_u32(88, self.flow_label << 12);
        body.put_bits(91, 2, 6, self.rate);
        body.put(92, &[self.traffic_class, self.hop_limit]);
        body.put_bits(94, 0, 4, self.service_level);
        body.put_bits(95, 0, 5, self.ack_timeout);
        self.private.emit(body, 140);
    }
}

impl Rep {
    fn parse(body: &Body) -> Self {
        Self {
            ids: ConnectionIds::parse(body),
            qpn: body.u24(12),
            starting_psn: Psn::new(body.u24(20)),
            responder_resources: body.u8(24),
            initiator_depth: body.u8(25),
            target_ack_delay: body.bits(26, 0, 5),
            rnr_retry_count: body.bits(27, 0, 3),
            srq: body.bits(27, 3, 1) == 1,
            ca_guid: body.u64(28),
            private: Private::parse(body, 36),
        }
    }

    fn emit(&self, body: &mut Body) {
        self.ids.emit(body);
        body.put_u24(12, self.qpn);
        body.put_u24(20, self.starting_psn.get());
        body.put(24, &[self.responder_resources, self.initiator_depth]);
        body.put_bits(26, 0, 5, self.target_ack_delay);
        body.put_bits(27, 0, 3, self.rnr_retry_count);
        body.put_bits(27, 3, 1, u8::from(self.srq));
        body.put_u64(28, self.ca_guid);
        self.private.emit(body, 36);
    }
}
