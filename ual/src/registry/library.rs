//! A provider in a library of its own: loaded when first needed, and never unloaded. Its code runs
//! in this process; [`import::probe_with`] lets a program try it in another one before.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use vp_api::{Provider, Unavailable, import};
use vp_hooks::{Wrapper, stack};

use super::manifest::Named;

/// A library, loaded or not.
pub(super) struct Library {
    pub(super) name: String,
    pub(super) place: PathBuf,
    wrap: Vec<Wrapper>,
    loaded: OnceLock<Result<Arc<dyn Provider>, Unavailable>>,
}

impl Library {
    pub(super) fn new(named: Named, wrap: Vec<Wrapper>) -> Self {
        let loaded: OnceLock<Result<Arc<dyn Provider>, _>> = OnceLock::new();
        if let Some(fault) = named.fault {
            let remedy = format!("correct or remove what names {}", named.place.display());
            // It was empty.
            let _ = loaded.set(Err(Unavailable { reason: fault, remedy }));
        }
        Self { name: named.name, place: named.place, wrap, loaded }
    }

    /// The provider, or why there is none; found out once.
    pub(super) fn provider(&self) -> Result<&Arc<dyn Provider>, &Unavailable> {
        self.loaded.get_or_init(|| self.load()).as_ref()
    }

    #[cfg(test)]
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }

    fn load(&self) -> Result<Arc<dyn Provider>, Unavailable> {
        let place = self.place.display();
        let remedy = match self.place.exists() {
            true => format!("ask its vendor; see `warpline provider check {place}`"),
            false => format!("install {place}, or correct where it is named"),
        };
        let unusable = |reason: String| Unavailable { reason, remedy: remedy.clone() };
        let provider = import::load(&self.place).map_err(|e| unusable(e.to_string()))?;
        if provider.name() != self.name {
            let (said, named) = (provider.name(), &self.name);
            let reason = format!("{}: its name is {said}, not {named}", self.place.display());
            return Err(unusable(reason));
        }
        Ok(stack(provider, &self.wrap))
    }
}
