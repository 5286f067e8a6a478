//! What one connection carried by the client's own count, to compare with the state page. Plain values.

use std::io::Write;
use std::net::SocketAddr;

use serde::Serialize;

use crate::error::CliResult;
use crate::output::table;

/// The client's end of a connection, from its start on. Names of fields are those of `warpline stat --json`.
#[derive(Debug, Serialize)]
pub(super) struct Traffic {
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) messages_sent: u64,
    pub(super) octets_sent: u64,
    /// Read Responses included.
    pub(super) messages_received: u64,
    pub(super) octets_received: u64,
}

/// A line for each connection.
pub(super) fn print(all: &[Traffic], out: &mut dyn Write) -> CliResult<()> {
    let header = ["local", "remote", "messages sent", "octets sent", "received", "octets received"];
    let name = |end: Option<SocketAddr>| end.map_or_else(|| "-".into(), |end| end.to_string());
    let mut rows = vec![header.map(String::from).to_vec()];
    rows.extend(all.iter().map(|of| {
        let counts = [of.messages_sent, of.octets_sent, of.messages_received, of.octets_received];
        let ends = [name(of.local), name(of.remote)];
        ends.into_iter().chain(counts.map(|count| count.to_string())).collect()
    }));
    writeln!(out, "\nConnections of the last measurement, until standard input ends")?;
    Ok(write!(out, "{}", table(&rows))?)
}
