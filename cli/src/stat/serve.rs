//! `warpline stat --listen`: serves OpenMetrics over HTTP, for Prometheus. One request at a time, each bounded;
//! every path returns the metrics. A client that sends nothing, or does not read, is closed after [`PATIENCE`].

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use kal_os::Use;

use super::args::StatArgs;
use super::openmetrics;
use super::pages::Snapshot;
use crate::error::{CliError, CliResult, Exit};

/// Time-out of reading a request, and of writing the response.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest request in octets.
const LONGEST: usize = 16 << 10;

pub(super) fn run(args: &StatArgs, address: SocketAddr, out: &mut dyn Write) -> CliResult<()> {
    let cannot = |error: std::io::Error| {
        CliError::new(Exit::Network, format!("cannot listen on {address}: {error}"))
            .at("stat --listen")
            .hint_at(&error, &address, Use::Bind)
            .or_hint("name another port; 0 picks a free one")
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    writeln!(out, "listening on http://{address}/metrics")?;
    out.flush()?;
    loop {
        match listener.accept() {
            // A failure of one client does not concern the next.
            Ok((client, _)) => drop(serve(args, client)),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot(error)),
        }
    }
}

fn serve(args: &StatArgs, mut client: TcpStream) -> CliResult<()> {
    let end = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    while !request.windows(4).any(|octets| octets == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > LONGEST {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        let mut room = [0; 4096];
        match client.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(octets) => request.extend_from_slice(&room[..octets]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (status, body) = match request.starts_with(b"GET ") {
        true => {
            let snapshot = Snapshot::take(args.pid, args.all)?;
            ("200 OK", openmetrics::text(&snapshot, args.per_connection))
        }
        false => ("405 Method Not Allowed", "only GET is served\n".to_owned()),
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let length = body.len();
    client.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    Ok(client.write_all(body.as_bytes())?)
}
