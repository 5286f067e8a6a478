//! Names used in fault rules: statuses, and kinds of objects with a limit. Plain data.

use vp_api::VpStatus;

use crate::verb::Kind;

const STATUSES: &[VpStatus] = &[
    VpStatus::InsufficientResources,
    VpStatus::InvalidModifier,
    VpStatus::InUse,
    VpStatus::InvalidHandle,
    VpStatus::Interrupted,
    VpStatus::Unsupported,
    VpStatus::CqTooSmall,
    VpStatus::InvalidPd,
    VpStatus::InvalidAddress,
    VpStatus::InvalidState,
    VpStatus::TooManyWrs,
    VpStatus::InvalidWr,
    VpStatus::InvalidSgl,
    VpStatus::InvalidIrdOrd,
    VpStatus::CannotChange,
    VpStatus::InvalidStag,
    VpStatus::StagInUse,
    VpStatus::InvalidAccess,
    VpStatus::NotPrivileged,
    VpStatus::StillFlushing,
    VpStatus::InvalidStream,
    VpStatus::CqOverrun,
    VpStatus::Os,
    VpStatus::Defect,
];

/// The status with this name.
pub(super) fn status(name: &str) -> Result<VpStatus, String> {
    if name == "QueueFull" {
        return Ok(VpStatus::TooManyWrs);
    }
    let found = STATUSES.iter().copied().find(|status| format!("{status:?}") == name);
    found.ok_or_else(|| {
        let known: Vec<_> = STATUSES.iter().map(|status| format!("`{status:?}`")).collect();
        format!("`{name}` is no status; there are `QueueFull`, {}", known.join(", "))
    })
}

const KINDS: &[(&str, Kind)] = &[
    ("pd", Kind::Pd),
    ("cq", Kind::Cq),
    ("srq", Kind::Srq),
    ("qp", Kind::Qp),
    ("mr", Kind::Mr),
    ("mw", Kind::Mw),
    ("ah", Kind::Ah),
];

/// The kind with this name.
pub(super) fn kind(name: &str) -> Result<Kind, String> {
    let found = KINDS.iter().find(|(known, _)| *known == name);
    let known = || KINDS.iter().map(|(name, _)| format!("`max_{name}`")).collect::<Vec<_>>();
    let unknown = || format!("there is no limit `max_{name}`; there are {}", known().join(", "));
    found.map(|(_, kind)| *kind).ok_or_else(unknown)
}

/// The name of a kind in rules, if it has one.
pub(super) fn of_kind(kind: Kind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("object", |(name, _)| *name)
}
