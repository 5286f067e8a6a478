//! The cases, one file per kind. A case knows the rules of RDMAC Verbs and of the provider traits,
//! and nothing of the provider.

mod connections;
mod data;
mod datagrams;
mod endings;
mod extras;
mod memory;
mod objects;
mod queues;
mod services;
mod windows;

use std::sync::Arc;

use vp_api::Provider;

use crate::{Case, Fail};

/// All cases, the simple ones first.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let groups = [
        objects::CASES,
        connections::CASES,
        data::CASES,
        queues::CASES,
        memory::CASES,
        windows::CASES,
        services::CASES,
        datagrams::CASES,
        extras::CASES,
        endings::CASES,
    ];
    groups.into_iter().flatten()
}

/// The device to use.
pub(crate) fn listing(provider: &Arc<dyn Provider>, wanted: Option<&str>) -> Result<String, Fail> {
    let devices = provider.devices().map_err(|why| Fail(why.to_string()))?;
    for device in &devices {
        if device.name.is_empty() || device.ports.is_empty() {
            return Err(format!("device \"{}\" lacks a name or a port", device.name).into());
        }
    }
    let found = devices.iter().find(|d| wanted.is_none_or(|name| d.name == name));
    let none = || format!("there is no device {}", wanted.unwrap_or("at all")).into();
    found.map(|d| d.name.clone()).ok_or_else(none)
}
