//! `warpline devices`: lists devices, their capabilities, and what is missing. No state.
//!
//! Code of providers runs only in second processes, one for each listing and one for each device: if a provider
//! crashes or hangs, the listing names it and goes on.

mod args;
mod child;
mod policy;

use std::ffi::OsString;
use std::io::Write;

use serde_json::{Map, Value, json};
use ual::Ual;

pub(crate) use args::DevicesArgs;

use crate::error::{CliError, CliResult, Exit};
use crate::output;
use crate::second::{self, Bounds, Broken};

/// Lists everything; fails if nothing is usable.
pub(crate) fn run(args: &DevicesArgs, out: &mut dyn Write) -> CliResult<()> {
    if let Some(place) = args.only {
        return child::run(args, place, out);
    }
    let ual = Ual::new().map_err(itapi::Error::from)?;
    let mut all = Vec::new();
    for (place, (name, library)) in ual.known().into_iter().enumerate() {
        let mut provider = json!({ "name": name });
        if let Some(library) = library {
            provider["library"] = library.display().to_string().into();
        }
        let provider = list(args, place, provider)?;
        if !args.json {
            write!(out, "{}", provider_text(&provider))?;
        }
        all.push(provider);
    }
    let works = |device: &Value| device.get("limits").is_some() && device.get("error").is_none();
    let usable = |provider: &Value| items(&provider["devices"]).any(works);
    let usable = all.iter().any(usable);
    if args.json {
        let all: Vec<Value> = all.into_iter().map(machine_readable).collect();
        let local_streams = policy::json_of(ual.config());
        writeln!(out, "{:#}", json!({ "providers": all, "local_streams": local_streams }))?;
    } else {
        write!(out, "{}", policy::text_of(ual.config()))?;
    }
    if usable {
        return Ok(());
    }
    Err(CliError::new(Exit::Network, "no provider has a usable device")
        .at("devices")
        .hint("see the reasons above"))
}

/// Adds to `provider` what its second process reports of it and its devices.
fn list(args: &DevicesArgs, place: usize, provider: Value) -> CliResult<Value> {
    let (mut provider, broken) = ask(args, place, None, provider)?;
    if let Some(Broken { step, why }) = broken {
        let remedy = "ask its vendor; see `warpline provider check`";
        let reason = format!("{why} while {step}");
        provider["unavailable"] = json!({ "reason": reason, "remedy": remedy });
        return Ok(provider);
    }
    for device in provider["devices"].as_array_mut().into_iter().flatten() {
        let name = device["name"].as_str().unwrap_or_default().to_owned();
        let (mut opened, broken) = ask(args, place, Some(&name), device.take())?;
        if let Some(Broken { step, why }) = broken {
            opened["error"] = format!("{why} while {step}").into();
        }
        *device = opened;
    }
    Ok(provider)
}

/// Adds to `known` what a second process reports of a provider, or of a device of it.
fn ask(
    args: &DevicesArgs,
    place: usize,
    open: Option<&str>,
    mut known: Value,
) -> CliResult<(Value, Option<Broken>)> {
    let mut words: Vec<OsString> = ["devices", "--only"].map(OsString::from).into();
    words.push(place.to_string().into());
    words.push(format!("--limit={}", args.limit.as_secs_f64()).into());
    words.extend(open.map(|device| format!("--open={device}").into()));
    let step = |step: &str| match step.starts_with(child::LOADING) {
        // The second process has a shorter limit and ends it first.
        true => args.limit * 2,
        false => args.limit,
    };
    let bounds = Bounds { step: &step, whole: None, shows_stderr: true };
    let broken = second::run(words, &bounds, &mut |line| {
        let line = line.as_object().into_iter().flatten().filter(|(key, _)| *key != "done");
        line.for_each(|(key, value)| known[key] = value.clone());
        Ok(())
    })?;
    Ok((known, broken))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn words(list: &Value) -> Vec<&str> {
    items(list).filter_map(Value::as_str).collect()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

fn provider_text(provider: &Value) -> String {
    let name = format!("{} {}", text(provider, "name"), text(provider, "version"));
    let mut out = name.trim_end().to_owned() + "\n";
    if let Some(library) = provider["library"].as_str() {
        out += &format!("  library     {library}\n");
    }
    if let Some(why) = provider.get("unavailable") {
        let (reason, remedy) = (text(why, "reason"), text(why, "remedy"));
        out += &format!("  not usable: {reason}\n  try         {remedy}\n");
    }
    items(&provider["devices"]).for_each(|device| out += &device_text(device));
    out
}

fn device_text(device: &Value) -> String {
    let mut out = format!("  device {}\n", text(device, "name"));
    for (number, port) in items(&device["ports"]).enumerate() {
        out += &port_text(number, port);
    }
    let opened = device.get("limits").is_some();
    if let Some(why) = device["error"].as_str() {
        out += &format!("    cannot be {}: {why}\n", if opened { "used" } else { "opened" });
    }
    if opened {
        out += &attrs_text(device);
    }
    out
}

fn attrs_text(device: &Value) -> String {
    let mut out =
        format!("    vendor        {} {}\n", text(device, "vendor"), text(device, "model"));
    let model = match text(device, "connection_model") {
        "llp-stream" => "takes over TCP streams",
        _ => "by a connection manager of its own",
    };
    out += &format!("    connections   {model}\n");
    let offers = words(&device["capabilities"]);
    let offers = if offers.is_empty() { "none".to_owned() } else { offers.join(", ") };
    out += &format!("    capabilities  {offers}\n");
    let row = |limit: &Value| {
        let name = limit[0].as_str().unwrap_or_default().replace('_', " ");
        vec![format!("      {name}"), limit[1].to_string()]
    };
    let rows: Vec<_> = items(&device["limits"]).map(row).collect();
    out + "    limits\n" + &output::table(&rows)
}

fn port_text(number: usize, port: &Value) -> String {
    let state = if port["online"] == json!(true) { "online" } else { "offline" };
    let addresses = words(&port["addresses"]);
    let addresses =
        if addresses.is_empty() { "no address".to_owned() } else { addresses.join(" ") };
    let (interface, mtu) = (text(port, "interface"), &port["mtu"]);
    format!("    port {number}  {interface}, {state}, MTU {mtu}, {addresses}\n")
}

/// Limits by name, in the child's order.
fn machine_readable(mut provider: Value) -> Value {
    for device in provider["devices"].as_array_mut().into_iter().flatten() {
        if let Some(limits) = device.get_mut("limits") {
            let pair = |limit: &Value| Some((limit[0].as_str()?.to_owned(), limit[1].clone()));
            *limits = Value::Object(items(limits).filter_map(pair).collect::<Map<_, _>>());
        }
    }
    provider
}
