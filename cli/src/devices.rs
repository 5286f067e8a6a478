//! `warpline devices`: what there is, what it can do, and what is missing. No state.

use std::io::Write;

use itapi::{Capabilities, DeviceInfo, Ia, PortInfo, ProviderListing, RnicAttrs};
use serde_json::{Map, Value, json};

use crate::args::DevicesArgs;
use crate::error::{CliError, CliResult, Exit};
use crate::output;

/// Lists everything; fails if nothing is usable.
pub(crate) fn run(args: &DevicesArgs, out: &mut dyn Write) -> CliResult<()> {
    let listing = itapi::providers()?;
    if args.json {
        let all: Vec<Value> = listing.iter().map(provider_json).collect();
        writeln!(out, "{:#}", json!({ "providers": all }))?;
    } else {
        for provider in &listing {
            write!(out, "{}", provider_text(provider))?;
        }
    }
    let usable = |p: &ProviderListing| p.devices.as_ref().is_ok_and(|d| !d.is_empty());
    if listing.iter().any(usable) {
        return Ok(());
    }
    Err(CliError::new(Exit::Network, "no provider has a usable device")
        .at("devices")
        .hint("see the reasons above"))
}

/// Limits and capabilities of a device, or why it cannot be opened.
fn attrs(device: &DeviceInfo) -> Result<RnicAttrs, String> {
    let ia = Ia::builder().device(device.name.as_str()).open().map_err(|e| e.to_string())?;
    Ok(ia.attrs().clone())
}

fn provider_text(provider: &ProviderListing) -> String {
    let mut text = format!("{} {}", provider.name, provider.version).trim_end().to_owned() + "\n";
    if let Some(library) = &provider.library {
        text += &format!("  library     {}\n", library.display());
    }
    match &provider.devices {
        Err(why) => {
            text += &format!("  not usable: {}\n  try         {}\n", why.reason, why.remedy)
        }
        Ok(devices) => devices.iter().for_each(|device| text += &device_text(device)),
    }
    text
}

fn device_text(device: &DeviceInfo) -> String {
    let mut text = format!("  device {}\n", device.name);
    for (number, port) in device.ports.iter().enumerate() {
        text += &port_text(number, port);
    }
    match attrs(device) {
        Err(why) => text += &format!("    cannot be opened: {why}\n"),
        Ok(attrs) => {
            text += &format!("    vendor        {} {}\n", attrs.vendor, attrs.model);
            text += &format!("    connections   {:?}\n", attrs.connection_model);
            let offers = capabilities(attrs.capabilities);
            let offers = if offers.is_empty() { "none".into() } else { offers.join(", ") };
            text += &format!("    capabilities  {offers}\n");
            text += "    limits\n";
            let rows: Vec<Vec<String>> = limits(&attrs)
                .into_iter()
                .map(|(name, value)| {
                    vec![format!("      {}", name.replace('_', " ")), value.to_string()]
                })
                .collect();
            text += &output::table(&rows);
        }
    }
    text
}

fn port_text(number: usize, port: &PortInfo) -> String {
    let state = if port.online { "online" } else { "offline" };
    let addresses: Vec<String> = port.addresses.iter().map(ToString::to_string).collect();
    format!(
        "    port {number}  {}, {state}, MTU {}, {}\n",
        port.interface,
        port.mtu,
        if addresses.is_empty() { "no address".into() } else { addresses.join(" ") }
    )
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
            "addresses": port.addresses,
        })
    };
    let mut object = json!({
        "name": device.name,
        "ports": device.ports.iter().map(port).collect::<Vec<_>>(),
    });
    match attrs(device) {
        Err(why) => object["error"] = why.into(),
        Ok(attrs) => {
            object["vendor"] = attrs.vendor.clone().into();
            object["model"] = attrs.model.clone().into();
            object["firmware"] = attrs.firmware.clone().into();
            object["connection_model"] = format!("{:?}", attrs.connection_model).into();
            object["capabilities"] = capabilities(attrs.capabilities).into();
            let limits = limits(&attrs).into_iter().map(|(n, v)| (n.to_owned(), v.into()));
            object["limits"] = Value::Object(limits.collect::<Map<_, _>>());
        }
    }
    object
}

/// Names of capabilities, in lower case.
fn capabilities(all: Capabilities) -> Vec<String> {
    all.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect()
}

fn limits(a: &RnicAttrs) -> Vec<(&'static str, u64)> {
    // Of a connection manager of its own; else MPA's limits hold.
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
