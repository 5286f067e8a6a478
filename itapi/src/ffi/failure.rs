//! Why an entry point refuses: an IT-API status and the long text behind it. No state.

use super::status::Status;

/// A refusal.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What C gets.
    pub(crate) status: Status,
    /// What `itw_last_error` says: what was wrong, where, what to do.
    pub(crate) text: String,
}

/// Result of an entry point's body.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}
