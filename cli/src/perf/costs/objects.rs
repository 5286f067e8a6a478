//! Measures creating and destroying objects and connections. One thread; connections go to the second process.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use itapi::Disconnect;
use serde::Serialize;

use super::least_us;
use crate::device::builder;
use crate::error::{CliError, CliResult, Exit};
use crate::perf::args::CostsArgs;
use crate::perf::case::{Case, Mode, Op};
use crate::perf::report::number;
use crate::perf::rounds::Session;
use crate::signals;

pub(super) const HEADER: &[&str] = &["what", "time"];

/// An object and the time to create and destroy it.
#[derive(Debug, Serialize)]
pub(super) struct Object {
    what: &'static str,
    time_us: f64,
}

impl Object {
    pub(super) fn cells(&self) -> Vec<String> {
        vec![self.what.into(), number(self.time_us)]
    }
}

pub(super) fn measure(
    args: &CostsArgs,
    session: &mut Session,
    mpa: bool,
) -> CliResult<Vec<Object>> {
    if signals::caught() {
        return Ok(Vec::new());
    }
    let open = || builder(args.device.as_deref()).open();
    let ia = open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(64)?);
    let time = |once: &mut dyn FnMut() -> itapi::Result<()>| {
        least_us(args.seconds, || {
            let begin = Instant::now();
            once()?;
            Ok(begin.elapsed())
        })
    };
    let mut objects = vec![
        ("open an adapter, close it", time(&mut || open().map(drop))?),
        ("protection zone", time(&mut || ia.pz().map(drop))?),
        ("event dispatcher (CQ) of 16", time(&mut || ia.evd(16).map(drop))?),
        ("event dispatcher (CQ) of 4096", time(&mut || ia.evd(4096).map(drop))?),
        ("endpoint (QP) of 16 and 16", time(&mut || pz.ep(&evd).depth(16, 16).build().map(drop))?),
        (
            "endpoint (QP) of 1024 and 1024",
            time(&mut || pz.ep(&evd).depth(1024, 1024).build().map(drop))?,
        ),
        ("shared receive queue of 1024", time(&mut || pz.srq(1024, 1).map(drop))?),
        ("64 message buffers of 4 KiB", time(&mut || pz.buffers(64, 4096).map(drop))?),
    ];
    let address = session.serve(Case { wait: true, ..Case::new(Op::Write, Mode::Connect, 8) })?;
    let failed = |error| CliError::new(Exit::Network, format!("TCP on loopback: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let plain = least_us(args.seconds, || tcp(&listener).map_err(failed))?;
    objects.push(("TCP connection, both ends", plain));
    objects.push((
        connection(mpa),
        time(&mut || {
            let ep = pz.ep(&evd).depth(16, 16).build()?;
            ep.connect(address, &[])?;
            ep.start_disconnect(Disconnect::Graceful)
        })?,
    ));
    session.end()?;
    Ok(objects.into_iter().map(|(what, time_us)| Object { what, time_us }).collect())
}

/// Name of the row that measures a connection.
fn connection(mpa: bool) -> &'static str {
    match mpa {
        true => "RDMA connection: endpoint, TCP, MPA start-up, close",
        false => "RDMA connection: endpoint, start-up by the device, close",
    }
}

/// Both ends of a connection.
fn tcp(listener: &TcpListener) -> std::io::Result<Duration> {
    let begin = Instant::now();
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let accepted = listener.accept()?;
    drop((stream, accepted));
    Ok(begin.elapsed())
}
