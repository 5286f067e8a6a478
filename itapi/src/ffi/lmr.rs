//! Lmr of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct LmrObject {
    pub(crate) inner: Arc<ual::Lmr>,
}
