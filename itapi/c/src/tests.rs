//! Tests of adapters, zones, event dispatchers and queries, through the entry points.

mod adapters;
mod closing;
mod dispatchers;
mod layouts;
mod vendor;

use std::ptr::{null, null_mut};

use super::ia::{it_ia_create, it_ia_free};
use super::pz::{it_pz_create, it_pz_free, it_pz_query};
use super::status::*;
use super::types::*;

/// An adapter; freed at the end.
struct Adapter(it_ia_handle_t);

impl Adapter {
    fn new() -> Self {
        let mut ia = null_mut();
        // SAFETY: a constant string, and room for a handle.
        let created = unsafe { it_ia_create(c"vp_softrdma".as_ptr(), 2, 0, &raw mut ia) };
        assert_eq!(created, IT_SUCCESS);
        Self(ia)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        it_ia_free(self.0);
    }
}

fn zone(ia: &Adapter) -> it_pz_handle_t {
    let mut pz = null_mut();
    // SAFETY: room for a handle.
    assert_eq!(unsafe { it_pz_create(ia.0, &raw mut pz) }, IT_SUCCESS);
    pz
}
