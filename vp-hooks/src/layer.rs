//! `layer`: a wrapper in a shared library, from a vendor or a user (`rnicpi.h`, `warpline_provider_wrap`).
//!
//! ```text
//! layer:LIBRARY
//! layer:LIBRARY:ARGUMENTS
//! ```
//!
//! `LIBRARY` is an absolute path without a colon; `ARGUMENTS` are passed to the layer. The library is loaded when
//! the provider is first asked for devices, and never unloaded. If the layer cannot be used, the provider cannot be
//! used either: a configuration with a layer must not run without it. Any thread.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use vp_api::import;
use vp_api::{DeviceInfo, Provider, Rnic, Services, Unavailable, VpError, VpResult, VpStatus};

/// The library, and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spec {
    library: PathBuf,
    arguments: String,
}

impl Spec {
    /// Parses `LIBRARY[:ARGUMENTS]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (library, arguments) = text.split_once(':').unwrap_or((text, ""));
        let library = library.trim();
        if library.is_empty() {
            return Err("it names no library, as in `layer:/usr/lib/libaudit.so`".into());
        }
        if !Path::new(library).is_absolute() {
            return Err(format!("the library's path `{library}` is not absolute"));
        }
        Ok(Self { library: library.into(), arguments: arguments.to_owned() })
    }
}

/// A provider wrapped in a layer, which is loaded on first use.
pub(crate) struct Layered {
    inner: Arc<dyn Provider>,
    spec: Spec,
    wrapped: OnceLock<Result<Arc<dyn Provider>, Unavailable>>,
}

impl Layered {
    pub(crate) fn create(inner: Arc<dyn Provider>, spec: Spec) -> Arc<dyn Provider> {
        Arc::new(Self { inner, spec, wrapped: OnceLock::new() })
    }

    fn wrapped(&self) -> Result<&Arc<dyn Provider>, Unavailable> {
        self.wrapped.get_or_init(|| self.wrap()).as_ref().map_err(Clone::clone)
    }

    fn wrap(&self) -> Result<Arc<dyn Provider>, Unavailable> {
        let Spec { library, arguments } = &self.spec;
        let layer = import::Layer::load(library);
        layer.and_then(|layer| layer.wrap(self.inner.clone(), arguments)).map_err(|why| {
            Unavailable {
                reason: format!("the layer {why}"),
                remedy: "ask its vendor, or take it out of `[providers]` `wrap`".into(),
            }
        })
    }
}

impl Provider for Layered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        self.wrapped()?.devices()
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        let unusable = |why: Unavailable| VpError::new(VpStatus::Unsupported, why.to_string());
        self.wrapped().map_err(unusable)?.open(device, services)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_after_the_path_belongs_to_the_layer() {
        let parse = |text| Spec::parse(text).map(|s| (s.library, s.arguments));
        assert_eq!(parse("/a/b.so"), Ok(("/a/b.so".into(), String::new())));
        assert_eq!(parse("/a/b.so:x=1:y"), Ok(("/a/b.so".into(), "x=1:y".into())));
        assert!(parse("").unwrap_err().contains("names no library"));
        assert!(parse("b.so").unwrap_err().contains("`b.so` is not absolute"));
    }
}
