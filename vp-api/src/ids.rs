//! Ids of verbs objects. An id is unique within one RNIC and is not reused soon, so that a stale id is an error and
//! never names another object.

macro_rules! id {
    ($(#[$doc:meta] $name:ident),+ $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub u32);
    )+};
}

id! {
    /// Protection domain.
    PdId,
    /// Completion queue.
    CqId,
    /// Shared receive queue.
    SrqId,
    /// Queue pair.
    QpId,
    /// Memory window: the index of its STag.
    MwId,
}

/// Steering tag: 24-bit index (chosen by the provider) and 8-bit key (chosen by the consumer, low octet); RDMAC
/// Verbs 7.2. It appears on the wire and in SGEs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Stag(pub u32);

impl Stag {
    /// STag 0: physical or whole-process memory, privileged QPs only (RDMAC 7.2.1).
    pub const PRIVILEGED: Self = Self(0);

    /// Composes an STag.
    pub const fn new(index: u32, key: u8) -> Self {
        Self((index << 8) | key as u32)
    }
    /// The 24-bit index.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }
    /// The key octet.
    pub const fn key(self) -> u8 {
        self.0 as u8
    }
}
