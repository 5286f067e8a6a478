//! Ep of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct EpObject {
    pub(crate) inner: Arc<ual::Ep>,
}
