//! A provider in a library of its own: loaded on first use, and never unloaded. Its code runs in this
//! process; [`import::probe_with`] lets a program try it in another one first.

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

    /// The provider, or why there is none; determined once.
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
        match self.misnamed(provider.name()) {
            Some(reason) => Err(unusable(reason)),
            None => Ok(stack(provider, &self.wrap)),
        }
    }

    /// What is wrong with the name in the library's descriptor.
    fn misnamed(&self, declared: &str) -> Option<String> {
        let Self { name, place, .. } = self;
        (declared != name)
            .then(|| format!("{}: its name is {declared}, not {name}", place.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_has_the_name_that_it_was_named_by() {
        let (name, place) = ("acme".to_owned(), PathBuf::from("/lib/acme.so"));
        let library = Library::new(Named { name, place, fault: None }, Vec::new());
        assert_eq!(library.misnamed("acme"), None);
        let reason = library.misnamed("zeta").unwrap();
        assert_eq!(reason, "/lib/acme.so: its name is zeta, not acme");
    }
}
