//! Parses addresses of `warpline ping`. No state.

use std::net::SocketAddr;

use super::args::PingArgs;
use crate::error::{CliError, CliResult, Exit};
use crate::values::PING_PORT;

/// Addresses of the peer, in the resolver's order, of the family asked for.
pub(super) fn peer(host: &str, args: &PingArgs) -> CliResult<Vec<SocketAddr>> {
    let all = resolve(host)?;
    let wanted = |a: &SocketAddr| !(args.ipv4 && a.is_ipv6() || args.ipv6 && a.is_ipv4());
    let found: Vec<_> = all.into_iter().filter(wanted).collect();
    if found.is_empty() {
        let family = if args.ipv6 { "IPv6" } else { "IPv4" };
        return Err(CliError::new(Exit::Network, format!("{host} has no {family} address"))
            .at("ping")
            .hint("leave out -4 and -6"));
    }
    Ok(found)
}

/// Address to serve at; the defaults are the wildcard and the usual port.
pub(super) fn listener(text: &str, args: &PingArgs) -> CliResult<SocketAddr> {
    let wildcard = if args.ipv4 { "0.0.0.0" } else { "[::]" };
    let whole = match text {
        "" => wildcard.to_owned(),
        port if port.starts_with(':') => format!("{wildcard}{port}"),
        other => other.to_owned(),
    };
    let first = peer(&whole, args)?.into_iter().next();
    first.ok_or_else(|| CliError::new(Exit::Network, format!("{text} has no address")))
}

fn resolve(target: &str) -> CliResult<Vec<SocketAddr>> {
    itapi::resolve(target, PING_PORT).map_err(|error| CliError::unresolved(&error).at("ping"))
}
