//! Checks the device names that a provider lists. They are printed to terminals and logs, and each must name one
//! device. No state.

use crate::DeviceInfo;

/// What is wrong with the names of a listing.
pub(super) fn fault(devices: &[DeviceInfo]) -> Option<String> {
    let names = || devices.iter().map(|device| device.name.as_str());
    names().enumerate().find_map(|(at, name)| {
        let is_odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
        if name.is_empty() {
            return Some(format!("device {at} of its listing has no name"));
        }
        if name.contains(is_odd) {
            return Some(format!("the name of a device has control characters: {name:?}"));
        }
        let twice = names().skip(at + 1).any(|other| other == name);
        twice.then(|| format!("it lists the device {name} twice"))
    })
}
