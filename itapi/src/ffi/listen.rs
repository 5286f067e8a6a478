//! Listen of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct ListenObject {
    pub(crate) inner: Arc<ual::Listen>,
}
