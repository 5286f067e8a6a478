//! Evd of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct EvdObject {
    pub(crate) inner: Arc<ual::Evd>,
}
