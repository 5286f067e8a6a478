//! Making and ending connections: connect, accept, reject, hand-off, disconnect, socket conversion. No
//! state of its own; the caller's thread, which never waits for a peer.

use std::borrow::Cow;
use std::ffi::c_char;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ual::vp_api::{PortInfo, Role};
use ual::{
    AcceptParams, ConnectParams, ConvertParams, Disconnect, Error, Established, Handoff, Ia,
    RequestId,
};

use super::boundary;
use super::check_bits;
use super::ep::EpObject;
use super::failure::{Failure, Outcome};
use super::object;
use super::path;
use super::ptr::{self, List};
use super::status::{self, Status};
use super::types::*;

/// Private data that every event of the standard layout has room for.
pub(crate) const MAX_PRIVATE_DATA: usize = std_abi::IT_MAX_PRIV_DATA;
/// `path.timeout` is in microseconds; applications leave it uninitialised. Outside these bounds it is ignored,
/// and the policy's time-out is used.
const PLAUSIBLE_TIMEOUT: std::ops::RangeInclusive<u64> = 1_000..=3_600_000_000;

/// Private data of the caller, `most` octets of it: what an event of its layout has room for.
///
/// # Safety
/// The pointer obeys the contract of a C caller (see `ptr`).
pub(crate) unsafe fn private_data(data: *const u8, len: usize, most: usize) -> Outcome<Vec<u8>> {
    check_private_data(len, most)?;
    // SAFETY: same contract.
    Ok(unsafe { List::new(data, len, "private_data") }?.to_vec())
}

/// Refuses more private data than an event has room for.
pub(crate) fn check_private_data(len: usize, most: usize) -> Outcome {
    if len <= most {
        return Ok(());
    }
    let text = format!("{len} octets of private data; at most {most} are possible");
    Err(Failure::new(status::IT_ERR_INVALID_PDATA_LENGTH, text))
}

/// The port of a qualifier, which must be of one of two types with the port in the same place.
pub(crate) fn ports_of(qualifier: &it_conn_qual_t) -> Outcome<(u16, u16)> {
    // SAFETY: plain data: every pattern of bits is a pair of ports.
    let ports = unsafe { qualifier.conn_qual.lr_port };
    let (first, second) = (u16::from_be(ports.local), u16::from_be(ports.remote));
    match qualifier.r#type {
        IT_IANA_PORT => Ok((first, 0)),
        IT_IANA_LR_PORT => Ok((first, second)),
        other => Err(wrong_port(format!(
            "the connection qualifier is of type {other:#x}; iWARP has IT_IANA_PORT and \
             IT_IANA_LR_PORT"
        ))),
    }
}

pub(crate) fn wrong_port(text: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(status::IT_ERR_INVALID_CONN_QUAL, text)
}

/// Local and remote port of an outgoing connection.
fn connect_ports(qualifier: &it_conn_qual_t) -> Outcome<(u16, u16)> {
    let (local, remote) = match (ports_of(qualifier)?, qualifier.r#type) {
        ((port, _), IT_IANA_PORT) => (0, port),
        (both, _) => both,
    };
    match remote {
        0 => Err(wrong_port("the remote port is 0, which is no port")),
        _ => Ok((local, remote)),
    }
}

/// The address to connect from. One that is not ours means any: applications exist that pass
/// `INADDR_LOOPBACK` in the wrong octet order.
fn local_address(ia: &Ia, asked: IpAddr) -> Option<IpAddr> {
    let has = |port: &PortInfo| port.addresses.contains(&asked.to_canonical());
    let ours = || ia.ports().is_ok_and(|ports| ports.iter().any(has));
    (!asked.is_unspecified() && (asked.is_loopback() || ours())).then_some(asked)
}

