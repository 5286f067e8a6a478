//! The registry of providers; no other part of the access layer names one.
//!
//! [`Ual`] owns the list and the configuration; both are fixed once it is made. Libraries are loaded on
//! first use; one that cannot be used is listed with the reason. Each provider is wrapped as the
//! configuration says. Any thread.

mod library;
mod manifest;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use kal_shim::HostServices;
use vp_api::{DeviceInfo, Provider, Rnic, Services, Unavailable};

use crate::config::{Config, program};
use crate::error::{Error, Result};
use crate::resource::Ia;

use library::Library;

/// Built-in providers, without wrappers: no configuration applies to them.
pub fn builtin() -> Vec<Arc<dyn Provider>> {
    vec![
        Arc::new(vp_softrdma::SoftRdma),
        Arc::new(vp_verbs::Verbs::default()),
        Arc::new(vp_roce::Roce),
    ]
}

/// Providers whose devices are opened only by name, or where `[providers]` `order` names them: RoCE has no
/// authentication.
const BY_NAME: [&str; 1] = [vp_roce::NAME];

/// A provider as listed.
#[derive(Clone, Debug)]
pub struct ProviderListing {
    /// Stable name.
    pub name: String,
    /// Version or build id; empty if it could not be loaded.
    pub version: String,
    /// The library that has it; `None`: it is built in.
    pub library: Option<PathBuf>,
    /// Its devices, or why it has none.
    pub devices: std::result::Result<Vec<DeviceInfo>, Unavailable>,
}

/// A provider that is loaded, is loaded on first use, or is disabled.
enum Source {
    Built(Arc<dyn Provider>),
    Library(Library),
    Disabled { name: String, place: Option<PathBuf>, why: Unavailable },
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Self::Built(provider) => provider.name(),
            Self::Library(library) => &library.name,
            Self::Disabled { name, .. } => name,
        }
    }

    /// The library that has it.
    fn place(&self) -> Option<&PathBuf> {
        match self {
            Self::Built(_) => None,
            Self::Library(library) => Some(&library.place),
            Self::Disabled { place, .. } => place.as_ref(),
        }
    }

    /// The same provider, disabled.
    fn disabled(&self) -> Self {
        let why = Unavailable {
            reason: "the configuration disables it".into(),
            remedy: "take it out of `[providers]` `disabled`".into(),
        };
        Self::Disabled { name: self.name().to_owned(), place: self.place().cloned(), why }
    }

    /// Loads it if need be.
    fn provider(&self) -> std::result::Result<&Arc<dyn Provider>, &Unavailable> {
        match self {
            Self::Built(provider) => Ok(provider),
            Self::Library(library) => library.provider(),
            Self::Disabled { why, .. } => Err(why),
        }
    }

    fn devices(&self) -> std::result::Result<Vec<DeviceInfo>, Unavailable> {
        self.provider().map_err(Clone::clone)?.devices()
    }

    /// Its first device.
    fn first(&self) -> std::result::Result<(&Arc<dyn Provider>, DeviceInfo), Unavailable> {
        let provider = self.provider().map_err(Clone::clone)?;
        let none = || Unavailable {
            reason: "it lists no device".into(),
            remedy: "see `warpline devices`".into(),
        };
        let first = provider.devices()?.into_iter().next();
        Ok((provider, first.ok_or_else(none)?))
    }

    fn list(&self) -> ProviderListing {
        let version = self.provider().map_or_else(|_| String::new(), |p| p.version().to_owned());
        let (name, library) = (self.name().to_owned(), self.place().cloned());
        ProviderListing { name, version, library, devices: self.devices() }
    }
}

/// The access layer: providers and configuration.
pub struct Ual {
    sources: Vec<Source>,
    config: Config,
}

impl Ual {
    /// With the configuration file, if there is one ([`Config::load`]).
    pub fn new() -> Result<Arc<Self>> {
        Ok(Self::with_config(Config::load()?))
    }

    /// With the built-in providers, the libraries that the configuration names, and this configuration.
    pub fn with_config(config: Config) -> Arc<Self> {
        Self::with_providers(builtin(), config)
    }

