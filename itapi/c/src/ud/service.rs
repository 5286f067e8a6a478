//! Services for datagrams: requests for endpoints, and replies. The object owns the access layer's
//! and stores C's description of it. Any thread.

use std::net::SocketAddr;
use std::sync::Arc;

use ual::vp_api::{ServiceRefusal, UdAddress};
use ual::{Error, Ia, RequestId, Stream, UdService, UdServiceInit};

use super::endpoint::{check_datagrams, unsupported};
use super::path::peer_of;
use crate::connect::{check_private_data, ports_of, private_data, wrong_port};
use crate::evd::EvdObject;
use crate::failure::{Failure, Outcome};
use crate::ia::IaObject;
use crate::object::{CloseOrder, Kind, Object, Ref};
use crate::ptr::{self, Out};
use crate::status::{self, Status};
use crate::types::*;
use crate::{boundary, check_mask, object};

/// The object behind the handle of a service request.
pub(crate) struct UdServiceObject {
    pub(crate) inner: Arc<UdService>,
    handle: u64,
    reply_evd: u64,
    conn_qual: it_conn_qual_t,
    destination_path: it_path_t,
}

impl Object for UdServiceObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_UD_SVC_REQ,
            name: "UD service request",
            wrong: status::IT_ERR_INVALID_UD_SVC,
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

/// Private data that every event of the standard layout has room for.
const MAX_PRIVATE_DATA: usize = std_abi::IT_MAX_PRIV_DATA;

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ud_service_request_handle_create(
    conn_qual: *const it_conn_qual_t,
    reply_evd: it_evd_handle_t,
    destination_path: *const it_path_t,
    private: *const u8,
    private_data_length: usize,
    ud_svc_handle: *mut it_ud_svc_req_handle_t,
) -> Status {
    boundary::create(|| {
        // SAFETY: contract of a C caller.
        let conn_qual = unsafe { ptr::read(conn_qual, "conn_qual") }?;
        let evd = object::find::<EvdObject>(reply_evd.cast())?;
        // SAFETY: contract of a C caller.
        let destination_path = unsafe { ptr::read(destination_path, "destination_path") }?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(ud_svc_handle, "ud_svc_handle") }?;
        let ia = evd.inner.ia();
        check_datagrams(ia)?;
        if evd.inner.stream() != Stream::Connection {
            let text = "the replies need a dispatcher of IT_CM_MSG_EVENT_STREAM";
            return Err(Failure::new(status::IT_ERR_INVALID_EVD_TYPE, text));
        }
        let port = match ports_of(&conn_qual)? {
            (0, 0) => return Err(wrong_port("port 0 is no port")),
            (0, port) | (port, 0) | (_, port) => port,
        };
        let peer = SocketAddr::new(peer_of(&destination_path)?, port);
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        let init = UdServiceInit { peer, evd: evd.inner.clone(), private_data };
        let inner = ia.create_ud_service(init);
        let inner = inner.map_err(Failure::by(status::IT_ERR_INVALID_EVD))?;
        let raw = object::insert(|raw| {
            inner.tag().set(raw.number());
            let (handle, reply_evd) = (raw.number(), reply_evd.addr() as u64);
            UdServiceObject { inner, handle, reply_evd, conn_qual, destination_path }
        })?;
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ud_service_request_handle_free(
    ud_svc_handle: it_ud_svc_req_handle_t,
) -> Status {
    boundary::call(|| {
        let service = object::find::<UdServiceObject>(ud_svc_handle.cast())?;
        service.inner.close().map_err(Failure::by(status::IT_ERR_INVALID_UD_SVC))?;
        object::forget(ud_svc_handle.cast());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ud_service_request(ud_svc_handle: it_ud_svc_req_handle_t) -> Status {
    boundary::create(|| {
        let service = object::find::<UdServiceObject>(ud_svc_handle.cast())?;
        service.inner.request().map_err(Failure::by(status::IT_ERR_RESOURCES))
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_ud_service_reply(
    ud_svc_req_id: it_ud_svc_req_identifier_t,
    status: it_ud_svc_req_status_t,
    ep_info: it_remote_ep_info_t,
    private: *const u8,
    private_data_length: usize,
) -> Status {
    boundary::call(|| {
        let answer = match status {
            IT_UD_SVC_EP_INFO_VALID => {
                Ok(UdAddress { qpn: ep_info.ud_ep_id, qkey: ep_info.ud_ep_key })
            }
            IT_UD_SVC_ID_NOT_SUPPORTED => Err(ServiceRefusal::NotSupported),
            IT_UD_SVC_REQ_REJECTED => Err(ServiceRefusal::Rejected),
            IT_UD_NO_EP_AVAILABLE => Err(ServiceRefusal::NoQueuePair),
            IT_UD_REQ_REDIRECTED => Err(ServiceRefusal::Redirected),
            other => {
                let text = format!("status is {other}, which is no it_ud_svc_req_status_t");
                return Err(Failure::new(status::IT_ERR_INVALID_UD_STATUS, text));
            }
        };
        // SAFETY: contract of a C caller.
        let private_data = unsafe { private_data(private, private_data_length, MAX_PRIVATE_DATA) }?;
        ual::cm::reply(RequestId::from_raw(ud_svc_req_id), answer, &private_data)
            .map_err(unanswered)
    })
}

/// Without a transport that has datagrams there are no requests at all.
fn unanswered(error: Error) -> Failure {
    match error {
        Error::Closed(ual::Object::ServiceRequest) if !object::any::<IaObject>(has_datagrams) => {
            unsupported("each open interface adapter")
        }
        error => Failure::of(error, status::IT_ERR_INVALID_UD_SVC_REQ_ID),
    }
}

fn has_datagrams(ia: &IaObject) -> bool {
    ia.inner.datagram_attrs().is_some()
}

/// The parameters of a query.
fn queried(
    handle: it_ud_svc_req_handle_t,
    mask: it_ud_svc_req_param_mask_t,
) -> Outcome<Ref<UdServiceObject>> {
    let service = object::find::<UdServiceObject>(handle.cast())?;
    check_mask(mask, (IT_UD_PARAM_PRIV_DATA_LENGTH << 1) - 1)?;
    Ok(service)
}

macro_rules! query {
    ($call:ident, $types:ident) => {
        /// # Safety
        /// Pointers obey the contract of a C caller (see `ptr`).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $call(
            ud_svc_handle: it_ud_svc_req_handle_t,
            mask: it_ud_svc_req_param_mask_t,
            ud_svc_handle_info: *mut $types::it_ud_svc_req_param_t,
        ) -> Status {
            boundary::call(|| {
                let service = queried(ud_svc_handle, mask)?;
                // SAFETY: contract of a C caller.
                let out = unsafe { Out::new(ud_svc_handle_info, "ud_svc_handle_info") }?;
                let data = &service.inner.init().private_data;
                check_private_data(data.len(), $types::IT_MAX_PRIV_DATA)?;
                let mut private_data = [0; $types::IT_MAX_PRIV_DATA];
                private_data[..data.len()].copy_from_slice(data);
                out.write($types::it_ud_svc_req_param_t {
                    ia: object::handle(service.inner.ia().tag().get()),
                    // The low half of a handle is unique among those that are there.
                    request_id: service.handle as u32,
                    reply_evd: object::handle(service.reply_evd),
                    conn_qual: service.conn_qual,
                    destination_path: service.destination_path,
                    private_data,
                    private_data_length: data.len(),
                });
                Ok(())
            })
        }
    };
}

query!(it_ud_service_request_handle_query, std_abi);
query!(it_ud_service_request_handle_query_zrl, zrl);
