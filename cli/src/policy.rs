//! `warpline policy`: checks the rules of a configuration, and explains which one a connection would meet. It
//! reads the file as programs do, and connects nowhere. No state.

mod args;

use std::io::Write;
use std::path::Path;

use ual::policy::{Action, Match, Mismatch, Program, Question, Rule, RuleRole, ports};
use ual::{Config, Crc, LocalStreams, Policies};

pub(crate) use args::PolicyArgs;
use args::{RoleArg, WhyArgs};

use crate::error::{CliError, CliResult};
use crate::output;

pub(crate) fn run(args: &PolicyArgs, out: &mut dyn Write) -> CliResult<()> {
    match args {
        PolicyArgs::Check { file } => check(file.as_deref(), out),
        PolicyArgs::Why(args) => Ok(out.write_all(why(args)?.as_bytes())?),
    }
}

/// The configuration, and the name of its file.
fn read(file: Option<&Path>) -> CliResult<(Config, String)> {
    let config = match file {
        Some(file) => Config::read(file),
        None => Config::load(),
    };
    let name = file.map(Path::to_owned).or_else(Config::in_force);
    let name = name.map_or_else(|| "no configuration file".into(), |n| n.display().to_string());
    let wrong = |error: ual::ConfigError| {
        CliError::input(error.to_string())
            .hint("correct the file; programs refuse to start with it")
    };
    Ok((config.map_err(wrong)?, name))
}

fn check(file: Option<&Path>, out: &mut dyn Write) -> CliResult<()> {
    let (config, name) = read(file)?;
    writeln!(out, "{name}: {}", output::count(config.rules.0.len() as u64, "rule"))?;
    for rule in &config.rules.0 {
        let Rule { place, matching, action } = &**rule;
        let line = format!("{place}: {} -> {}", conditions(matching), effects(action));
        out.write_all(output::wrapped(&line).as_bytes())?;
    }
    Ok(())
}

fn why(args: &WhyArgs) -> CliResult<String> {
    let (config, name) = read(args.file.as_deref())?;
    let program = Program {
        uid: args.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        exe: args.exe.clone(),
        class: args.class.clone(),
    };
    let role = match args.role {
        RoleArg::Connect => RuleRole::Connect,
        RoleArg::Accept => RuleRole::Accept,
    };
    let peer = args.peer.to_canonical();
    let question = Question { peer, port: args.port, role, program: &program };
    let mut text = String::new();
    let mut met = None;
    for rule in &config.rules.0 {
        match rule.matching.mismatch(&question) {
            Some(Mismatch { key, wants, has }) => {
                let has = if has.is_empty() { "unknown" } else { &has };
                text += &format!(
                    "no   {}: `{key}` is {wants}, and the connection's is {has}\n",
                    rule.place
                );
            }
            None => {
                text += &format!("yes  {}: {}\n", rule.place, conditions(&rule.matching));
                met = Some(rule);
                break;
            }
        }
    }
    let Some(rule) = met else {
        text += &format!("no rule of {name} matches: `[policy]` applies\n");
        return Ok(text + &policy(&config, args, None));
    };
    match &rule.action.deny {
        Some(_) => text += &format!("     {}\n", effects(&rule.action)),
        None => {
            text += &format!(
                "     {}\n{}",
                effects(&rule.action),
                policy(&config, args, Some(&rule.action))
            )
        }
    }
    Ok(text)
}

/// What a connection then has.
fn policy(config: &Config, args: &WhyArgs, action: Option<&Action>) -> String {
    let policies = Policies { default: config.policy.clone(), peers: config.peers.clone() };
    let mut policy = policies.of(args.peer).clone();
    if let Some(action) = action {
        action.apply(&mut policy);
    }
    let rate = policy.rate.map_or_else(|| "as fast as it can".into(), rate);
    let local = match policy.rate {
        Some(_) => "off, as only TCP keeps a rate",
        None => local(policy.local),
    };
    let (crc, dscp) = (crc(policy.crc), policy.dscp);
    format!("the connection has: crc {crc}, local {local}, dscp {dscp}, rate: {rate}\n")
}

/// The conditions of a rule in words.
fn conditions(of: &Match) -> String {
    let Match { peer, port, role, uid, exe, class } = of;
    let all = [
        peer.map(|peer| format!("peer {peer}")),
        port.map(|(first, last)| format!("port {}", ports(first, last))),
        role.map(|role| format!("role {role}")),
        uid.map(|uid| format!("uid {uid}")),
        exe.as_ref().map(|exe| format!("exe {exe}")),
        class.as_ref().map(|class| format!("class {class}")),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    if all.is_empty() { "every connection".into() } else { all.join(", ") }
}

/// The actions of a rule in words.
fn effects(of: &Action) -> String {
    let Action { deny, device, rate: octets, dscp, connections, crc: crcs, local: locals } = of;
    let all = [
        deny.as_ref().map(|why| format!("deny: {why}")),
        device.as_ref().map(|names| format!("device {}", names.join(" or "))),
        octets.map(|octets| format!("rate {}", rate(octets))),
        dscp.map(|dscp| format!("dscp {dscp}")),
        connections.map(|most| format!("connections {most}")),
        crcs.map(|crcs| format!("crc {}", crc(crcs))),
        locals.map(|locals| format!("local {}", local(locals))),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn rate(octets: u64) -> String {
    let bits = octets as f64 * 8.0;
    match bits {
        _ if bits >= 1e9 => format!("{} Gbit/s", bits / 1e9),
        _ if bits >= 1e6 => format!("{} Mbit/s", bits / 1e6),
        _ => format!("{} Kbit/s", bits / 1e3),
    }
}

fn crc(crc: Crc) -> &'static str {
    match crc {
        Crc::Require => "require",
        Crc::Prefer => "prefer",
        Crc::Off => "off",
        Crc::Refuse => "refuse",
    }
}

fn local(local: LocalStreams) -> &'static str {
    match local {
        LocalStreams::Auto => "auto",
        LocalStreams::Off => "off",
        LocalStreams::Require => "require",
    }
}
