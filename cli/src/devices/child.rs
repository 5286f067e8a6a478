//! The second process of `warpline devices`: one provider, or one device of it. Each step is
//! reported before it begins, so that the parent can name the one in which a provider crashes.

use std::io::{Write, stdout};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use itapi::{Capabilities, DeviceInfo, PortInfo, ProviderListing, RnicAttrs};
use serde_json::{Value, json};
use ual::Ual;
use ual::vp_api::{ConnectionModel, import};

use super::args::DevicesArgs;
use crate::error::{CliError, CliResult, Exit};
use crate::provider;
use crate::second::{begin, die_with_the_parent, done, report};

/// First words of the step that tries a library in another process.
pub(super) const LOADING: &str = "loading ";

/// Time-out of trying a library. Set once.
static LIMIT: OnceLock<Duration> = OnceLock::new();
/// The current step, which continues when a library has been tried.
static STEP: Mutex<String> = Mutex::new(String::new());

pub(super) fn run(args: &DevicesArgs, place: usize, out: &mut dyn Write) -> CliResult<()> {
    die_with_the_parent();
    // The only one that sets it.
    let _ = LIMIT.set(args.limit);
    import::probe_with(probe);
    let ual = Ual::new().map_err(|why| CliError::new(Exit::Network, why.to_string()))?;
    step(out, "starting it")?;
    // The listing has the reason why it is not available.
    let _ = ual.provider_at(place);
    match &args.open {
        None => list(&ual, place, out)?,
        Some(device) => open(&ual, place, device, out)?,
    }
    done(out)
}

fn step(out: &mut dyn Write, step: &str) -> CliResult<()> {
    step.clone_into(&mut STEP.lock().unwrap_or_else(PoisonError::into_inner));
    begin(out, step)
}

fn probe(library: &Path) -> Result<(), String> {
    let step = |name: &str| begin(&mut stdout(), name).map_err(|e| e.to_string());
    step(&format!("{LOADING}{}", library.display()))?;
    provider::probe(library, LIMIT.get().copied().unwrap_or(provider::LOAD))?;
    step(&STEP.lock().unwrap_or_else(PoisonError::into_inner))
}

fn list(ual: &Ual, place: usize, out: &mut dyn Write) -> CliResult<()> {
    step(out, "listing its devices")?;
    match ual.list_at(place) {
        Some(listing) => report(out, &provider_json(&listing)),
        None => Ok(()),
    }
}

fn open(ual: &Ual, place: usize, device: &str, out: &mut dyn Write) -> CliResult<()> {
    step(out, "opening it")?;
    match ual.open_rnic(place, device) {
        Err(why) => report(out, &json!({ "error": why.to_string() })),
        Ok(rnic) => {
            report(out, &attrs_json(rnic.attrs()))?;
            step(out, "closing it")?;
            drop(rnic);
            Ok(())
        }
    }
}

fn provider_json(provider: &ProviderListing) -> Value {
    let mut object = json!({ "name": provider.name, "version": provider.version });
    if let Some(library) = &provider.library {
        object["library"] = library.display().to_string().into();
    }
    match &provider.devices {
        Ok(devices) => object["devices"] = devices.iter().map(device_json).collect(),
        Err(why) => object["unavailable"] = json!({ "reason": why.reason, "remedy": why.remedy }),
    }
    object
}

fn device_json(device: &DeviceInfo) -> Value {
    let port = |port: &PortInfo| {
        json!({
            "interface": port.interface,
            "online": port.online,
            "mtu": port.mtu,
            "addresses": port.addresses.iter().map(|one| scoped(one, &port.interface)).collect::<Vec<_>>(),
        })
    };
    json!({ "name": device.name, "ports": device.ports.iter().map(port).collect::<Vec<_>>() })
}

/// An address as it can be typed: a link-local one with its interface.
fn scoped(address: &IpAddr, interface: &str) -> String {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{v6}%{interface}"),
        address => address.to_string(),
    }
}

fn attrs_json(attrs: &RnicAttrs) -> Value {
    json!({
        "vendor": attrs.vendor,
        "model": attrs.model,
        "firmware": attrs.firmware,
        "connection_model": connection_model(attrs.connection_model),
        "capabilities": capabilities(attrs.capabilities),
        // In the order of the listing.
        "limits": limits(attrs),
    })
}

fn connection_model(model: ConnectionModel) -> &'static str {
    match model {
        ConnectionModel::LlpStream => "llp-stream",
        ConnectionModel::Native => "native",
    }
}

/// Names of capabilities, in lower case.
fn capabilities(all: Capabilities) -> Vec<String> {
    all.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect()
}

fn limits(a: &RnicAttrs) -> Vec<(&'static str, u64)> {
    // Only with a connection manager of its own; otherwise MPA's limits apply.
    let private = [
        ("max_private_connect", a.max_private_connect.into()),
        ("max_private_accept", a.max_private_accept.into()),
        ("max_private_reject", a.max_private_reject.into()),
    ];
    let private = private.into_iter().filter(|(_, most)| *most != 0);
    let all = [
        ("max_qp", a.max_qp.into()),
        ("max_wr_per_qp", a.max_wr_per_qp.into()),
        ("max_wr_per_srq", a.max_wr_per_srq.into()),
        ("max_sge_send", a.max_sge_send.into()),
        ("max_sge_recv", a.max_sge_recv.into()),
        ("max_sge_write", a.max_sge_write.into()),
        ("max_sge_read", a.max_sge_read.into()),
        ("max_inline", a.max_inline.into()),
        ("max_cq", a.max_cq.into()),
        ("max_cqe", a.max_cqe.into()),
        ("max_srq", a.max_srq.into()),
        ("max_pd", a.max_pd.into()),
        ("max_mr", a.max_mr.into()),
        ("max_mr_octets", a.max_mr_octets),
        ("max_mw", a.max_mw.into()),
        ("max_ird", a.max_ird.into()),
        ("max_ord", a.max_ord.into()),
        ("max_message", a.max_message.into()),
    ];
    all.into_iter().chain(private).collect()
}
