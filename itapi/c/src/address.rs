//! `itw_connect`, `itw_listen`, `itw_listen_address`: connections by an address as text, and default attributes
//! (`itw_*_init`). No state; the caller's thread, which waits for the resolver where an address has a host
//! name, and for nothing else.

use std::ffi::c_char;
use std::net::SocketAddr;

use ual::ConnectParams;

use super::boundary;
use super::connect::{MAX_PRIVATE_DATA, connect, private_data, wrong_port};
use super::ep::EpObject;
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::listen::{self, ListenObject};
use super::object;
use super::ptr::{self, Out, Plain};
use super::status::{self, Status};
use super::types::*;

/// Octets of an address, NUL included: a host name has 253 at most, a port 5.
const ADDRESS_SIZE: usize = 512;
/// Defaults: outstanding requests and receives; segments of each; outstanding RDMA Reads, each way.
const DEPTH: usize = 64;
const SEGMENTS: usize = 4;
const READS: u32 = 16;

/// The addresses of `HOST:PORT`, at least one; port 0 if it has none.
///
/// # Safety
/// The pointer obeys the contract of a C caller (see `ptr`).
unsafe fn resolve(address: *const c_char) -> Outcome<(String, Vec<SocketAddr>)> {
    // SAFETY: same contract.
    let text = unsafe { ptr::text(address, ADDRESS_SIZE, "address") }?;
    let found = ual::resolve(&text, 0).map_err(|error| {
        let text =
            format!("{error}; an address is HOST:PORT, 192.0.2.1:7174 or [2001:db8::1]:7174");
        Failure::new(status::IT_ERR_INVALID_ADDRESS, text)
    })?;
    Ok((text, found))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_connect(
    ep_handle: it_ep_handle_t,
    address: *const c_char,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::create(|| {
        let ep = object::find::<EpObject>(ep_handle.cast())?;
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        // SAFETY: contract of a C caller.
        let (text, found) = unsafe { resolve(address) }?;
        let mut found = found.into_iter();
        let remote = found.next().filter(|remote| remote.port() != 0).ok_or_else(|| {
            wrong_port(format!("`{text}` names no port to connect to; an address is HOST:PORT"))
        })?;
        if remote.ip().is_unspecified() {
            let text = format!(
                "`{text}` is not the address of a peer: it means all addresses of this machine"
            );
            return Err(Failure::new(status::IT_ERR_INVALID_ADDRESS, text));
        }
        let alternatives = found.collect();
        connect(&ep, ConnectParams { alternatives, private_data, ..ConnectParams::new(remote) })
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_listen(
    ia_handle: it_ia_handle_t,
    address: *const c_char,
    connect_evd: it_evd_handle_t,
    listen_handle: *mut it_listen_handle_t,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        let evd = listen::dispatcher(connect_evd, &ia.inner)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(listen_handle, "listen_handle") }?;
        // SAFETY: contract of a C caller.
        let (_, addresses) = unsafe { resolve(address) }?;
        let spigot_id = super::path::spigot_of(&ia.inner, addresses[0].ip());
        let inner = listen::at(&ia.inner, addresses, &evd, false)?;
        out.write(ListenObject::insert(inner, spigot_id, connect_evd)?);
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_listen_address(
    listen_handle: it_listen_handle_t,
    buf: *mut c_char,
    len: usize,
) -> usize {
    let mut text = String::new();
    // Without a text `itw_last_error` has the reason.
    boundary::call(|| {
        let listen = object::find::<ListenObject>(listen_handle.cast())?;
        text = listen.inner.addresses().first().map(SocketAddr::to_string).unwrap_or_default();
        Ok(())
    });
    // SAFETY: contract of a C caller.
    unsafe { ptr::write_text(buf, len, &text) }
}

/// Attributes that endpoints for connections and for datagrams both have.
fn queues() -> it_ep_attributes_t {
    it_ep_attributes_t {
        max_request_dtos: DEPTH,
        max_recv_dtos: DEPTH,
        max_send_segments: SEGMENTS,
        max_recv_segments: SEGMENTS,
        ..it_ep_attributes_t::zeroed()
    }
}

fn connected() -> it_ep_attributes_t {
    let rc = it_rc_only_attributes_t {
        rdma_read_enable: IT_TRUE,
        rdma_write_enable: IT_TRUE,
        max_rdma_read_segments: 1,
        max_rdma_write_segments: SEGMENTS,
        rdma_read_ird: READS,
        rdma_read_ord: READS,
        hard_hi_watermark: IT_HARD_HI_WATERMARK_DISABLE,
        ..it_rc_only_attributes_t::zeroed()
    };
    it_ep_attributes_t { srv: it_service_attributes_t { rc }, ..queues() }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_ep_attributes_init(attr: *mut it_ep_attributes_t) -> Status {
    // SAFETY: contract of a C caller.
    boundary::call(|| unsafe { Out::new(attr, "attr") }.map(|out| out.write(connected())))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_ud_ep_attributes_init(attr: *mut it_ep_attributes_t) -> Status {
    // SAFETY: contract of a C caller.
    boundary::call(|| unsafe { Out::new(attr, "attr") }.map(|out| out.write(queues())))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_conn_attributes_init(
    conn_attr: *mut it_conn_attributes_t,
) -> Status {
    // SAFETY: contract of a C caller.
    let out = || unsafe { Out::new(conn_attr, "conn_attr") };
    boundary::call(|| out().map(|out| out.write(it_conn_attributes_t::zeroed())))
}

#[cfg(test)]
mod tests {
    use ual::vp_api::{CqId, PdId, QpInit};

    use super::*;

    // [itw_ep_attributes_init] [itw_ud_ep_attributes_init] [itw_conn_attributes_init]
    #[test]
    fn the_attributes_are_those_that_rust_applications_get() {
        let (mut ep, mut ud) = (it_ep_attributes_t::zeroed(), it_ep_attributes_t::zeroed());
        // SAFETY: room for the attributes.
        assert_eq!(unsafe { itw_ep_attributes_init(&raw mut ep) }, status::IT_SUCCESS);
        // SAFETY: room for the attributes.
        assert_eq!(unsafe { itw_ud_ep_attributes_init(&raw mut ud) }, status::IT_SUCCESS);
        let rust = QpInit::new(PdId(0), CqId(0), CqId(0));
        for attr in [ep, ud] {
            assert_eq!(attr.max_request_dtos, rust.send_depth as usize);
            assert_eq!(attr.max_recv_dtos, rust.recv_depth as usize);
            assert_eq!(attr.max_send_segments, rust.max_send_sge as usize);
            assert_eq!(attr.max_recv_segments, rust.max_recv_sge as usize);
        }
        // SAFETY: plain data; this member was written.
        let rc = unsafe { ep.srv.rc };
        assert_eq!((rc.rdma_read_ird, rc.rdma_read_ord), (rust.ird.into(), rust.ord.into()));
        assert_eq!((rc.rdma_read_enable, rc.rdma_write_enable), (IT_TRUE, IT_TRUE));
        // SAFETY: NULL is allowed by the contract.
        let null = unsafe { itw_conn_attributes_init(std::ptr::null_mut()) };
        assert_eq!(null, status::IT_ERR_FAULT);
    }

    fn resolved(text: &std::ffi::CStr) -> Result<Vec<SocketAddr>, String> {
        // SAFETY: a string with its NUL.
        let found = unsafe { resolve(text.as_ptr()) };
        found.map(|(_, found)| found).map_err(|failure| {
            assert_eq!(failure.status, status::IT_ERR_INVALID_ADDRESS);
            failure.text.into_owned()
        })
    }

    #[test]
    fn addresses_are_hosts_with_ports() {
        let one = |text: &str| Ok(vec![text.parse().unwrap()]);
        assert_eq!(resolved(c"127.0.0.1:7174"), one("127.0.0.1:7174"));
        assert_eq!(resolved(c"[::1]:7174"), one("[::1]:7174"));
        assert_eq!(resolved(c"127.0.0.1"), one("127.0.0.1:0"));
        assert!(!resolved(c"localhost:80").unwrap().is_empty());
        for (wrong, why) in [
            (c"[::1:80", "`[` without `]`"),
            (c":80", "the host is missing"),
            (c"127.0.0.1:http", "not a number"),
        ] {
            let refusal = resolved(wrong).unwrap_err();
            assert!(refusal.contains(why) && refusal.contains("HOST:PORT"), "{refusal}");
        }
    }
}
