//! Asking services of other machines for queue pairs that take datagrams.
//!
//! A UdService is what is asked and where the answers go; the connection manager knows which
//! questions are open. A peer that dies does not answer: the provider gives up after a while, and
//! that is an answer too.

use std::net::SocketAddr;
use std::sync::Arc;

use ual_cm::ReplySink;

use super::Ia;
use crate::cm::ServiceReply;
use crate::error::{Error, Object, Result};
use crate::event::{Evd, Event, Stream};
use crate::life::{Hold, Life, Living};
use crate::tag::Tag;

/// For asking a service.
#[derive(Clone, Debug)]
pub struct UdServiceInit {
    /// Where it is.
    pub peer: SocketAddr,
    /// Where the answers go: a [`Stream::Connection`] dispatcher.
    pub evd: Arc<Evd>,
    /// For the application there.
    pub private_data: Vec<u8>,
}

/// A service to ask (IT-API `it_ud_service_request_handle_create`).
pub struct UdService {
    init: UdServiceInit,
    life: Life,
    tag: Tag,
    evd: Hold<Evd>,
    ia: Hold<Ia>,
}

impl Ia {
    /// Describes a service that can be asked for queue pairs.
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
        let (ia, evd) = (Hold::new(ia)?, Hold::new(&init.evd)?);
        let (life, tag) = (Life::new(Object::Service), Tag::default());
        Ok(Arc::new(Self { init, life, tag, evd, ia }))
    }

    /// What the face above knows it by.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.ia.arc()
    }

    /// What is asked, where, and where the answers go.
    pub fn init(&self) -> &UdServiceInit {
        &self.init
    }

    /// Asks; exactly one [`crate::Event::ServiceReply`] says what came of it, unless the object is
    /// closed before.
    pub fn ask(self: &Arc<Self>) -> Result<()> {
        if self.life.is_closed() {
            return Err(Error::Closed(Object::Service));
        }
        self.evd.make_room()?;
        let sink: Arc<dyn ReplySink> = self.clone();
        Ok(self.ia.cm().ask(&sink, self.init.peer, &self.init.private_data)?)
    }

    /// Forgets it, with the questions that are open.
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
        // Closed already, or nobody can use it any more; either way there is nobody to tell.
        let _ = self.close();
    }
}

impl std::fmt::Debug for UdService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdService({})", self.init.peer)
    }
}
