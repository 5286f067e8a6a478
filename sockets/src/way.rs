//! Directions of a connection. No state.

/// Where octets go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}
