//! Listeners. The object owns the access layer's listener. Any thread.
//!
//! Spigot 0 stands for the whole adapter: applications pass it by default. Any other one stands
//! for the addresses of that port. Where the kernel's connection manager listens, spigot 0 means all
//! addresses one by one: it would open `[::]` on every device, and siw then refuses IPv4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ual::{Error, Ia, ListenInit, Serves, Stream};
use vp_api::ConnectionModel;

use super::connect::{ports_of, wrong_port};
use super::evd::EvdObject;
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::object::{CloseOrder, Kind, Object};
use super::ptr::{self, Out, Plain};
use super::status::{self, Status};
use super::types::*;
use super::{boundary, check_bits, check_mask, object, path};

/// The object behind the handle of a listener.
pub(crate) struct ListenObject {
    pub(crate) inner: Arc<ual::Listen>,
    spigot_id: usize,
    connect_evd: u64,
}

impl Object for ListenObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_LISTEN,
            name: "listener",
            wrong: status::IT_ERR_INVALID_LISTEN,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Listeners
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_listen_create(
    ia_handle: it_ia_handle_t,
    spigot_id: usize,
    connect_evd: it_evd_handle_t,
    flags: it_listen_flags_t,
    conn_qual: *mut it_conn_qual_t,
    listen_handle: *mut it_listen_handle_t,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        let evd = dispatcher(connect_evd, &ia.inner)?;
        let known = IT_LISTEN_CONN_QUAL_INPUT | IT_LISTEN_SUPPRESS_IRD_ORD;
        check_bits(flags, known, status::IT_ERR_INVALID_FLAGS, "flags")?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(listen_handle, "listen_handle") }?;
        // SAFETY: contract of a C caller.
        let qualifier = unsafe { Out::optional(conn_qual) };
        let port = match (flags & IT_LISTEN_CONN_QUAL_INPUT, &qualifier) {
            (0, _) => 0,
            (_, Some(given)) => wanted_port(&given.read())?,
            (_, None) => return Err(ptr::null("conn_qual")),
        };
        let suppress_ird_ord = flags & IT_LISTEN_SUPPRESS_IRD_ORD != 0;
        let inner = listen(&ia.inner, spigot_id, port, &evd, suppress_ird_ord)?;
        let real = inner.addresses().first().map_or(port, SocketAddr::port);
        let handle = ListenObject::insert(inner, spigot_id, connect_evd)?;
        if let Some(qualifier) = qualifier {
            qualifier.write(qualifier_of(real));
        }
        out.write(handle);
        Ok(())
    })
}

impl ListenObject {
    /// Gives a listener a handle.
    pub(crate) fn insert(
        inner: Arc<ual::Listen>,
        spigot_id: usize,
        connect_evd: it_evd_handle_t,
    ) -> Outcome<it_listen_handle_t> {
        let raw = object::insert(|raw| {
            inner.tag().set(raw.number());
            Self { inner, spigot_id, connect_evd: connect_evd.addr() as u64 }
        })?;
        Ok(object::handle(raw.number()))
    }
}

/// Listens at addresses of the machine.
pub(crate) fn at(
    ia: &Arc<Ia>,
    addresses: Vec<SocketAddr>,
    evd: &Arc<ual::Evd>,
    suppress_ird_ord: bool,
) -> Outcome<Arc<ual::Listen>> {
    let (evd, serves) = (evd.clone(), Serves::Both);
    let init = ListenInit { addresses, evd, policy: None, suppress_ird_ord, serves };
    ia.listen(init).map_err(Failure::by(status::IT_ERR_RESOURCES))
}

