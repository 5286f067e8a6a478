//! Ia of C.

use std::sync::Arc;

/// What a handle of this kind names.
pub(crate) struct IaObject {
    pub(crate) inner: Arc<ual::Ia>,
}
