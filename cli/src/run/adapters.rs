//! Warns of RDMA adapters of this machine, which a program on the verbs libraries does not see. No state.

use std::env;

use ual::Ual;

use crate::error::{CliError, Exit};

const KERNEL: &str = "/sys/class/infiniband";
/// Shows RoCE in place of SoftRDMA.
pub(super) const ROCE: &str = "WARPLINE_VERBS_ROCE";
/// Makes several devices of SoftRDMA or RoCE: `NAME=INTERFACE,…`.
const SPLIT: &str = "WARPLINE_VERBS_DEVICES";

/// The warning, if there are adapters.
pub(super) fn hidden(roce: bool) -> Option<CliError> {
    let found = std::fs::read_dir(KERNEL).ok()?.filter_map(Result::ok);
    let mut names: Vec<_> = found.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.is_empty() {
        return None;
    }
    let what = format!("the program will not see {}: it sees {}", names.join(", "), seen(roce));
    let note = CliError::new(Exit::Failed, what).because("its verbs libraries are Warpline's");
    Some(note.hint("run it without `warpline run` to use the adapters"))
}

/// The devices of SoftRDMA or RoCE, each with the one interface that it shows, or all.
pub(super) fn own(roce: bool) -> Vec<(String, Option<String>)> {
    let split = env::var(SPLIT).unwrap_or_default();
    let pairs = split.split(',').filter_map(|pair| pair.trim().split_once('='));
    let devices: Vec<_> = pairs.map(|(name, it)| (name.to_owned(), Some(it.to_owned()))).collect();
    let usual = if roce { "roce0" } else { "softrdma0" };
    if devices.is_empty() { vec![(usual.into(), None)] } else { devices }
}

/// Names of the devices that it sees.
fn seen(roce: bool) -> String {
    let mut names: Vec<_> = own(roce).into_iter().map(|(name, _)| name).collect();
    // Devices of libraries are not listed here: that would load them.
    let libraries = Ual::new().map(|ual| ual.known()).unwrap_or_default().into_iter();
    let libraries = libraries.filter(|(_, library)| library.is_some());
    names.extend(libraries.map(|(name, _)| format!("devices of {name}")));
    names.join(", ")
}
