//! Limits of an end, and its time-outs. Plain values.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::wire::{Greeting, Invalid};

/// Limits of one end of a channel. Each end has its own; a message is sent in the way that both support. A value that is not
/// allowed is [`Error::Options`], which names the field, when a channel or a listener is made.
///
/// ```
/// use warpline_channel::Options;
///
/// let defaults =
///     Options { longest: 16 << 20, slots: 128, large: 8, small: 64 << 10, ..Options::default() };
/// assert_eq!(defaults, Options::default());
/// let longer = Options { longest: 1 << 30, ..Options::default() };
/// ```
///
/// Memory of a channel: `slots` times `small` octets for messages that arrive, as much at most for those
/// that leave, and `large` times the octets of a large message in each direction while there are any. What was
/// never used takes addresses only, unless the device pins what is registered. Once many messages of up to 256 KiB came
/// from the same machine, `slots` times 256 KiB of addresses, if that is less than the memory for large messages, of
/// which about 5 MiB are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Octets of the longest message that is sent in one Send; a longer one is read by the peer. 20 to 2^30; default: 64 KiB. After many messages of
    /// up to 256 KiB on the same machine, those are sent in one Send, too, unless they are a `Vec`.
    pub small: u32,
    /// Messages that may be in flight to this end, or wait here to be received: 1 to 4096; default: 128. While long messages come from a
    /// peer on the same machine, fewer, as many as a processor's cache holds, but at least 4; while each is replied to, a
    /// quarter of those, but at least 24 of them if they are so many; all again if both ends wait to send.
    pub slots: u16,
    /// How many of those may be large: at most 64, and no more than `slots`; default: 8. 0: none, and no message is longer than `small`.
    pub large: u16,
    /// Octets of the longest large message: 1 to 2^32 - 1; default: 16 MiB.
    pub longest: u64,
    /// Bound on each call of a [`Channel`](crate::Channel) that waits. `None`, the default: a minute for closing, others
    /// wait as long as it takes. The adapter's policy bounds connecting.
    pub patience: Option<Duration>,
    /// How long a session goes on without a connection: if its connection is lost, the end that connected connects again, and
    /// both go on where they were; nothing is lost, repeated or out of order. The smaller value of both ends counts; `None`, the
    /// default, at either: the loss of the connection is an error at once. 1 to 2^32 - 1 milliseconds. Messages that are sent
    /// keep their memory until the peer confirms that they have arrived, at most `slots` of them. A listener stays bound until
    /// its last channel that may be resumed is dropped. See [the guide](crate::guide).
    pub resume: Option<Duration>,
    /// How often an end that is connected by another than its preferred way tries the ways before it: when one leads to the peer
    /// again, the session returns to it. `None`, the default: it stays where it is until that connection is lost, too. 1 to 2^32 - 1 milliseconds. Only of
    /// use with `resume` and [`connect_any`](crate::Channel::connect_any).
    pub returns: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            small: 64 << 10,
            slots: 128,
            large: 8,
            longest: 16 << 20,
            patience: None,
            resume: None,
            returns: None,
        }
    }
}

impl Options {
    /// [`Options::resume`] in milliseconds.
    pub(crate) fn lasting(&self) -> u32 {
        self.resume.map_or(0, |lasting| lasting.as_millis().try_into().unwrap_or(u32::MAX))
    }

    pub(crate) fn greeting(&self) -> Result<Greeting> {
        let Self { small, slots, large, longest, .. } = *self;
        let greeting = Greeting { small, slots, large, longest, grows: true };
        let invalid = greeting.check().or_else(|| self.times().into_iter().flatten().next());
        invalid.map_or(Ok(greeting), |what| Err(Error::Options(what)))
    }

    /// What is wrong with the times of sessions: without any, or beyond the peer's number of milliseconds.
    fn times(&self) -> [Option<Invalid>; 2] {
        [("resume", self.resume), ("returns", self.returns)].map(|(field, time)| {
            let value = time?.as_millis().try_into().unwrap_or(u64::MAX);
            let allowed = "none, or 1 to 4294967295 milliseconds";
            let fits = (1..=u64::from(u32::MAX)).contains(&value);
            (!fits).then_some(Invalid { field, value, allowed })
        })
    }
}
