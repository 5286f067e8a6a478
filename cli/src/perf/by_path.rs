//! Connections by path between the ends of a measurement, without a connection manager: numbers and memory are
//! exchanged over a TCP connection beside them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use itapi::{Ep, PathSender, PeerPath, RemoteRange};
use roce_proto::rc::Mtu;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use ual::gid::gid;

use super::worker::Worker;
use crate::error::{CliError, CliResult, Exit};

/// For each step of the peer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Packet sequence number of each end's first request.
const FIRST: u32 = 0;
/// Time-outs and repetitions as perftest's.
const RNR_TIMER: u8 = 12;
const ACK_TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;

/// Where clients find the numbers of the server's endpoints.
pub(super) fn listen(address: IpAddr) -> CliResult<(TcpListener, u16)> {
    let listener = TcpListener::bind((address, 0)).map_err(|error| failed(&error))?;
    let port = listener.local_addr().map_err(|error| failed(&error))?.port();
    Ok((listener, port))
}

/// Connects a server's endpoint to the next client; returns the client's memory.
pub(super) fn accept(listener: &TcpListener, worker: &Worker, ep: &Ep) -> CliResult<RemoteRange> {
    let mut waits = [PollFd::new(listener, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    match retry_on_intr(|| poll(&mut waits, Some(&patience))) {
        Ok(0) => Err(itapi::Error::Timeout(PATIENCE).into()),
        Ok(_) => bring_up(listener.accept().map_err(|error| failed(&error))?.0, worker, ep),
        Err(errno) => Err(failed(&errno)),
    }
}

/// Connects a client's endpoint; returns the server's memory.
pub(super) fn connect(address: SocketAddr, worker: &Worker, ep: &Ep) -> CliResult<RemoteRange> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| failed(&error))?;
    bring_up(stream, worker, ep)
}

fn bring_up(mut stream: TcpStream, worker: &Worker, ep: &Ep) -> CliResult<RemoteRange> {
    let limits = ep.query()?.qp;
    let number = ep.path_number()?.to_be_bytes();
    let (theirs, remote, ends) =
        exchange(&mut stream, number, worker).map_err(|error| failed(&error))?;
    let peer = PeerPath {
        local_gid: gid(ends.0),
        remote_gid: gid(ends.1),
        qpn: u32::from_be_bytes(theirs),
        psn: FIRST,
        mtu_code: mtu_code(worker, ends.0)?,
        ird: limits.ird,
        min_rnr_timer: RNR_TIMER,
    };
    let sender = PathSender {
        psn: FIRST,
        ack_timeout: ACK_TIMEOUT,
        retry_count: RETRIES,
        rnr_retry: RETRIES,
        ord: limits.ord,
    };
    ep.connect_by_path(&peer, &sender)?;
    // What is sent before the peer receives would be repeated.
    both_ready(&mut stream).map_err(|error| failed(&error))?;
    RemoteRange::from_octets(&remote).ok_or_else(|| failed(&"no memory"))
}

type Exchanged = ([u8; 4], [u8; RemoteRange::ENCODED_LEN], (IpAddr, IpAddr));

fn exchange(
    stream: &mut TcpStream,
    number: [u8; 4],
    worker: &Worker,
) -> std::io::Result<Exchanged> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[&number[..], &worker.region.remote().to_octets()].concat())?;
    let (mut theirs, mut remote) = ([0; 4], [0; RemoteRange::ENCODED_LEN]);
    stream.read_exact(&mut theirs)?;
    stream.read_exact(&mut remote)?;
    Ok((theirs, remote, (stream.local_addr()?.ip(), stream.peer_addr()?.ip())))
}

fn both_ready(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])
}

/// The code of the largest path MTU of an address; both ends are on one machine, so it is the peer's, too.
fn mtu_code(worker: &Worker, local: IpAddr) -> CliResult<u8> {
    let ports = worker.pz.ia().ports()?;
    let of = ports.iter().find(|port| port.addresses.contains(&local.to_canonical()));
    let mtu = of.and_then(|port| Mtu::of_link(port.mtu));
    Ok(mtu.unwrap_or(Mtu::Octets1024).code().min(Mtu::Octets4096.code()))
}

fn failed(why: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Network, format!("cannot exchange numbers: {why}")).at("perf --paths")
}
