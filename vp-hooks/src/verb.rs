//! Names of the verbs, and the objects that they belong to. Plain data.

use std::fmt;

/// Kinds of objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Rnic,
    Cm,
    Pd,
    Cq,
    Srq,
    Qp,
    Mr,
    Mw,
    Ud,
    Ah,
    Paths,
}

/// An object of an RNIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its id. For a region, the index of its STag; for the RNIC, its connection manager, its datagrams and its
    /// bring-up by path, 0.
    pub id: u32,
}

impl Object {
    pub(crate) const RNIC: Self = Self { kind: Kind::Rnic, id: 0 };
    pub(crate) const CM: Self = Self { kind: Kind::Cm, id: 0 };
    pub(crate) const UD: Self = Self { kind: Kind::Ud, id: 0 };
    pub(crate) const PATHS: Self = Self { kind: Kind::Paths, id: 0 };

    pub(crate) fn new(kind: Kind, id: u32) -> Self {
        Self { kind, id }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Rnic => f.write_str("rnic"),
            Kind::Cm => f.write_str("cm"),
            Kind::Ud => f.write_str("ud"),
            Kind::Paths => f.write_str("paths"),
            Kind::Ah => write!(f, "ah {}", self.id),
            Kind::Pd => write!(f, "pd {}", self.id),
            Kind::Cq => write!(f, "cq {}", self.id),
            Kind::Srq => write!(f, "srq {}", self.id),
            Kind::Qp => write!(f, "qp {}", self.id),
            Kind::Mr => write!(f, "mr {:#x}", self.id),
            Kind::Mw => write!(f, "mw {:#x}", self.id),
        }
    }
}

macro_rules! verbs {
    ($($verb:ident $name:literal $owner:ident $target:ident;)+) => {
        /// A verb. The verbs of one owner are adjacent.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Verb { $($verb,)+ }

        impl Verb {
            pub(crate) const ALL: &[Self] = &[$(Self::$verb,)+];

            /// Its name, as in the traits; includes the object where the name would be ambiguous.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$verb => $name,)+ }
            }

            /// The object that has the method.
            pub(crate) fn owner(self) -> Kind {
                match self { $(Self::$verb => Kind::$owner,)+ }
            }

            /// The object that it is about.
            pub(crate) fn target(self) -> Kind {
                match self { $(Self::$verb => Kind::$target,)+ }
            }
        }
    };
}

verbs! {
    Open "open" Rnic Rnic;
    SetAsyncHandler "set_async_handler" Rnic Rnic;
    AllocPd "alloc_pd" Rnic Rnic;
    DeallocPd "dealloc_pd" Rnic Pd;
    CreateCq "create_cq" Rnic Rnic;
    DestroyCq "destroy_cq" Rnic Cq;
    CreateSrq "create_srq" Rnic Rnic;
    DestroySrq "destroy_srq" Rnic Srq;
    CreateQp "create_qp" Rnic Rnic;
    DestroyQp "destroy_qp" Rnic Qp;
    RegisterMr "register_mr" Rnic Rnic;
    ReregisterMr "reregister_mr" Rnic Mr;
    RegisterSharedMr "register_shared_mr" Rnic Rnic;
    AllocStag "alloc_stag" Rnic Rnic;
    QueryMr "query_mr" Rnic Mr;
    DeallocStag "dealloc_stag" Rnic Mr;
    AllocMw "alloc_mw" Rnic Rnic;
    QueryMw "query_mw" Rnic Mw;
    DeallocMw "dealloc_mw" Rnic Mw;
    VendorCalls "vendor_calls" Rnic Rnic;
    Lead "lead" Rnic Rnic;
    Poll "poll" Cq Cq;
    Arm "arm" Cq Cq;
    Wait "wait" Cq Cq;
    Interrupt "interrupt" Cq Cq;
    ResizeCq "resize_cq" Cq Cq;
    PostSrq "post_srq" Srq Srq;
    ModifySrq "modify_srq" Srq Srq;
    QuerySrq "query_srq" Srq Srq;
    PostSend "post_send" Qp Qp;
    PostRecv "post_recv" Qp Qp;
    Connect "connect" Qp Qp;
    ModifyQp "modify_qp" Qp Qp;
    QueryQp "query_qp" Qp Qp;
    SetQkey "set_qkey" Qp Qp;
    ResetUdQp "reset_qp" Qp Qp;
    Attach "attach" Qp Qp;
    Detach "detach" Qp Qp;
    Listen "listen" Cm Cm;
    Unlisten "unlisten" Cm Cm;
    NativeConnect "connect" Cm Qp;
    Accept "accept" Cm Qp;
    Reject "reject" Cm Cm;
    Disconnect "disconnect" Cm Qp;
    PollEvent "poll_event" Cm Cm;
    WaitEvent "wait_event" Cm Cm;
    MaxPayload "max_payload" Ud Ud;
    CreateUdQp "create_qp" Ud Ud;
    DestroyUdQp "destroy_qp" Ud Qp;
    CreateAh "create_ah" Ud Ud;
    QueryAh "query_ah" Ud Ah;
    DestroyAh "destroy_ah" Ud Ah;
    SetServiceHandler "set_service_handler" Ud Ud;
    ListenService "listen_service" Ud Ud;
    UnlistenService "unlisten_service" Ud Ud;
    ResolveService "resolve_service" Ud Ud;
    CancelService "cancel_service" Ud Ud;
    AcceptService "accept_service" Ud Ud;
    RejectService "reject_service" Ud Ud;
    PathNumber "path_number" Paths Qp;
    PathUnreliable "path_unreliable" Paths Qp;
    PathReceive "path_receive" Paths Qp;
    PathSend "path_send" Paths Qp;
}

impl Verb {
    /// Whether it is on the data path: it may be called millions of times a second.
    pub(crate) fn is_data(self) -> bool {
        use Verb::*;
        matches!(self, Poll | Arm | PostSrq | PostSend | PostRecv | PollEvent)
    }

    /// Whether it can return an error.
    pub(crate) fn can_fail(self) -> bool {
        use Verb::*;
        !matches!(self, SetAsyncHandler | SetServiceHandler | Interrupt | PollEvent)
    }

    /// The kind of object that it creates.
    pub(crate) fn creates(self) -> Option<Kind> {
        use Verb::*;
        match self {
            AllocPd => Some(Kind::Pd),
            CreateCq => Some(Kind::Cq),
            CreateSrq => Some(Kind::Srq),
            CreateQp | CreateUdQp => Some(Kind::Qp),
            RegisterMr | RegisterSharedMr | AllocStag => Some(Kind::Mr),
            AllocMw => Some(Kind::Mw),
            CreateAh => Some(Kind::Ah),
            _ => None,
        }
    }

    /// Whether it destroys its target.
    pub(crate) fn destroys(self) -> bool {
        use Verb::*;
        matches!(
            self,
            DeallocPd
                | DestroyCq
                | DestroySrq
                | DestroyQp
                | DestroyUdQp
                | DeallocStag
                | DeallocMw
                | DestroyAh
        )
    }

    /// The verbs of one owner, in order.
    pub(crate) fn of(owner: Kind) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |verb| verb.owner() == owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_one_owner_stand_together() {
        for owner in [Kind::Rnic, Kind::Cq, Kind::Srq, Kind::Qp, Kind::Cm, Kind::Ud, Kind::Paths] {
            let first = Verb::of(owner).next().map_or(0, |verb| verb as usize);
            for (at, verb) in Verb::of(owner).enumerate() {
                assert_eq!(verb as usize, first + at, "{verb:?}");
            }
        }
    }
}
