//! Table of the cases of `duet`. One end leads, the other follows; most cases run in both directions.

use crate::end::End;
use crate::side::Fail;
use crate::{data, errors};

use Offer::{All, Gone, OtherZone, ReadOnly, WriteOnly};

/// The end that leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    Connector,
    Listener,
}

/// The functions of both ends. The leading one returns a deviation from the standards that left the connection
/// intact.
pub(crate) struct Play {
    pub(crate) lead: fn(&End<'_>) -> Result<Option<String>, Fail>,
    pub(crate) follow: fn(&End<'_>) -> Result<(), Fail>,
}

/// Memory that the following end offers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    All,
    ReadOnly,
    WriteOnly,
    /// In another protection zone than the connection's.
    OtherZone,
    /// Deregistered before it is used.
    Gone,
}

/// Layer, type and code.
pub(crate) type Code = (u8, u8, u8);

pub(crate) struct Case {
    what: &'static str,
    pub(crate) play: Play,
    pub(crate) offer: Offer,
    /// Number and octets of each end's receives, besides that of the first message.
    pub(crate) receives: (usize, usize),
    /// Request and reply have as much private data as possible.
    pub(crate) fills: bool,
    /// Private data with which the listener rejects.
    pub(crate) rejection: Option<&'static [u8]>,
    /// The following end must end the connection with this Terminate.
    pub(crate) terminate: Option<Code>,
}

/// Octets of the largest message.
pub(crate) const LARGE: usize = 3_000_003;

const NOTHING: Play = Play { lead: |_| Ok(None), follow: |_| Ok(()) };

impl Case {
    const fn new(what: &'static str, play: Play) -> Self {
        Self {
            what,
            play,
            offer: All,
            receives: (1, 64),
            fills: false,
            rejection: None,
            terminate: None,
        }
    }

    /// A case in which the following end must refuse what the leading end does.
    const fn bad(
        what: &'static str,
        lead: fn(&End<'_>) -> Result<Option<String>, Fail>,
        offer: Offer,
        terminate: Code,
    ) -> Self {
        let case = Self::new(what, Play { lead, follow: |_| Ok(()) });
        Self { offer, terminate: Some(terminate), ..case }
    }

    const fn receives(mut self, count: usize, octets: usize) -> Self {
        self.receives = (count, octets);
        self
    }

    const fn terminate(mut self, code: Code) -> Self {
        self.terminate = Some(code);
        self
    }

    const fn fills(mut self) -> Self {
        self.fills = true;
        self
    }

    const fn rejection(mut self, answer: &'static [u8]) -> Self {
        self.rejection = Some(answer);
        self
    }

    pub(crate) fn is(&self, what: &str) -> bool {
        self.what == what
    }

    /// Name of the case, which the connecting end requests.
    pub(crate) fn name(&self, lead: Lead) -> String {
        let who = match lead {
            Lead::Connector => "connector",
            Lead::Listener => "listener",
        };
        format!("{}.{who}", self.what)
    }
}

// Terminates: RFC 5040 section 4.8, and `spec/requirements.toml` ERR-09 to ERR-18.
static CASES: &[Case] = &[
    Case::new("send", data::SEND).receives(2, LARGE),
    Case::new("solicited", data::SOLICITED),
    Case::new("invalidate", data::INVALIDATE).terminate((1, 1, 0)),
    Case::new("write", data::WRITE),
    Case::new("read", data::READ),
    Case::new("read-nothing", data::READ_NOTHING),
    Case::new("disconnect", NOTHING),
    Case::new("private-data", NOTHING).fills(),
    Case::new("reject", NOTHING).rejection(b"not today"),
    Case::bad("write-unknown-stag", errors::write_unknown, All, (1, 1, 0)),
    Case::bad("write-gone", errors::write, Gone, (1, 1, 0)),
    Case::bad("write-beyond-end", errors::write_beyond, All, (1, 1, 1)),
    Case::bad("write-without-right", errors::write, ReadOnly, (1, 1, 2)),
    Case::bad("write-other-zone", errors::write, OtherZone, (1, 1, 2)),
    Case::bad("read-unknown-stag", errors::read_unknown, All, (0, 1, 0)),
    Case::bad("read-gone", errors::read, Gone, (0, 1, 0)),
    Case::bad("read-beyond-end", errors::read_beyond, All, (0, 1, 1)),
    Case::bad("read-without-right", errors::read, WriteOnly, (0, 1, 2)),
    Case::bad("read-other-zone", errors::read, OtherZone, (0, 1, 3)),
    Case::bad("send-without-receive", errors::send, All, (1, 2, 2)).receives(0, 0),
    Case::bad("send-too-long", errors::send, All, (1, 2, 5)).receives(1, 8),
];

/// All cases, in order.
pub(crate) fn all() -> impl Iterator<Item = (&'static Case, Lead)> {
    CASES.iter().flat_map(|case| {
        let one_way = case.rejection.is_some() || case.fills;
        let leads = [Lead::Connector, Lead::Listener];
        leads.into_iter().take(if one_way { 1 } else { 2 }).map(move |lead| (case, lead))
    })
}

/// The case of a name.
pub(crate) fn find(name: &str) -> Option<(&'static Case, Lead)> {
    all().find(|(case, lead)| case.name(*lead) == name)
}