pub(crate) fn dispatcher(handle: it_evd_handle_t, ia: &Arc<Ia>) -> Outcome<Arc<ual::Evd>> {
    let wrong = status::IT_ERR_INVALID_CONN_EVD;
    let evd = object::find_or::<EvdObject>(handle.cast(), wrong)?;
    if !Arc::ptr_eq(evd.inner.ia(), ia) {
        let text = "the event dispatcher is of another interface adapter";
        return Err(Failure::new(wrong, text));
    }
    match evd.inner.stream() {
        Stream::Request => Ok(evd.inner.clone()),
        other => Err(Failure::new(
            status::IT_ERR_INVALID_EVD_TYPE,
            format!("the dispatcher carries {other:?} events, not connection requests"),
        )),
    }
}

fn wanted_port(qualifier: &it_conn_qual_t) -> Outcome<u16> {
    match ports_of(qualifier)? {
        (0, _) => Err(wrong_port(
            "port 0 is no port; without IT_LISTEN_CONN_QUAL_INPUT the library picks a free one",
        )),
        (port, _) => Ok(port),
    }
}

fn qualifier_of(port: u16) -> it_conn_qual_t {
    let mut qualifier = it_conn_qual_t { r#type: IT_IANA_PORT, ..it_conn_qual_t::zeroed() };
    qualifier.conn_qual.port = port.to_be();
    qualifier
}

fn listen(
    ia: &Arc<Ia>,
    spigot_id: usize,
    port: u16,
    evd: &Arc<ual::Evd>,
    suppress_ird_ord: bool,
) -> Outcome<Arc<ual::Listen>> {
    let at = |ips: Vec<IpAddr>| {
        let addresses = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        let (evd, serves) = (evd.clone(), Serves::Both);
        ia.listen(ListenInit { addresses, evd, policy: None, suppress_ird_ord, serves })
    };
    let found = path::check_spigot(ia, spigot_id)?;
    let streams = ia.attrs().connection_model == ConnectionModel::LlpStream;
    let listening = if spigot_id == 0 && streams {
        // `[::]` takes IPv4 too; a machine without IPv6 has no such address.
        at(vec![Ipv6Addr::UNSPECIFIED.into()]).or_else(|error| match error {
            Error::Os { ref source, .. } | Error::Address { ref source, .. }
                if is_missing(source) =>
            {
                at(vec![Ipv4Addr::UNSPECIFIED.into()])
            }
            error => Err(error),
        })
    } else {
        let ports = match spigot_id {
            0 => ia.ports().map_err(Failure::by(status::IT_ERR_RESOURCES))?,
            _ => vec![found],
        };
        let all = ports.into_iter().flat_map(|port| port.addresses);
        let usable: Vec<_> = all.filter(|ip| !path::is_link_local(ip)).collect();
        if usable.is_empty() {
            let text = format!("spigot {spigot_id} of {} has no address", ia.device());
            return Err(Failure::new(status::IT_ERR_INVALID_SPIGOT, text));
        }
        at(usable)
    };
    listening.map_err(Failure::by(status::IT_ERR_RESOURCES))
}

fn is_missing(error: &std::io::Error) -> bool {
    let codes = [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_listen_free(listen_handle: it_listen_handle_t) -> Status {
    boundary::call(|| {
        let listen = object::find::<ListenObject>(listen_handle.cast())?;
        listen.inner.close().map_err(Failure::by(status::IT_ERR_INVALID_LISTEN))?;
        object::forget(listen_handle.cast());
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_listen_query(
    listen_handle: it_listen_handle_t,
    mask: it_listen_param_mask_t,
    params: *mut it_listen_param_t,
) -> Status {
    boundary::call(|| {
        let listen = object::find::<ListenObject>(listen_handle.cast())?;
        check_mask(mask, (IT_LISTEN_PARAM_CONN_QUAL << 1) - 1)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        let port = listen.inner.addresses().first().map_or(0, SocketAddr::port);
        out.write(it_listen_param_t {
            ia_handle: object::handle(listen.inner.ia().tag().get()),
            spigot_id: listen.spigot_id,
            connect_evd: object::handle(listen.connect_evd),
            connect_qual: qualifier_of(port),
        });
        Ok(())
    })
}