    /// With these providers instead of the built-in ones. A library takes precedence over the built-in
    /// provider of its name, which is used if the library cannot be.
    pub fn with_providers(providers: Vec<Arc<dyn Provider>>, config: Config) -> Arc<Self> {
        crate::config::variables::warn_of_mistakes();
        let wrap = |name: &str| config.providers.wrap_of(name);
        let named = manifest::named(&config.providers).into_iter();
        let libraries = named.map(|named| {
            let wrap = wrap(&named.name).to_vec();
            Source::Library(Library::new(named, wrap))
        });
        let is_built = |l: &Source| providers.iter().any(|p| p.name() == l.name());
        let (mut sources, others): (Vec<Source>, Vec<Source>) = libraries.partition(is_built);
        let built = providers.into_iter().map(|provider| {
            let wrap = wrap(provider.name());
            vp_hooks::stack(provider, wrap)
        });
        sources.extend(built.map(Source::Built));
        sources.extend(others);
        for source in &mut sources {
            if config.providers.disabled.iter().any(|name| name == source.name()) {
                *source = source.disabled();
            }
        }
        let order = &config.providers.order;
        let rank = |s: &Source| order.iter().position(|n| n == s.name()).unwrap_or(order.len());
        sources.sort_by_key(rank);
        Arc::new(Self { sources, config })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// All providers with their devices, in the order of preference; one that cannot work has the
    /// reason.
    pub fn providers(&self) -> Vec<ProviderListing> {
        self.sources.iter().map(Source::list).collect()
    }

    /// Name and library of each provider, in the order of [`Ual::providers`]. Loads nothing.
    pub fn known(&self) -> Vec<(String, Option<PathBuf>)> {
        self.sources.iter().map(|s| (s.name().to_owned(), s.place().cloned())).collect()
    }

    /// The provider at this index of [`Ual::known`], loaded, with its wrappers.
    pub fn provider_at(&self, place: usize) -> std::result::Result<Arc<dyn Provider>, Unavailable> {
        let none = || Unavailable {
            reason: format!("there is no provider {place}"),
            remedy: "the configuration has changed meanwhile".into(),
        };
        let source = self.sources.get(place).ok_or_else(none)?;
        source.provider().cloned().map_err(Clone::clone)
    }

    /// The listing of the provider at this index of [`Ual::known`].
    pub fn list_at(&self, place: usize) -> Option<ProviderListing> {
        self.sources.get(place).map(Source::list)
    }

    /// Opens a device of the provider at this index of [`Ual::known`], without an Ia: the RNIC closes
    /// when it is dropped.
    pub fn open_rnic(&self, place: usize, device: &str) -> Result<Arc<dyn Rnic>> {
        let source = self.sources.get(place).ok_or_else(|| self.unknown(device))?;
        let unavailable = |why: &Unavailable| Error::Unavailable {
            provider: source.name().to_owned(),
            why: why.clone(),
        };
        let provider = source.provider().map_err(unavailable)?;
        provider.open(device, self.services(source.name())).map_err(Error::verb("open the device"))
    }

    /// Opens a device by its name, or the first device of the provider of that name
    /// (IT-API `it_ia_create`).
    pub fn open(self: &Arc<Self>, name: &str) -> Result<Arc<Ia>> {
        let (provider, device) = self.locate(name)?;
        self.open_of(provider, device)
    }

    /// Opens the device of this name of a provider.
    pub(crate) fn open_again(self: &Arc<Self>, provider: &str, name: &str) -> Result<Arc<Ia>> {
        let named = self.sources.iter().filter(|source| source.name() == provider);
        for provider in named.filter_map(|source| source.provider().ok()) {
            let devices = provider.devices().unwrap_or_default();
            if let Some(device) = devices.into_iter().find(|device| device.name == name) {
                return self.open_of(provider, device);
            }
        }
        Err(self.unknown(name))
    }

    fn open_of(
        self: &Arc<Self>,
        provider: &Arc<dyn Provider>,
        device: DeviceInfo,
    ) -> Result<Arc<Ia>> {
        let services = self.services(provider.name());
        let rnic = provider.open(&device.name, services).map_err(Error::verb("open the device"))?;
        let governed = self.config.governing(provider.name(), &device.name);
        let observe = &self.config.observe;
        let (ual, of, name) = (self.clone(), provider.name().to_owned(), device.name.clone());
        let opens = Box::new(move || ual.open_again(&of, &name));
        Ia::new(opens, device, provider.name().to_owned(), rnic, governed, observe)
    }

    /// Opens the first usable device of any provider, or of those that the rules name for this program. One that
    /// is to be opened only by name is not among them, unless the configured order names it.
    pub fn open_any(self: &Arc<Self>) -> Result<Arc<Ia>> {
        if let Some(names) = self.config.rules.devices(&program()) {
            let opened = names.iter().map(|name| self.open(name));
            let mut refused = self.unknown("(any)");
            for opened in opened {
                match opened {
                    Ok(opened) => return Ok(opened),
                    Err(error) => refused = error,
                }
            }
            return Err(refused);
        }
        let order = &self.config.providers.order;
        let asked = |name: &str| !BY_NAME.contains(&name) || order.iter().any(|n| n == name);
        let usable =
            |s: &&Source| asked(s.name()) && s.devices().is_ok_and(|list| !list.is_empty());
        match self.sources.iter().find(usable) {
            Some(provider) => self.open(provider.name()),
            None => Err(self.unknown("(any)")),
        }
    }

    /// The services for a provider, with its own settings.
    fn services(&self, provider: &str) -> Arc<dyn Services> {
        let own = self.config.providers.own.get(provider);
        Arc::new(HostServices::with(own.map_or_else(Vec::new, |own| own.settings.clone())))
    }

    /// By the name of a provider, without loading another one; otherwise by that of a device.
    fn locate(&self, name: &str) -> Result<(&Arc<dyn Provider>, DeviceInfo)> {
        let mut refusal = None;
        for source in self.sources.iter().filter(|s| s.name() == name) {
            match source.first() {
                Ok(found) => return Ok(found),
                Err(why) => refusal = refusal.or(Some(why)),
            }
        }
        for provider in self.sources.iter().filter_map(|s| s.provider().ok()) {
            let devices = provider.devices().unwrap_or_default();
            if let Some(device) = devices.into_iter().find(|d| d.name == name) {
                return Ok((provider, device));
            }
        }
        let unavailable = |why| Error::Unavailable { provider: name.to_owned(), why };
        Err(refusal.map_or_else(|| self.unknown(name), unavailable))
    }

    fn unknown(&self, name: &str) -> Error {
        let describe = |s: &Source| match s.devices() {
            Ok(devices) => devices.into_iter().map(|d| d.name).collect::<Vec<_>>().join(", "),
            Err(why) => format!("none of {}: {why}", s.name()),
        };
        let known: Vec<_> = self.sources.iter().map(describe).collect();
        let known = if known.is_empty() { "no provider".into() } else { known.join("; ") };
        Error::NoDevice { name: name.to_owned(), known }
    }
}
