//! One end of a connection whose peer is this program, with a clock that stands still, so that no timer of the
//! stack expires.
//!
//! Everything runs in the calling thread.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use kal_shim::mem::Region;
use vp_api::{
    Access, Addressing, Data, LlpStream, LogLevel, MrInit, PdId, QpChange, Role, SendFlags, SendOp,
    SendWr, Services, Sge, SlotRef, StreamParams,
};
use vp_softrdma::bench;
use warpline_benches::Result;

/// Octets of a message.
pub(crate) const MESSAGE: u32 = 64;
/// Posts in a list.
pub(crate) const LIST: usize = 64;
/// Environment variable: 1 gives each end a record as in a state page.
pub(crate) const PUBLISHES: &str = "WARPLINE_BENCH_PUBLISHES";
/// Depth of a queue: all requests of a step, because their completions are not taken.
const DEPTH: u32 = 2048;

/// Services that do nothing.
pub(crate) struct Still;

impl Services for Still {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        1
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

/// An end with its region, and a plain socket as its peer.
pub(crate) struct End {
    pub(crate) end: bench::End,
    peer: TcpStream,
    // The region's memory.
    _memory: Region,
}

impl End {
    /// Connected, with CRC.
    pub(crate) fn new(role: Role) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let peer = TcpStream::connect(listener.local_addr()?)?;
        let (socket, _) = listener.accept()?;
        let (received, last_message) = (Vec::new(), Vec::new());
        let params = StreamParams::new(role);
        let stream =
            LlpStream { socket: socket.into(), received, last_message, params, local: None };
        let (memory, region) = region()?;
        let change = QpChange::Rts(Box::new(stream));
        let end = bench::End::new(Arc::new(Still), &region, DEPTH, change)?;
        if std::env::var_os(PUBLISHES).is_some_and(|value| value == "1") {
            end.qp().publish(SlotRef::default());
        }
        Ok(Self { end, peer, _memory: memory })
    }

    /// A list of equal requests.
    pub(crate) fn list<'a>(&self, op: &SendOp, sgl: &'a [Sge]) -> Vec<SendWr<'a>> {
        let data = Data::Sgl(sgl);
        vec![SendWr { wr_id: 1, op: op.clone(), data, flags: SendFlags::empty() }; LIST]
    }

    /// The first octets of its region.
    pub(crate) fn message(&self) -> Sge {
        Sge { stag: self.end.stag(), len: MESSAGE, to: 0 }
    }

    /// The octets of a peer for `lists` lists.
    pub(crate) fn octets_of(&mut self, lists: usize, op: &SendOp) -> Result<Vec<u8>> {
        let sgl = [self.message()];
        let list = self.list(op, &sgl);
        for _ in 0..lists {
            self.end.qp().post_send(&list)?;
            self.end.cq().poll(&mut [])?;
        }
        let header = if matches!(op, SendOp::Write { .. }) { 14 } else { 18 };
        // MPA: length field before, CRC after; 64 + 14 + 2 is a multiple of 4, 64 + 18 + 2 too.
        let fpdu = 2 + header + MESSAGE as usize + 4;
        let mut octets = vec![0; lists * LIST * fpdu];
        self.peer.read_exact(&mut octets)?;
        Ok(octets)
    }
}

/// Memory, and how it is to be registered.
pub(crate) fn region() -> Result<(Region, MrInit)> {
    let memory = Region::new(4096)?;
    let init = MrInit {
        pd: PdId(1),
        range: memory.mem_range(),
        addressing: Addressing::ZeroBased,
        access: Access::LOCAL | Access::REMOTE,
        key: 7,
        pin: false,
    };
    Ok((memory, init))
}
