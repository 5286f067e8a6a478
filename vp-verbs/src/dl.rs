//! Loads `libibverbs.so.1` and `librdmacm.so.1` at run time.
//!
//! Owner: every open device and the provider share one [`Api`] per pair of files. The libraries
//! are never unloaded: their threads and the kernel's mappings may outlive every object here.
//!
//! A soname finds a library that the process has already loaded. That may be Warpline's own, which replaces
//! rdma-core's on SoftRDMA. It would call this provider again, so it is recognised by its marker and refused.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;
use vp_api::Unavailable;

use ibv_sys::*;

/// Which files to load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Libraries {
    /// The verbs.
    pub verbs: PathBuf,
    /// The connection manager.
    pub rdmacm: PathBuf,
}

impl Default for Libraries {
    /// By soname, so that the loader finds them.
    fn default() -> Self {
        Self { verbs: "libibverbs.so.1".into(), rdmacm: "librdmacm.so.1".into() }
    }
}

/// Declares a table of C functions and how to fill it.
macro_rules! functions {
    ($table:ident { $($name:ident($($arg:ty),*) $(-> $out:ty)?;)+ }
        newer { $($new:ident($($new_arg:ty),*) -> $new_out:ty;)* }) => {
        /// Functions of one library, by their own names; `None` if this version does not have the function.
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)+
            $(pub(crate) $new: Option<unsafe extern "C" fn($($new_arg),*) -> $new_out>,)*
            _library: ManuallyDrop<Library>,
        }

        impl $table {
            fn load(file: &Path) -> Result<Self, Unavailable> {
                // SAFETY: loading runs the initialisers of rdma-core's libraries, which have no
                // preconditions; the caller is responsible for other files.
                let library = unsafe { Library::new(file) }.map_err(missing)?;
                refuse_own(&library, file)?;
                $(
                    // SAFETY: the type is the function's prototype in rdma-core's headers, whose
                    // symbol versions promise that it stays. dlsym gives the default version.
                    let $name = *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(missing)?;
                )+
                $(
                    // SAFETY: as above.
                    let $new = unsafe { library.get(concat!(stringify!($new), "\0").as_bytes()) };
                    let $new = $new.ok().map(|f| *f);
                )*
                Ok(Self { $($name,)+ $($new,)* _library: ManuallyDrop::new(library) })
            }
        }
    };
}

functions! { Ibv {
    ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(*mut *mut ibv_device);
    ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device(*mut ibv_context) -> c_int;
    ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(*mut ibv_async_event);
    ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_rereg_mr(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int;
    ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
    ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut ibv_cq, c_uint);
    ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    ibv_destroy_srq(*mut ibv_srq) -> c_int;
    ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp(*mut ibv_qp) -> c_int;
    ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah(*mut ibv_ah) -> c_int;
} newer {
    ibv_reg_mr_iova2(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
}}

functions! { RdmaCm {
    rdma_create_event_channel() -> *mut rdma_event_channel;
    rdma_destroy_event_channel(*mut rdma_event_channel);
    rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
    rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
    rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_establish(*mut rdma_cm_id) -> c_int;
    rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    rdma_notify(*mut rdma_cm_id, c_uint) -> c_int;
    rdma_disconnect(*mut rdma_cm_id) -> c_int;
    rdma_init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    rdma_get_src_port(*mut rdma_cm_id) -> u16;
} newer {}}

/// Both libraries.
pub(crate) struct Api {
    pub(crate) ibv: Ibv,
    pub(crate) cm: RdmaCm,
}

impl Api {
    /// Loads both libraries, or says which is missing.
    pub(crate) fn load(libraries: &Libraries) -> Result<Self, Unavailable> {
        if cfg!(target_feature = "crt-static") {
            return Err(Unavailable {
                reason: "this program is linked statically; it cannot load rdma-core's libraries"
                    .into(),
                remedy: "use a program that is linked with shared libraries".into(),
            });
        }
        Ok(Self { ibv: Ibv::load(&libraries.verbs)?, cm: RdmaCm::load(&libraries.rdmacm)? })
    }
}

fn missing(error: libloading::Error) -> Unavailable {
    Unavailable {
        reason: match std::error::Error::source(&error) {
            Some(why) => format!("a library of rdma-core cannot be loaded: {why}"),
            None => format!("a library of rdma-core cannot be loaded: {error}"),
        },
        remedy: "install rdma-core (Debian: libibverbs1, librdmacm1, ibverbs-providers)".into(),
    }
}

fn refuse_own(library: &Library, file: &Path) -> Result<(), Unavailable> {
    // SAFETY: only the presence of the symbol is checked; its type is not used.
    if unsafe { library.get::<*const c_void>(OWN_LIBRARY.to_bytes_with_nul()) }.is_err() {
        return Ok(());
    }
    Err(Unavailable {
        reason: format!("{} is Warpline's own library here, not rdma-core's", file.display()),
        remedy:
            "nothing, if the program is to use SoftRDMA; for a device of the kernel run it with \
                 rdma-core's libraries"
                .into(),
    })
}

/// A name from a fixed-size C array.
pub(crate) fn text(octets: &[c_char]) -> String {
    let octets: Vec<u8> = octets.iter().map(|&octet| octet as u8).collect();
    CStr::from_bytes_until_nul(&octets)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}
