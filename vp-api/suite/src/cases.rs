//! The cases of the provider suite, one file per topic. A case knows the rules of RDMAC Verbs and of the provider
//! traits, and nothing about the provider.

mod anew;
mod atomics;
mod based;
mod changes;
mod connections;
mod data;
mod datagrams;
mod depths;
mod edges;
mod elements;
mod endings;
mod extras;
mod faults;
mod halves;
mod late;
mod lives;
mod longest;
mod manager;
mod memory;
mod objects;
mod paths;
mod queues;
mod races;
mod reads;
mod regions;
mod services;
mod shapes;
mod slots;
mod states;
mod watermarks;
mod windows;

use std::sync::Arc;

use vp_api::Provider;

use crate::{Case, Fail};

/// All cases, the simple ones first.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    let groups = [
        objects::CASES,
        lives::CASES,
        connections::CASES,
        manager::CASES,
        data::CASES,
        shapes::CASES,
        longest::CASES,
        reads::CASES,
        queues::CASES,
        edges::CASES,
        late::CASES,
        watermarks::CASES,
        depths::CASES,
        slots::CASES,
        memory::CASES,
        elements::CASES,
        regions::CASES,
        windows::CASES,
        based::CASES,
        services::CASES,
        datagrams::CASES,
        faults::CASES,
        paths::CASES,
        extras::CASES,
        atomics::CASES,
        states::CASES,
        changes::CASES,
        halves::CASES,
        anew::CASES,
        endings::CASES,
        races::CASES,
    ];
    groups.into_iter().flatten()
}

/// The promises that are checked when devices are listed.
pub(crate) const LISTING_KEEPS: [&str; 2] = ["RI-28", "RI-29"];

/// Selects the device to use.
pub(crate) fn listing(provider: &Arc<dyn Provider>, wanted: Option<&str>) -> Result<Listed, Fail> {
    let devices = match provider.devices() {
        Ok(devices) => devices,
        Err(why) if why.is_explained() => {
            return Ok(Listed::None(format!("it has no device here: {why}")));
        }
        Err(why) => return Err(Fail(format!("{why}: it says not both why and what to do"))),
    };
    for (n, device) in devices.iter().enumerate() {
        if devices[..n].iter().any(|other| other.name == device.name) {
            let name = &device.name;
            return Err(format!("device \"{name}\" is listed twice: call fn once for each").into());
        }
        if device.name.is_empty() || device.ports.is_empty() {
            return Err(format!("device \"{}\" lacks a name or a port", device.name).into());
        }
    }
    let found = devices.iter().find(|d| wanted.is_none_or(|name| d.name == name));
    let none = || format!("there is no device {}", wanted.unwrap_or("at all")).into();
    found.map(|d| Listed::Device(d.name.clone())).ok_or_else(none)
}

/// What a provider lists.
pub(crate) enum Listed {
    /// The device to test.
    Device(String),
    /// None is usable here, and why.
    None(String),
}
