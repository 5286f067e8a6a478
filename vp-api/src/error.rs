//! Immediate errors of verbs, with stable numeric status codes.

use thiserror::Error;

/// Result of a verb.
pub type VpResult<T> = Result<T, VpError>;

/// Immediate status of a verb. The numbers are stable: they cross the provider ABI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[repr(u32)]
#[non_exhaustive]
pub enum VpStatus {
    /// Out of memory or of table entries.
    #[error("insufficient resources")]
    InsufficientResources = 1,
    /// An argument is not allowed.
    #[error("invalid modifier")]
    InvalidModifier = 2,
    /// The object is still used by others.
    #[error("object in use")]
    InUse = 4,
    /// No such object, or destroyed.
    #[error("invalid handle")]
    InvalidHandle = 5,
    /// A signal handler ran in the waiting thread.
    #[error("interrupted by a signal")]
    Interrupted = 6,
    /// The provider does not support this.
    #[error("not supported by this provider")]
    Unsupported = 10,
    /// CQ too small for the entries it holds.
    #[error("completion queue too small")]
    CqTooSmall = 11,
    /// The PD does not exist or does not match.
    #[error("invalid protection domain")]
    InvalidPd = 13,
    /// Address range not usable.
    #[error("invalid address range")]
    InvalidAddress = 15,
    /// Not in this QP state.
    #[error("invalid queue pair state")]
    InvalidState = 18,
    /// Queue full, or a list longer than the queue.
    #[error("too many work requests")]
    TooManyWrs = 19,
    /// Operation not allowed here.
    #[error("invalid work request type")]
    InvalidWr = 20,
    /// Scatter/gather list too long, or a sum above 2^32 - 1.
    #[error("invalid scatter/gather list")]
    InvalidSgl = 21,
    /// IRD or ORD out of range.
    #[error("IRD or ORD out of range")]
    InvalidIrdOrd = 25,
    /// The attribute cannot change now.
    #[error("attribute cannot be changed")]
    CannotChange = 26,
    /// No such STag, or the wrong kind.
    #[error("invalid STag")]
    InvalidStag = 27,
    /// A memory window is bound to the region.
    #[error("memory windows are bound to the region")]
    StagInUse = 30,
    /// An impossible combination of access rights.
    #[error("invalid access rights")]
    InvalidAccess = 33,
    /// Needs a privileged QP or process.
    #[error("insufficient privileges")]
    NotPrivileged = 75,
    /// Modify to Idle while completions are still being flushed, or events delivered.
    #[error("still flushing")]
    StillFlushing = 76,
    /// The stream handle is not a connected stream.
    #[error("invalid LLP stream")]
    InvalidStream = 77,
    /// The CQ lost completions and is unusable.
    #[error("completion queue overrun")]
    CqOverrun = 78,
    /// A system call refused; see the detail.
    #[error("operating system error")]
    Os = 79,
    /// The provider broke one of its own rules.
    #[error("defect in the provider")]
    Defect = 80,
    /// A provider in C returned an unknown status.
    #[error("defect in the provider: it returned {}, which is no status", number(*.0))]
    NoStatus(u32) = 81,
    /// A completion of a provider in C has an unknown status.
    #[error("defect in the provider: a completion has status {}, which is none", number(*.0))]
    NoWcStatus(u32) = 82,
    /// A completion of a provider in C has an unknown operation.
    #[error("defect in the provider: a completion is of operation {0}, which is none")]
    NoWcOpcode(u32) = 83,
    /// A completion of a provider in C reports more octets than the device's longest message.
    #[error("defect in the provider: a completion says {0} octets, more than max_message")]
    LongWc(u32) = 84,
}

/// A number that is no status. Providers that return errno have the value of the kernel's functions in mind.
fn number(code: u32) -> String {
    match code as i32 {
        errno @ -4095..0 => format!("{errno}, a negative errno?"),
        _ => code.to_string(),
    }
}

/// A refused verb: the stable code, what exactly was wrong, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{status}: {detail}")]
pub struct VpError {
    /// Stable status code.
    pub status: VpStatus,
    /// One sentence for a reader without access to the source: what failed, where, limit and value, remedy.
    pub detail: String,
}

impl VpError {
    /// Composes an error.
    pub fn new(status: VpStatus, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// An error of the operating system, with what was attempted.
    pub fn os(attempt: &str, error: &std::io::Error) -> Self {
        Self::new(VpStatus::Os, format!("{attempt}: {error}"))
    }
}

/// A list post that stopped at its first refused work request (RDMAC 8.1): the first `posted` requests are queued.
/// Small and `Copy`, because the data path never allocates for an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("work request {posted} of the list refused: {status}")]
pub struct PostFailure {
    /// Work requests accepted before the refused one.
    pub posted: usize,
    /// Why.
    pub status: VpStatus,
}

/// Why a provider cannot work on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{reason} ({remedy})")]
pub struct Unavailable {
    /// What is missing, with names and numbers.
    pub reason: String,
    /// What would make it work.
    pub remedy: String,
}

impl Unavailable {
    /// The remedy if a provider gives none.
    pub(crate) const UNKNOWN: &str = "see the provider's documentation";
    /// The remedy if what a provider returns breaks the interface.
    pub(crate) const DEFECT: &str = "ask the provider's vendor";

    /// Whether the provider itself says what would make it work.
    pub fn is_explained(&self) -> bool {
        !self.reason.is_empty()
            && !["", Self::UNKNOWN, Self::DEFECT].contains(&self.remedy.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_errno_is_shown_as_one() {
        let text = |code: i32| VpStatus::NoStatus(code as u32).to_string();
        assert!(text(-22).contains("it returned -22, a negative errno?, which"), "{}", text(-22));
        assert!(text(9999).contains("it returned 9999, which"), "{}", text(9999));
        assert!(text(i32::MIN).contains("it returned 2147483648, which"), "{}", text(i32::MIN));
    }
}
