//! Rmr of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct RmrObject {
    pub(crate) inner: Arc<ual::Rmr>,
}
