//! Srq of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct SrqObject {
    pub(crate) inner: Arc<ual::Srq>,
}
