//! A device that is lost while it is open: it was removed, or it failed for good.
//!
//! Owner: the open device; its event thread runs this once. The kernel says so by an asynchronous event, or closes the
//! descriptors, when it has destroyed the device's objects; no request completes from then on. So each connection ends here, and
//! each request that is left completes as flushed, behind what the device has completed. Posts, resets and destroying
//! go on without the device; whatever needs it is refused. An administrator may make the device anew, under the same name: for
//! the kernel that is another one, and it is opened again.

use vp_api::{AsyncEvent, EventSource, LogLevel};

use crate::device_objects::DeviceObjects;

impl DeviceObjects {
    /// The kernel has destroyed the device's objects.
    pub(crate) fn lost(&self) {
        if !self.context.is_gone_now() {
            return;
        }
        let message = format!("{}: the device is gone", self.context.name);
        self.services.log(LogLevel::Error, "verbs", &message);
        // First, so that nobody connects again by this device.
        if self.context.is_to_be_told() {
            self.sink.emit(EventSource::Rnic, AsyncEvent::Catastrophic);
        }
        self.qps.all().iter().for_each(|qp| qp.lost());
        self.uds.all().iter().for_each(|qp| qp.lost());
        if let Some(cm) = self.cm.upgrade() {
            cm.lost();
        }
    }
}
