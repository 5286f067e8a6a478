//! Tests a layer in Rust around a provider, each of them behind C tables.

use std::sync::Arc;

use library::{warpline_provider, warpline_provider_wrap};

use super::{Host, samples};
use crate::import::Layer;
use crate::*;

/// A layer that lists one device less than the provider that it wraps.
struct Fewer(Arc<dyn Provider>);

impl Provider for Fewer {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn version(&self) -> &str {
        self.0.version()
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        self.0.devices().map(|devices| devices.into_iter().skip(1).collect())
    }
    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        self.0.open(device, services)
    }
}

fn fewer(inner: Arc<dyn Provider>, arguments: &str) -> Result<Arc<dyn Provider>, String> {
    match arguments {
        "panic" => panic!("as it was told"),
        "" => Ok(Arc::new(Fewer(inner))),
        other => Err(format!("`{other}` is no argument")),
    }
}

#[allow(unreachable_pub)] // for the loader
mod library {
    crate::export_layer!("fewer", crate::Capabilities::all(), super::fewer);
}

#[test]
fn a_layer_of_rust_wraps_and_refuses() {
    // SAFETY: both are made by the exporter, and static.
    let layer =
        unsafe { Layer::from_descriptor(&raw const warpline_provider, warpline_provider_wrap) };
    let layer = layer.unwrap();
    assert_eq!(layer.identity().unwrap(), ("fewer".into(), env!("CARGO_PKG_VERSION")));
    let wrapped = layer.wrap(super::provider(), "").unwrap();
    assert_eq!(wrapped.name(), "echo");
    assert_eq!(wrapped.devices().unwrap(), samples::devices()[1..]);
    let rnic = wrapped.open("two", Arc::new(Host::default())).unwrap();
    assert_eq!(*rnic.attrs(), samples::attrs());
    for (arguments, why) in [("x", "`x` is no argument"), ("panic", "the layer panicked")] {
        let refused = layer.wrap(super::provider(), arguments).err().unwrap().fault;
        assert_eq!(refused, import::Fault::Refused(why.into()));
    }
}
