//! The data path's inner parts, opened for measurements (feature `bench`).
//!
//! Owns nothing. No program but a benchmark needs this.

use std::sync::Arc;

use vp_api::{MrInit, PdId, Services, Stag, VpResult};

use crate::meta::PdUse;
use crate::mr::Regions;
use crate::objects::Objects;
use crate::place;
use crate::stag_table::StagTable;

/// A table with `count` regions like `init`, and their STags.
pub fn table(
    services: Arc<dyn Services>,
    init: &MrInit,
    count: usize,
) -> VpResult<(Arc<StagTable>, Vec<Stag>)> {
    let table = Arc::new(StagTable::new());
    let regions = Regions { table: table.clone(), services, probes: place::can_probe() };
    let pds = Objects::new("protection domain", 1);
    let pd = pds.insert(|id| Ok(Arc::new(PdId(id))))?;
    let stags: VpResult<Vec<Stag>> = (0..count)
        .map(|_| regions.register(PdUse { id: init.pd, _hold: pds.hold(pd.0)?.1 }, init))
        .collect();
    Ok((table, stags?))
}
