//! The serving side over IT-API: memory for RDMA Writes and Reads, receives for Sends.
//!
//! All objects belong to the thread that serves. When the peer dies the receives complete with an
//! error, which ends it.

use std::net::SocketAddr;

use itapi::{Ep, Error, Result, Work};

use crate::rdma::{CREDIT, PATIENCE, RECEIVES, SMALL, Setup, Source, ping};
use crate::{MESSAGE, WORKING_SET};

/// What is done with messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Receives of 64 KiB, under credit.
    Sink,
    /// Every message goes back.
    Echo,
}

/// Serves one connection to its end; `announce` gets the address.
pub fn serve(
    service: Service,
    setup: Setup,
    announce: impl FnOnce(SocketAddr) -> std::io::Result<()>,
) -> crate::Result<()> {
    let ia = setup.open()?;
    let (pz, evd) = (ia.pz()?, ia.evd(512)?);
    let region = pz.lmr(WORKING_SET).remote_write().remote_read().register()?;
    region.write_at(0, &vec![1; WORKING_SET])?;
    let ep = pz.ep(&evd).depth(64, 64).build()?;
    let size = if service == Service::Sink { MESSAGE } else { SMALL };
    // One more than there is credit for: it takes the empty Send at the end.
    for buffer in pz.buffers(RECEIVES + 1, size)? {
        ep.post_recv(buffer).map_err(Error::from)?;
    }
    let listen = ia.listen("127.0.0.1:0")?;
    announce(listen.address())?;
    let request = listen.wait(PATIENCE)?.ok_or(Error::Timeout(PATIENCE))?;
    request.accept(&ep, &region.remote().to_octets())?;
    let source = Source { evd, waiting: setup.waiting };
    Ok(answer(service, &ep, &source)?)
}

fn answer(service: Service, ep: &Ep, source: &Source) -> Result<()> {
    let mut octets = 0;
    for number in 1.. {
        let completion = source.received()?;
        if completion.octets == 0 {
            break;
        }
        octets += u64::from(completion.octets);
        if let Some(buffer) = completion.into_buffer() {
            ep.post_recv(buffer)?;
        }
        match service {
            Service::Echo => drop(ep.post(ping(number))?),
            Service::Sink if number.is_multiple_of(CREDIT as u64) => {
                ep.post(Work::send(&[1]))?;
            }
            Service::Sink => {}
        }
    }
    ep.post(Work::send(&octets.to_be_bytes()))?;
    ep.ended(PATIENCE)?;
    Ok(())
}
