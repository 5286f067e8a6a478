//! What crosses the border with a count is released when it must be: memory before deregistration
//! returns, handlers and services with their objects.

use std::ptr::NonNull;
use std::sync::Arc;

use vp_api::abi::export::{Exported, descriptor};
use vp_api::abi::types::{ProviderDescriptor, ProviderOps};
use vp_api::*;
use vp_softrdma::SoftRdma;

static EXPORTED: Exported = Exported::new();
static DESCRIPTOR: ProviderDescriptor = descriptor("vp_softrdma\0", "1\0", Capabilities::all());

extern "C" fn get_ops(_: u32) -> *const ProviderOps {
    EXPORTED.table(|| Arc::new(SoftRdma))
}

fn provider() -> Arc<dyn Provider> {
    // SAFETY: both are this crate's own, made by the exporter, and static.
    unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) }.unwrap()
}

fn open() -> Arc<dyn Rnic> {
    provider().open("vp_softrdma", Arc::new(kal_shim::HostServices::default())).unwrap()
}

/// Memory whose users can be counted.
fn memory() -> (Arc<Vec<u64>>, MemRange) {
    let owner = Arc::new(vec![0; 64]);
    let addr = NonNull::new(owner.as_ptr().cast_mut().cast()).unwrap();
    // SAFETY: the owner keeps the allocation; nothing is transferred to or from it.
    let range = unsafe { MemRange::owned(addr, 512, owner.clone()) };
    (owner, range)
}

fn init(pd: PdId, range: &MemRange, access: Access) -> MrInit {
    let addressing = Addressing::Absolute;
    MrInit { pd, range: range.clone(), addressing, access, key: 1, pin: false }
}

#[test]
fn memory_is_released_when_deregistration_returns() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let (owner, range) = memory();
    let good = init(pd, &range, Access::LOCAL);
    let stag = rnic.register_mr(&good).unwrap();
    drop((good, range));
    assert!(Arc::strong_count(&owner) > 1, "the region does not hold it");
    rnic.dealloc_stag(stag).unwrap();
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn refused_memory_is_released_at_once() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let (owner, range) = memory();
    let bad = init(pd, &range, Access::REMOTE_WRITE);
    assert_eq!(rnic.register_mr(&bad).unwrap_err().status, VpStatus::InvalidAccess);
    let nowhere = init(PdId(u32::MAX), &range, Access::LOCAL);
    assert!(rnic.register_mr(&nowhere).is_err());
    drop((bad, nowhere, range));
    assert_eq!(Arc::strong_count(&owner), 1);
}

struct Deaf;

impl CqHandler for Deaf {
    fn on_completion(&self, _: CqId) {}
}

impl AsyncHandler for Deaf {
    fn on_event(&self, _: EventSource, _: AsyncEvent) {}
}

#[test]
fn handlers_are_released_with_what_calls_them() {
    let rnic = open();
    let handler = Arc::new(Deaf);
    rnic.set_async_handler(Some(handler.clone()));
    assert_eq!(Arc::strong_count(&handler), 2);
    rnic.set_async_handler(None);
    assert_eq!(Arc::strong_count(&handler), 1);
    let cq = rnic.create_cq(&CqInit { depth: 4, handler: Some(handler.clone()) }).unwrap();
    assert_eq!(Arc::strong_count(&handler), 2);
    rnic.destroy_cq(cq.id()).unwrap();
    assert_eq!(cq.arm(false), Err(VpStatus::InvalidHandle));
    drop(cq);
    assert_eq!(Arc::strong_count(&handler), 1);
}

#[test]
fn a_queue_outlives_the_last_reference_to_its_rnic() {
    let rnic = open();
    let cq = rnic.create_cq(&CqInit { depth: 4, handler: None }).unwrap();
    drop(rnic);
    let mut out = [WorkCompletion::BLANK];
    assert_eq!(cq.poll(&mut out), Ok(0));
}

/// Panics wherever it can.
struct Panics;

impl Provider for Panics {
    fn name(&self) -> &str {
        "panics"
    }
    fn version(&self) -> &str {
        "1"
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        panic!("in devices")
    }
    fn open(&self, _: &str, _: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        panic!("in open")
    }
}

#[test]
fn no_panic_crosses() {
    static PANICS: Exported = Exported::new();
    extern "C" fn get_ops(_: u32) -> *const ProviderOps {
        PANICS.table(|| Arc::new(Panics))
    }
    // SAFETY: as in `provider`.
    let provider = unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) }.unwrap();
    assert!(provider.devices().unwrap_err().reason.contains("panicked"));
    let error = provider.open("x", Arc::new(kal_shim::HostServices::default())).err().unwrap();
    assert_eq!(error, VpError::new(VpStatus::Defect, "the provider panicked"));
}
