//! Opens the device of a command: the one of `--device`, or the first usable one. No state.

use itapi::{Ia, IaBuilder};

/// An adapter over the device, or over the first device of the provider, of that name.
pub(crate) fn builder(device: Option<&str>) -> IaBuilder {
    match device {
        Some(device) => Ia::builder().device(device),
        None => Ia::builder(),
    }
}
