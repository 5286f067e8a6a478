//! Pz of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct PzObject {
    pub(crate) inner: Arc<ual::Pz>,
}
