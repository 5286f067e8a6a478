//! Service requests to other machines, for queue pairs that take datagrams.
//!
//! A UdService has the address of the service and the dispatcher of the replies; the connection manager
//! has the requests without a reply. A peer that dies does not reply: the provider gives up after a
//! while, and reports that as the reply.

use std::net::SocketAddr;
use std::sync::Arc;

use ual_cm::ReplySink;

use super::Ia;
use crate::cm::ServiceReply;
use crate::error::{Error, Object, Result};
use crate::event::{Evd, Event, Stream};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// For requests to a service.
#[derive(Clone, Debug)]
pub struct UdServiceInit {
    /// Its address.
    pub peer: SocketAddr,
    /// The dispatcher of the replies: a [`Stream::Connection`] dispatcher.
    pub evd: Arc<Evd>,
    /// For the application there.
    pub private_data: Vec<u8>,
}

/// A service at a peer (IT-API `it_ud_service_request_handle_create`).
pub struct UdService {
    init: UdServiceInit,
    life: Life,
    tag: Tag,
    evd: InUse<Evd>,
    ia: InUse<Ia>,
}

impl Ia {
    /// Describes a service to request queue pairs from.
    pub fn create_ud_service(self: &Arc<Self>, init: UdServiceInit) -> Result<Arc<UdService>> {
        UdService::new(self, init)
    }
}

impl UdService {
    fn new(ia: &Arc<Ia>, init: UdServiceInit) -> Result<Arc<Self>> {
        init.evd.check_stream(Stream::Connection)?;
        let most = ia.datagrams("describe a service")?.attrs().max_private_request as usize;
        let len = init.private_data.len();
        if len > most {
            return Err(Error::PrivateDataTooLong { len, max: most });
        }
        let (ia, evd) = (InUse::new(ia)?, InUse::new(&init.evd)?);
        let (life, tag) = (Life::new(Object::Service), Tag::default());
        Ok(Arc::new(Self { init, life, tag, evd, ia }))
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// The parameters.
    pub fn init(&self) -> &UdServiceInit {
        &self.init
    }

    /// Sends a request; exactly one [`crate::Event::ServiceReply`] reports the result, unless the object
    /// is closed before.
    pub fn request(self: &Arc<Self>) -> Result<()> {
        if self.life.is_closed() {
            return Err(Error::Closed(Object::Service));
        }
        self.evd.make_room()?;
        let sink: Arc<dyn ReplySink> = self.clone();
        Ok(self.ia.cm().request_service(&sink, self.init.peer, &self.init.private_data)?)
    }

    /// Closes it, with its requests that have no reply yet.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        self.ia.cm().stop_asking(self);
        let of_this = |event: &Event| matches!(event, Event::ServiceReply { service, .. } if std::ptr::eq(service.as_ptr(), self));
        self.evd.discard(of_this);
        self.evd.release();
        self.ia.release();
        Ok(())
    }
}

impl ReplySink for UdService {
    fn reply(self: Arc<Self>, reply: ServiceReply) {
        let service = Arc::downgrade(&self);
        let event = Event::ServiceReply { service, reply: Box::new(reply) };
        self.evd.push_connection(event, || !self.life.is_closed());
    }
}

impl Living for UdService {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for UdService {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for UdService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdService({})", self.init.peer)
    }
}
