//! Which providers there are. The only place of the access layer that names one.
//!
//! [`Ual`] owns the list and the configuration; both are fixed once it is made. Any thread.

use std::sync::Arc;

use kal_shim::HostServices;
use vp_api::{DeviceInfo, Provider, Unavailable};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::policy::Policies;
use crate::resource::Ia;

/// Providers that come with the library.
fn builtin() -> Vec<Arc<dyn Provider>> {
    vec![Arc::new(vp_softrdma::SoftRdma), Arc::new(vp_verbs::Verbs::default())]
}

/// A provider as listed.
#[derive(Clone, Debug)]
pub struct ProviderListing {
    /// Stable name.
    pub name: String,
    /// Version or build id.
    pub version: String,
    /// Its devices, or why it has none.
    pub devices: std::result::Result<Vec<DeviceInfo>, Unavailable>,
}

/// The access layer: providers and configuration.
pub struct Ual {
    providers: Vec<Arc<dyn Provider>>,
    config: Config,
}

impl Ual {
    /// With the configuration file, if there is one ([`Config::load`]).
    pub fn new() -> Result<Arc<Self>> {
        Ok(Self::with_config(Config::load()?))
    }

    /// With the built-in providers and this configuration.
    pub fn with_config(config: Config) -> Arc<Self> {
        Self::with_providers(builtin(), config)
    }

    /// With these providers only.
    pub fn with_providers(providers: Vec<Arc<dyn Provider>>, config: Config) -> Arc<Self> {
        let disabled = &config.providers.disabled;
        let providers =
            providers.into_iter().filter(|p| !disabled.iter().any(|name| name == p.name()));
        Arc::new(Self { providers: providers.collect(), config })
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// All providers with their devices; one that cannot work says why.
    pub fn providers(&self) -> Vec<ProviderListing> {
        let list = |p: &Arc<dyn Provider>| ProviderListing {
            name: p.name().to_owned(),
            version: p.version().to_owned(),
            devices: p.devices(),
        };
        self.providers.iter().map(list).collect()
    }

    /// Opens a device by its name, or the first device of the provider of that name
    /// (IT-API `it_ia_create`).
    pub fn open(&self, name: &str) -> Result<Arc<Ia>> {
        let (provider, device) = self.locate(name)?;
        let services = Arc::new(HostServices);
        let rnic = provider.open(&device, services).map_err(Error::verb("open the device"))?;
        let policies =
            Policies { default: self.config.policy.clone(), peers: self.config.peers.clone() };
        Ia::new(device, provider.name().to_owned(), rnic, policies)
    }

    /// Opens the first usable device of any provider.
    pub fn open_any(&self) -> Result<Arc<Ia>> {
        let usable = |p: &&Arc<dyn Provider>| p.devices().is_ok_and(|list| !list.is_empty());
        match self.providers.iter().find(usable) {
            Some(provider) => self.open(provider.name()),
            None => Err(self.unknown("(any)")),
        }
    }

    fn locate(&self, name: &str) -> Result<(&Arc<dyn Provider>, String)> {
        for provider in &self.providers {
            match provider.devices() {
                Ok(devices) => {
                    let whole = provider.name() == name;
                    if let Some(device) = devices.iter().find(|d| whole || d.name == name) {
                        return Ok((provider, device.name.clone()));
                    }
                }
                Err(why) if provider.name() == name => {
                    return Err(Error::Unavailable { provider: name.to_owned(), why });
                }
                Err(_) => {}
            }
        }
        Err(self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        let describe = |p: &Arc<dyn Provider>| match p.devices() {
            Ok(devices) => devices.into_iter().map(|d| d.name).collect::<Vec<_>>().join(", "),
            Err(why) => format!("none of {}: {why}", p.name()),
        };
        let known: Vec<_> = self.providers.iter().map(describe).collect();
        let known = if known.is_empty() { "no provider".into() } else { known.join("; ") };
        Error::NoDevice { name: name.to_owned(), known }
    }
}
