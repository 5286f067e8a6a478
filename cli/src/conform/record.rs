//! Records the octets of one case on the wire, and faults of requirements that the case does not test. Shared
//! by the case's connections and dropped with them; one thread.

use std::cell::RefCell;
use std::rc::Rc;

use super::verdict::Verdict;

/// Octets kept of one transfer: enough for every header.
const KEPT: usize = 1024;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Sent,
    Received,
    /// No octets: a FIN, a reset, a new connection.
    Event,
}

impl Way {
    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Sent => ">",
            Self::Received => "<",
            Self::Event => "-",
        }
    }
}

/// One transfer.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) way: Way,
    /// Text of an event.
    pub(super) text: &'static str,
    /// The first octets.
    pub(super) octets: Vec<u8>,
    /// Length of the transfer in octets.
    pub(super) length: usize,
}

/// A verdict for requirements that the case does not test.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) ids: Vec<&'static str>,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Default)]
pub(super) struct Record {
    entries: RefCell<Vec<Entry>>,
    findings: RefCell<Vec<Finding>>,
}

impl Record {
    pub(super) fn new() -> Rc<Self> {
        Rc::default()
    }

    pub(super) fn octets(&self, way: Way, octets: &[u8]) {
        let kept = octets[..octets.len().min(KEPT)].to_vec();
        self.push(Entry { way, text: "", octets: kept, length: octets.len() });
    }

    pub(super) fn event(&self, text: &'static str) {
        self.push(Entry { way: Way::Event, text, octets: Vec::new(), length: 0 });
    }

    fn push(&self, entry: Entry) {
        let mut entries = self.entries.borrow_mut();
        // Octets that are sent one at a time are one line.
        if let Some(last) = entries.last_mut()
            && entry.way != Way::Event
            && last.way == entry.way
        {
            last.length += entry.length;
            let room = KEPT - last.octets.len().min(KEPT);
            last.octets.extend(entry.octets.iter().take(room));
            return;
        }
        entries.push(entry);
    }

    /// Records a fault of requirements that the case does not test.
    pub(super) fn broken(&self, ids: &[&'static str], text: impl Into<String>) {
        self.found(ids, Verdict::Fail(text.into()));
    }

    /// Records that requirements that the case does not test are met.
    pub(super) fn kept(&self, ids: &[&'static str]) {
        self.found(ids, Verdict::Pass);
    }

    fn found(&self, ids: &[&'static str], verdict: Verdict) {
        let finding = Finding { ids: ids.to_vec(), verdict };
        let mut findings = self.findings.borrow_mut();
        if !findings.iter().any(|f| f.ids == finding.ids && f.verdict == finding.verdict) {
            findings.push(finding);
        }
    }

    pub(super) fn take(&self) -> (Vec<Entry>, Vec<Finding>) {
        (self.entries.take(), self.findings.take())
    }
}
