//! The devices that a program on the verbs libraries sees, and a warning of RDMA adapters of this machine, which it does
//! not see. No state.

use std::env;

use ual::Ual;

use super::args::Shown;
use super::environment::VIEW;
use crate::error::{CliError, Exit};

const KERNEL: &str = "/sys/class/infiniband";
/// `1` shows only RoCE, `0` only SoftRDMA.
pub(super) const ROCE: &str = "WARPLINE_VERBS_ROCE";
/// Devices of one interface each instead: `NAME=INTERFACE,NAME=PROTOCOL:INTERFACE,…`.
const SPLIT: &str = "WARPLINE_VERBS_DEVICES";

/// A device of SoftRDMA or RoCE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) is_roce: bool,
    /// The one interface that it shows; all otherwise.
    pub(super) interface: Option<String>,
}

impl Shown {
    /// What the variable asks for, unless an option does.
    pub(super) fn or_of_variable(self) -> Self {
        match (self, env::var(ROCE).as_deref().map(str::trim)) {
            (Self::Both, Ok("0")) => Self::Iwarp,
            (Self::Both, Ok("1")) => Self::Roce,
            _ => self,
        }
    }

    /// The value of the variable.
    pub(super) fn variable(self) -> Option<&'static str> {
        match self {
            Self::Both => None,
            Self::Iwarp => Some("0"),
            Self::Roce => Some("1"),
        }
    }
}

/// The warning, if there are adapters.
pub(super) fn hidden(shown: Shown) -> Option<CliError> {
    // By another `warpline run`, which has said it, this process sees a view there.
    if env::var_os(VIEW).is_some() {
        return None;
    }
    let found = std::fs::read_dir(KERNEL).ok()?.filter_map(Result::ok);
    let mut names: Vec<_> = found.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.is_empty() {
        return None;
    }
    let what = format!("the program will not see {}: it sees {}", names.join(", "), seen(shown));
    let note = CliError::new(Exit::Failed, what).because("its verbs libraries are Warpline's");
    Some(note.hint("run it without `warpline run` to use the adapters"))
}

/// The devices of SoftRDMA and RoCE, in the order in which libibverbs lists them.
pub(super) fn own(shown: Shown) -> Vec<Device> {
    let split = env::var(SPLIT).unwrap_or_default();
    let kinds = [("iwarp", "softrdma0"), ("roce", "roce0")];
    let kinds = kinds.into_iter().filter(|(kind, _)| match shown {
        Shown::Both => true,
        Shown::Iwarp => *kind == "iwarp",
        Shown::Roce => *kind == "roce",
    });
    let kinds: Vec<_> = kinds.collect();
    let of_split = |(kind, _): &(&'static str, _)| -> Vec<Device> {
        let pairs = split.split(',').filter_map(|pair| pair.trim().split_once('='));
        let all = pairs.map(|(name, rest)| match rest.split_once(':') {
            Some((protocol, interface)) => (name, protocol, interface),
            None => (name, kinds[0].0, rest),
        });
        let own = all.filter(|(_, protocol, _)| protocol == kind);
        own.map(|(name, kind, interface)| device(name, kind, Some(interface))).collect()
    };
    let devices: Vec<_> = kinds.iter().flat_map(of_split).collect();
    match devices.is_empty() {
        true => kinds.iter().map(|(kind, name)| device(name, kind, None)).collect(),
        false => devices,
    }
}

fn device(name: &str, kind: &str, interface: Option<&str>) -> Device {
    let interface = interface.map(str::to_owned);
    Device { name: name.to_owned(), is_roce: kind == "roce", interface }
}

/// Names of the devices that it sees.
fn seen(shown: Shown) -> String {
    let mut names: Vec<_> = own(shown).into_iter().map(|device| device.name).collect();
    // Devices of libraries are not listed here: that would load them.
    let libraries = Ual::new().map(|ual| ual.known()).unwrap_or_default().into_iter();
    let libraries = libraries.filter(|(_, library)| library.is_some());
    names.extend(libraries.map(|(name, _)| format!("devices of {name}")));
    names.join(", ")
}
