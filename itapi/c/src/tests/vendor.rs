//! Vendor calls of a provider that is built in, through the entry point.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use ual::vp_api::*;
use ual::{Config, Ual};

use super::*;
use crate::ia::IaObject;
use crate::object;
use crate::ptr::Plain;
use crate::vendor::itw_ia_vendor_calls;

/// The built-in provider, with one function more.
struct Own(Arc<dyn Provider>);

impl Provider for Own {
    fn name(&self) -> &str {
        "own"
    }
    fn version(&self) -> &str {
        "1"
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        self.0.devices()
    }
    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        Ok(Arc::new(OwnRnic(self.0.open(device, services)?)))
    }
}

struct OwnRnic(Arc<dyn Rnic>);

unsafe extern "C" fn double(context: *mut c_void) -> usize {
    2 * context.addr()
}

/// The table: one function.
static DOUBLE: unsafe extern "C" fn(*mut c_void) -> usize = double;

macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)+) => {$(
        fn $name(&self, $($arg: $type),*) -> $result {
            self.0.$name($($arg),*)
        }
    )+};
}

impl Rnic for OwnRnic {
    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        match name {
            "own.double/1" => Ok(VendorCalls {
                table: NonNull::from(&DOUBLE).cast(),
                context: std::ptr::without_provenance_mut(21),
            }),
            _ => Err(VpError::new(VpStatus::Unsupported, "there is own.double/1 alone")),
        }
    }
    pass! {
        attrs() -> &RnicAttrs;
        ports() -> VpResult<Vec<PortInfo>>;
        set_async_handler(handler: Option<Arc<dyn AsyncHandler>>) -> ();
        alloc_pd() -> VpResult<PdId>;
        dealloc_pd(pd: PdId) -> VpResult<()>;
        create_cq(init: &CqInit) -> VpResult<Arc<dyn Cq>>;
        destroy_cq(cq: CqId) -> VpResult<()>;
        create_srq(init: &SrqInit) -> VpResult<Arc<dyn Srq>>;
        destroy_srq(srq: SrqId) -> VpResult<()>;
        create_qp(init: &QpInit) -> VpResult<Arc<dyn Qp>>;
        destroy_qp(qp: QpId) -> VpResult<()>;
        register_mr(init: &MrInit) -> VpResult<Stag>;
        reregister_mr(stag: Stag, init: &MrInit) -> VpResult<Stag>;
        register_shared_mr(original: Stag, pd: PdId, addressing: Addressing, access: Access, key: u8)
            -> VpResult<Stag>;
        alloc_stag(pd: PdId, remote: bool) -> VpResult<Stag>;
        query_mr(stag: Stag) -> VpResult<MrInfo>;
        dealloc_stag(stag: Stag) -> VpResult<()>;
        alloc_mw(pd: PdId, kind: MwKind) -> VpResult<MwId>;
        query_mw(mw: MwId) -> VpResult<MwInfo>;
        dealloc_mw(mw: MwId) -> VpResult<()>;
    }
}

// [itw_ia_vendor_calls]
#[test]
fn vendor_calls_of_a_built_in_provider_are_found_by_name() {
    let bare = ual::builtin().remove(0);
    let ual = Ual::with_providers(vec![Arc::new(Own(bare))], Config::default());
    let object = IaObject { inner: ual.open("own").unwrap(), mappings: Mutex::default() };
    let Ok(raw) = object::insert(|_| object) else { panic!("no handle") };
    let ia = Adapter(object::handle(raw.number()));
    let mut calls = itw_vendor_calls_t::zeroed();
    let mut find = |name: &CStr| {
        // SAFETY: a constant string, and room for the result.
        unsafe { itw_ia_vendor_calls(ia.0, name.as_ptr(), &raw mut calls) }
    };
    assert_eq!(find(c"own.double/2"), IT_ERR_OP_NOT_SUPPORTED);
    assert_eq!(find(c"own.double/1"), IT_SUCCESS);
    let table = calls.table.cast::<unsafe extern "C" fn(*mut c_void) -> usize>();
    // SAFETY: the table of this name, while the adapter is open.
    let double = unsafe { *table };
    // SAFETY: the context came with the table.
    assert_eq!(unsafe { double(calls.context) }, 42);
    // SAFETY: NULL is what is tried.
    assert_eq!(unsafe { itw_ia_vendor_calls(ia.0, null(), &raw mut calls) }, IT_ERR_FAULT);
    // SAFETY: the same.
    let nowhere = unsafe { itw_ia_vendor_calls(ia.0, c"own.double/1".as_ptr(), null_mut()) };
    assert_eq!(nowhere, IT_ERR_FAULT);
}