/// How to connect, from the arguments of C.
///
/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
pub(crate) unsafe fn connect_params(
    ia: &Ia,
    path: *const it_path_t,
    connect_qual: *const it_conn_qual_t,
    cn_est_flags: it_cn_est_flags_t,
) -> Outcome<ConnectParams> {
    // SAFETY: same contract.
    let path = unsafe { ptr::read(path, "path") }?;
    // SAFETY: same contract.
    let qualifier = unsafe { ptr::read(connect_qual, "connect_qual") }?;
    // Only InfiniBand has three-way handshakes.
    let known = IT_CONNECT_FLAG_TWO_WAY | IT_CONNECT_SUPPRESS_IRD_ORD;
    check_bits(cn_est_flags, known, status::IT_ERR_INVALID_CN_EST_FLAGS, "cn_est_flags")?;
    let (local, remote) = path::ends_of(&path)?;
    if remote.is_unspecified() {
        let text = format!("the remote address {remote} of the path is not usable");
        return Err(Failure::new(status::IT_ERR_INVALID_ADDRESS, text));
    }
    let (local_port, port) = connect_ports(&qualifier)?;
    let timeout = PLAUSIBLE_TIMEOUT.contains(&path.timeout);
    Ok(ConnectParams {
        local: local_address(ia, local),
        local_port,
        timeout: timeout.then(|| Duration::from_micros(path.timeout)),
        suppress_ird_ord: cn_est_flags & IT_CONNECT_SUPPRESS_IRD_ORD != 0,
        ..ConnectParams::new(SocketAddr::new(remote, port))
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_connect(
    ep_handle: it_ep_handle_t,
    path: *const it_path_t,
    _conn_attr: *const it_conn_attributes_t,
    connect_qual: *const it_conn_qual_t,
    cn_est_flags: it_cn_est_flags_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::create(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let params = unsafe { connect_params(ep.inner.ia(), path, connect_qual, cn_est_flags) }?;
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        connect(&ep, ConnectParams { private_data, ..params })
    })
}

pub(crate) fn connect(ep: &EpObject, params: ConnectParams) -> Outcome {
    ep.inner.connect(params).map_err(Failure::by(status::IT_ERR_INVALID_ADDRESS))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ep_accept(
    ep_handle: it_ep_handle_t,
    cn_est_id: it_cn_est_identifier_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::create(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        accept(&ep, cn_est_id, private_data)
    })
}

pub(crate) fn accept(
    ep: &EpObject,
    cn_est_id: it_cn_est_identifier_t,
    private_data: Vec<u8>,
) -> Outcome {
    let params = AcceptParams { private_data, ..AcceptParams::default() };
    // Before the call: its outcome's event may be dequeued before this function returns.
    let before = ep.cn_est_id.swap(cn_est_id, Ordering::AcqRel);
    let accepted = ep.inner.accept(RequestId::from_raw(cn_est_id), params);
    accepted.map_err(|error| {
        ep.cn_est_id.store(before, Ordering::Release);
        Failure::of(error, status::IT_ERR_INVALID_CN_EST_ID)
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_reject(
    cn_est_id: it_cn_est_identifier_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::call(|| {
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        reject(cn_est_id, &private_data)
    })
}

pub(crate) fn reject(cn_est_id: it_cn_est_identifier_t, private_data: &[u8]) -> Outcome {
    let rejected = ual::cm::reject(RequestId::from_raw(cn_est_id), private_data);
    rejected.map_err(Failure::by(status::IT_ERR_INVALID_CN_EST_ID))
}

/// The spigot is that of the request: the connection has arrived there already.
///
/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_handoff(
    conn_qual: *const it_conn_qual_t,
    _spigot_id: usize,
    cn_est_id: it_cn_est_identifier_t,
) -> Status {
    boundary::create(|| {
        // SAFETY: contract of a C caller.
        let qualifier = unsafe { ptr::read(conn_qual, "conn_qual") }?;
        let (port, _) = ports_of(&qualifier)?;
        if port == 0 {
            return Err(wrong_port("port 0 is no port"));
        }
        let handed = ual::cm::handoff(RequestId::from_raw(cn_est_id), Handoff::new(port));
        handed.map_err(Failure::by(status::IT_ERR_INVALID_CONN_QUAL))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ep_disconnect(
    ep_handle: it_ep_handle_t,
    _private_data: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::call(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        if private_data_length != 0 {
            let text = "iWARP carries no private data with a disconnect";
            return Err(Failure::new(status::IT_ERR_PDATA_NOT_SUPPORTED, text));
        }
        disconnect(&ep)
    })
}

pub(crate) fn disconnect(ep: &EpObject) -> Outcome {
    let ended = ep.inner.disconnect(Disconnect::Graceful);
    ended.map_err(Failure::by(status::IT_ERR_INVALID_EP_STATE))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_socket_convert(
    sd: RawFd,
    ep_handle: it_ep_handle_t,
    flags: it_sc_flags_t,
    msg: *const u8,
    len: usize,
) -> Status {
    boundary::create(|| {
        // The side that sends the last message of the dialogue waits for the peer's first FPDU.
        let role = if msg.is_null() { Role::Initiator } else { Role::Responder };
        // SAFETY: contract of a C caller.
        let last_message = unsafe { List::new(msg, len, "msg") }?.to_vec();
        let params = ConvertParams { last_message, ..ConvertParams::new(role) };
        convert(sd, ep_handle, flags, params)
    })
}

const ITW_ROLE_INITIATOR: u32 = 0;
const ITW_ROLE_RESPONDER: u32 = 1;

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_socket_convert(
    sd: RawFd,
    ep_handle: it_ep_handle_t,
    flags: it_sc_flags_t,
    role: u32,
    msg: *const u8,
    len: usize,
    private: *const u8,
    private_data_length: usize,
    received: *const u8,
    received_length: usize,
) -> Status {
    boundary::create(|| {
        let role = match role {
            ITW_ROLE_INITIATOR => Role::Initiator,
            ITW_ROLE_RESPONDER => Role::Responder,
            _ => {
                let text = format!("role is {role}, which is no itw_role_t");
                return Err(Failure::new(status::IT_ERR_INVALID_FLAGS, text));
            }
        };
        if flags & IT_SC_NO_REQ_REP != 0 && private_data_length != 0 {
            let text = "without MPA request and reply no frame carries private data";
            return Err(Failure::new(status::IT_ERR_PDATA_NOT_SUPPORTED, text));
        }
        // SAFETY: contract of a C caller.
        let last_message = unsafe { List::new(msg, len, "msg") }?.to_vec();
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        // SAFETY: contract of a C caller.
        let received = unsafe { List::new(received, received_length, "received") }?.to_vec();
        let params = ConvertParams::new(role);
        convert(
            sd,
            ep_handle,
            flags,
            ConvertParams { last_message, private_data, received, ..params },
        )
    })
}

fn convert(
    sd: RawFd,
    ep_handle: it_ep_handle_t,
    flags: it_sc_flags_t,
    params: ConvertParams,
) -> Outcome {
    let ep = object::find::<EpObject>(ep_handle.cast())?;
    check_bits(flags, IT_SC_NO_REQ_REP, status::IT_ERR_INVALID_FLAGS, "flags")?;
    if !is_open(sd) {
        let text = format!("{sd} is no open file descriptor of this process");
        return Err(Failure::new(status::IT_ERR_MISMATCH_FD, text));
    }
    // SAFETY: it is open, and the caller passes it on; if it is not taken it is given back below.
    let socket = unsafe { OwnedFd::from_raw_fd(sd) };
    let params = ConvertParams { startup: flags & IT_SC_NO_REQ_REP == 0, ..params };
    ep.inner.convert(socket, params).map_err(|refused| {
        // Still the caller's, as it was.
        let _: RawFd = refused.socket.into_raw_fd();
        match refused.error {
            error @ Error::Socket(_) => Failure::of(error, status::IT_ERR_MISMATCH_FD),
            error => Failure::of(error, status::IT_ERR_INVALID_LENGTH),
        }
    })
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: queries a descriptor number and touches no memory.
    fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_ep_carrier(
    ep_handle: it_ep_handle_t,
    buf: *mut c_char,
    len: usize,
) -> usize {
    let mut text = String::new();
    // Without a text `itw_last_error` has the reason.
    boundary::call(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        text = ep.inner.established().map(carrier_of).unwrap_or_default();
        Ok(())
    });
    // SAFETY: contract of a C caller.
    unsafe { ptr::write_text(buf, len, &text) }
}

fn carrier_of(established: Established) -> String {
    match established.local {
        _ if established.revision == 0 => "device".into(),
        Ok(()) => "local stream".into(),
        Err(why) => format!("TCP ({}): {why}", why.code()),
    }
}
