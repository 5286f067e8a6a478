//! Turns the figures of a connection into causes. Each cause is a function of the evidence that returns its share of
//! the time, or `None` if the figures do not show it. Pure; all assumed costs are in [`costs`].

mod costs;
mod local;
mod peer;
mod queue;
mod roce;
mod waits;

pub(super) use waits::unknown;

use super::evidence::Evidence;

/// The smallest share of a cause that is named.
pub(super) const LEAST: f64 = 0.2;

/// Why a connection is not faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Stopped,
    WaitsForPeer,
    NothingToSend,
    Depth,
    SmallMessages,
    Ord,
    ReceiverApplication,
    ReceiverProcessor,
    Socket,
    Network,
    FullPath,
    PeerSilent,
    Refused,
    Framing,
    Sleeping,
    EngineOnly,
    SameHostOverTcp,
    Program,
    Limit,
}

impl Cause {
    /// Its name; part of the contract of `--json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped process",
            Self::WaitsForPeer => "waits for its peer",
            Self::NothingToSend => "nothing to send",
            Self::Depth => "depth",
            Self::SmallMessages => "small messages",
            Self::Ord => "ORD",
            Self::ReceiverApplication => "receiver's application",
            Self::ReceiverProcessor => "receiver's processor",
            Self::Socket => "socket",
            Self::Network => "network",
            Self::FullPath => "full path",
            Self::PeerSilent => "silent peer",
            Self::Refused => "refused request",
            Self::Framing => "CRC or FPDU size",
            Self::Sleeping => "sleeping",
            Self::EngineOnly => "engine only",
            Self::SameHostOverTcp => "same host over TCP",
            Self::Program => "the program",
            Self::Limit => "processor's limit",
        }
    }
}

/// A cause that the figures show.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub(crate) cause: Cause,
    /// Estimated share of the time, 0 to 1.
    pub(crate) share: f64,
    /// The figures.
    pub(crate) shows: String,
    /// What to do.
    pub(crate) remedy: String,
}

/// Share, figures, remedy.
type Shown = Option<(f64, String, String)>;
/// A cause and its function.
type Judge = (Cause, fn(&Evidence) -> Shown);

/// The most certain ones first: of equal shares these are named first.
const CAUSES: &[Judge] = &[
    (Cause::Stopped, waits::stopped),
    (Cause::ReceiverApplication, peer::application),
    (Cause::ReceiverProcessor, peer::processor),
    (Cause::Network, peer::network),
    (Cause::FullPath, peer::full),
    (Cause::WaitsForPeer, waits::peer),
    (Cause::Socket, peer::socket),
    (Cause::Ord, queue::ord),
    (Cause::Depth, queue::depth),
    (Cause::Program, queue::program),
    (Cause::EngineOnly, local::engine_only),
    (Cause::Sleeping, local::sleeping),
    (Cause::SameHostOverTcp, local::same_host),
    (Cause::SmallMessages, local::small_messages),
    (Cause::Framing, local::framing),
    (Cause::Limit, waits::limit),
    (Cause::NothingToSend, queue::nothing_to_send),
];

/// Those that are judged on RoCE: not those of TCP and FPDUs, nor those whose figures are only counted for iWARP.
const ON_ROCE: &[Judge] = &[
    (Cause::Stopped, waits::stopped),
    (Cause::Refused, roce::refused),
    (Cause::ReceiverApplication, roce::application),
    (Cause::PeerSilent, roce::silent),
    (Cause::Network, roce::network),
    (Cause::FullPath, roce::full),
    (Cause::WaitsForPeer, waits::peer),
    (Cause::Ord, queue::ord),
    (Cause::Program, queue::program),
    (Cause::Limit, waits::limit),
    (Cause::NothingToSend, queue::nothing_to_send),
];

/// The causes with a fifth of the time or more, the largest first.
pub(crate) fn verdicts(evidence: &Evidence) -> Vec<Verdict> {
    let causes = if evidence.roce { ON_ROCE } else { CAUSES };
    let shown = causes.iter().filter_map(|(cause, of)| {
        let (share, shows, remedy) = of(evidence)?;
        let share = share.min(1.0);
        (share >= LEAST).then_some(Verdict { cause: *cause, share, shows, remedy })
    });
    let mut all: Vec<_> = shown.collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all
}

/// `of` as a share of `all`; 0 of nothing.
fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share.clamp(0.0, 1.0))
}
