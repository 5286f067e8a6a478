//! Formats work requests and changes for logs. Never shows payload.

use std::fmt::{self, Display, Formatter};

use vp_api::{
    Data, NativeEvent, NativeParams, QpChange, RecvWr, SendFlags, SendWr, ServiceEvent, Sge,
    StreamParams, UdSendWr, WcStatus, WorkCompletion,
};

/// Maximum number of entries shown of a list; the others are only counted.
const SHOWN: usize = 8;

fn list<T>(
    f: &mut Formatter<'_>,
    all: &[T],
    mut one: impl FnMut(&T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    f.write_str("[")?;
    for (at, entry) in all.iter().take(SHOWN).enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        one(entry, f)?;
    }
    match all.len().saturating_sub(SHOWN) {
        0 => f.write_str("]"),
        more => write!(f, ", {more} more]"),
    }
}

fn sgl(f: &mut Formatter<'_>, sgl: &[Sge]) -> fmt::Result {
    list(f, sgl, |sge, f| write!(f, "{:#010x}:{:#x}+{}", sge.stag.0, sge.to, sge.len))
}

/// Send-queue work requests.
pub(crate) struct Sends<'a>(pub(crate) &'a [SendWr<'a>]);

impl Display for Sends<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.0, |wr, f| {
            write!(f, "wr {} {:?} ", wr.wr_id, wr.op)?;
            data(f, &wr.data)?;
            if wr.flags != SendFlags::empty() {
                write!(f, " {:?}", wr.flags)?;
            }
            Ok(())
        })
    }
}

fn data(f: &mut Formatter<'_>, data: &Data<'_>) -> fmt::Result {
    match data {
        Data::Sgl(list) => sgl(f, list),
        Data::Inline(octets) => write!(f, "inline {}", octets.len()),
    }
}

/// Datagrams to send.
pub(crate) struct Datagrams<'a>(pub(crate) &'a [UdSendWr<'a>]);

impl Display for Datagrams<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.0, |wr, f| {
            write!(f, "wr {} to qpn {:#x} by ah {} ", wr.wr_id, wr.to.qpn, wr.ah.0)?;
            data(f, &wr.data)?;
            if wr.flags != SendFlags::empty() {
                write!(f, " {:?}", wr.flags)?;
            }
            f.write_str(if wr.solicited { " solicited" } else { "" })
        })
    }
}

/// Receive work requests.
pub(crate) struct Receives<'a>(pub(crate) &'a [RecvWr<'a>]);

impl Display for Receives<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.0, |wr, f| {
            write!(f, "wr {} ", wr.wr_id)?;
            sgl(f, wr.sgl)
        })
    }
}

/// Work completions.
pub(crate) struct Completions<'a>(pub(crate) &'a [WorkCompletion]);

impl Display for Completions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.0, |c, f| {
            write!(f, "qp {} wr {} {:?} {:?}", c.qp.0, c.wr_id, c.opcode, c.status)?;
            if c.status == WcStatus::Success {
                write!(f, " {} octets", c.octets)?;
            }
            if let Some(stag) = c.invalidated {
                write!(f, " invalidated {:#010x}", stag.0)?;
            }
            f.write_str(if c.solicited { " solicited" } else { "" })
        })
    }
}

/// A change of a QP, without its socket.
pub(crate) enum Change {
    Stream { params: StreamParams, received: usize, last_message: usize },
    Other(String),
}

/// The text of a change.
pub(crate) fn change(change: &QpChange) -> Change {
    match change {
        QpChange::Rts(stream) => Change::Stream {
            params: stream.params,
            received: stream.received.len(),
            last_message: stream.last_message.len(),
        },
        other => Change::Other(format!("{other:?}")),
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { params, received, last_message } => write!(
                f,
                "stream, {received} octets received, {last_message} to send first, {params:?}"
            ),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Parameters of a native connection, without its private data.
pub(crate) struct Params {
    octets: usize,
    ird: u16,
    ord: u16,
}

/// The text of parameters.
pub(crate) fn params(params: &NativeParams) -> Params {
    Params { octets: params.private_data.len(), ird: params.ird, ord: params.ord }
}

impl Display for Params {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { octets, ird, ord } = self;
        write!(f, "ird {ird} ord {ord}, {octets} octets of private data")
    }
}

/// An event of a native CM.
pub(crate) fn native_event(event: &NativeEvent, f: &mut Formatter<'_>) -> fmt::Result {
    match event {
        NativeEvent::Request { listener, request, peer, params: with, .. } => {
            write!(f, "request {request} at listener {listener} from {peer}, {}", params(with))
        }
        NativeEvent::Established { qp, params: with, .. } => {
            write!(f, "qp {} established, {}", qp.0, params(with))
        }
        NativeEvent::Rejected { qp, private_data } => {
            write!(f, "qp {} rejected, {} octets of private data", qp.0, private_data.len())
        }
        other => write!(f, "{other:?}"),
    }
}

/// An event of a service, without private data.
pub(crate) struct Service<'a>(pub(crate) &'a ServiceEvent);

impl Display for Service<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let octets = |f: &mut Formatter<'_>, private_data: &Vec<u8>| {
            write!(f, ", {} octets of private data", private_data.len())
        };
        match self.0 {
            ServiceEvent::Request { listener, request, peer, private_data, .. } => {
                write!(f, "request {request} at token {listener} from {peer}")?;
                octets(f, private_data)
            }
            ServiceEvent::Resolved { token, address, private_data, .. } => {
                write!(f, "token {token} resolved: qpn {:#x}", address.qpn)?;
                octets(f, private_data)
            }
            ServiceEvent::Refused { token, why, private_data } => {
                write!(f, "token {token} refused: {why:?}")?;
                octets(f, private_data)
            }
            other => write!(f, "{other:?}"),
        }
    }
}
