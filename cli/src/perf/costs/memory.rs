//! Measures memory alone: registering, with and without pinning; copying; and the first touch of fresh memory.
//! No peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use itapi::{Access, AccessError};
use serde::Serialize;
use ual::{LmrInit, Region, Ual};

use super::{least_us, maybe, sizes, timed};
use crate::error::{CliError, CliResult, Exit};
use crate::perf::args::CostsArgs;
use crate::perf::case::octets;
use crate::perf::report::number;

pub(super) const HEADER: &[&str] =
    &["octets", "register+deregister", "pinned", "copy", "first touch", "huge pages"];

/// Costs of one size, in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) size: u32,
    /// Register and deregister.
    pub(super) register_us: f64,
    /// The same with pinning; `None`: the limit of locked memory does not allow it.
    pub(super) pinned_us: Option<f64>,
    /// Copy into registered memory.
    pub(super) copy_us: f64,
    /// The first write to fresh memory, less a later one.
    pub(super) first_touch_us: f64,
    /// The same with huge pages, where the system has them.
    first_touch_huge_us: f64,
}

impl Memory {
    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            octets(self.size),
            number(self.register_us),
            maybe(self.pinned_us),
            number(self.copy_us),
            number(self.first_touch_us),
            number(self.first_touch_huge_us),
        ]
    }
}

pub(super) fn measure(args: &CostsArgs) -> CliResult<Vec<Memory>> {
    let ual = Ual::new().map_err(itapi::Error::from)?;
    let ia = match &args.device {
        Some(device) => ual.open(device),
        None => ual.open_any(),
    };
    let pz = ia.and_then(|ia| ia.create_pz()).map_err(itapi::Error::from)?;
    sizes().map(|size| one(&pz, size, args.seconds)).collect()
}

fn one(pz: &Arc<ual::Pz>, size: u32, slice: Duration) -> CliResult<Memory> {
    let source = vec![1; size as usize];
    let region = fresh(Region::new, size)?;
    write(&region, &source);
    let register = |pin| {
        let (took, lmr) = timed(|| register(pz, &region, pin))?;
        let (more, ()) = timed(|| Ok(lmr.close()?))?;
        Ok(took + more)
    };
    // A first attempt shows whether the limit of locked memory allows it.
    let pinnable = register(true).is_ok();
    let pinned_us = if pinnable { Some(least_us(slice, || register(true))?) } else { None };
    let copy_us = least_us(slice, || Ok(write(&region, &source)))?;
    Ok(Memory {
        size,
        register_us: least_us(slice, || register(false))?,
        pinned_us,
        copy_us,
        first_touch_us: first_touch(Region::new, &source, copy_us, slice)?,
        first_touch_huge_us: first_touch(Region::huge, &source, copy_us, slice)?,
    })
}

fn register(pz: &Arc<ual::Pz>, region: &Region, pin: bool) -> itapi::Result<Arc<ual::Lmr>> {
    let init = LmrInit { pin, ..LmrInit::new(region.mem_range(), Access::LOCAL) };
    Ok(pz.create_lmr(init).map_err(|error: AccessError| error)?)
}

/// How much longer a write to fresh memory takes than one to touched memory, `copy_us`.
fn first_touch(
    make: fn(usize) -> std::io::Result<Region>,
    source: &[u8],
    copy_us: f64,
    slice: Duration,
) -> CliResult<f64> {
    let first = least_us(slice, || Ok(write(&fresh(make, source.len() as u32)?, source)))?;
    Ok((first - copy_us).max(0.0))
}

fn fresh(make: fn(usize) -> std::io::Result<Region>, size: u32) -> CliResult<Region> {
    make(size as usize).map_err(|error| {
        CliError::new(Exit::Failed, format!("no memory of {}: {error}", octets(size)))
    })
}

/// How long a copy into the region takes.
fn write(region: &Region, source: &[u8]) -> Duration {
    let begin = Instant::now();
    // Inside by construction: both have the same size.
    let copied = region.write_at(0, source);
    debug_assert!(copied.is_ok());
    begin.elapsed()
}
