//! A layer that puts one fault into any provider, to show that the provider suite sees it.
//!
//! The layer gets the fault's name ([`Fault`]) by its arguments, or by the environment
//! (`WARPLINE_SEEDED=CloseIsLost`); without one, it passes all calls on. A name
//! that is not a fault's is refused, so that the suite is not run without a fault by mistake:
//! an empty variable, too. Each wrapper owns the
//! object behind it and what its fault needs; any thread. A peer's death is the wrapped provider's
//! matter.

mod border;
mod cm;
mod cq;
mod faults;
mod memory;
mod paths;
mod qp;
mod rnic;
mod seed;
mod srq;
mod ud;

use std::env::VarError;
use std::sync::Arc;

use vp_api::*;

pub use faults::{Base, Fault};
use seed::Seed;

export_layer!("seeded", Capabilities::all(), wrap);

/// Where the fault's name is, if the layer's arguments are empty.
const VARIABLE: &str = "WARPLINE_SEEDED";

fn wrap(inner: Arc<dyn Provider>, arguments: &str) -> Result<Arc<dyn Provider>, String> {
    Ok(seed(inner, chosen(arguments)?))
}

/// The fault that the arguments name, else the environment.
fn chosen(arguments: &str) -> Result<Option<Fault>, String> {
    if !arguments.is_empty() {
        return named("the layer's argument", arguments).map(Some);
    }
    match std::env::var(VARIABLE) {
        Ok(text) => named(VARIABLE, &text).map(Some),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(text)) => {
            Err(format!("{VARIABLE} is no text: {}", text.display()))
        }
    }
}

/// The one fault that `text` names, which stands in `place`.
fn named(place: &str, text: &str) -> Result<Fault, String> {
    let is_between = |c: char| c.is_whitespace() || ",;+|".contains(c);
    let mut names = text.split(is_between).filter(|name| !name.is_empty());
    match (names.next(), names.count()) {
        (None, _) => Err(format!("{place} has no name of a fault: name one, or unset it")),
        (Some(name), 0) => Fault::named(name).ok_or_else(|| {
            format!(
                "{place}: there is no fault `{name}`; vp-api/suite/seeded/src/faults.rs has all"
            )
        }),
        (Some(_), more) => {
            Err(format!("{place} names {} faults, one is played at a time: `{text}`", more + 1))
        }
    }
}

/// The provider with the fault, or as it is.
pub fn seed(inner: Arc<dyn Provider>, fault: Option<Fault>) -> Arc<dyn Provider> {
    match fault {
        Some(fault) if fault.base().is_tables() => border::through_the_tables(inner, fault),
        fault => Arc::new(Seeded { inner, fault }),
    }
}

struct Seeded {
    inner: Arc<dyn Provider>,
    fault: Option<Fault>,
}

impl Provider for Seeded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        let mut devices = self.inner.devices()?;
        match self.fault {
            Some(Fault::NoPort) => devices.iter_mut().for_each(|device| device.ports.clear()),
            Some(Fault::ListedTwice) => devices.extend(devices.clone()),
            _ => {}
        }
        Ok(devices)
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        let seed = Arc::new(Seed::new(self.fault, services.clone()));
        if self.fault == Some(Fault::ServicesKept) {
            std::mem::forget(services);
        }
        let opened = self.inner.open(device, seed.clone());
        let inner = match (opened, self.inner.devices()) {
            (Err(_), Ok(all)) if self.fault == Some(Fault::OpensAnything) => {
                self.inner.open(&all[0].name, seed.clone())?
            }
            (opened, _) => opened?,
        };
        if self.fault == Some(Fault::CloseIsLost) {
            std::mem::forget(inner.clone());
        }
        Ok(Arc::new(rnic::Rnic::new(inner, seed)))
    }
}
