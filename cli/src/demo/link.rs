//! One end of the demo's connection: posts, takes completions, and returns errors that name both ends. Owned by
//! one thread.

use std::time::Duration;

use itapi::{Buffer, Completion, ConnEvent, Ep, Error, Evd, Operation, WcStatus, Work};

use super::proto::Message;
use crate::error::{CliError, CliResult, Exit};

/// Time-out of a wait for the peer, which is on the same machine.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the reason of a broken connection may arrive after its completions.
const REASON: Duration = Duration::from_millis(500);

/// A completion.
pub(super) enum Happened {
    /// A Send of the peer.
    Received(Buffer),
    /// A Send of ours is done; its buffer, if it had one.
    Sent(Option<Buffer>),
    /// An RDMA Read of ours is done.
    ReadDone,
}

/// A connection and its completions.
pub(super) struct Link {
    ep: Ep,
    evd: Evd,
}

impl Link {
    pub(super) fn new(ep: Ep, evd: Evd) -> Self {
        Self { ep, evd }
    }

    /// Posts work.
    pub(super) fn post(&self, work: Work<'_>) -> CliResult<()> {
        self.ep.post(work).map_err(|e| self.broken(e))?;
        Ok(())
    }

    /// Posts a receive.
    pub(super) fn post_recv(&self, buffer: Buffer) -> CliResult<()> {
        self.ep.post_recv(buffer).map_err(|e| self.broken(e))?;
        Ok(())
    }

    /// Sends a message.
    pub(super) fn send(&self, message: Message) -> CliResult<()> {
        self.post(Work::send(&message.encode()))
    }

    /// Waits for a completion.
    pub(super) fn next(&self) -> CliResult<Happened> {
        loop {
            let completion = self.evd.wait(SILENCE).map_err(|e| self.broken(e))?;
            let completion = completion.ok_or_else(|| self.broken(Error::Timeout(SILENCE)))?;
            if let Some(happened) = self.sort(completion)? {
                return Ok(happened);
            }
        }
    }

    fn sort(&self, completion: Completion) -> CliResult<Option<Happened>> {
        completion.check().map_err(|e| self.broken(e))?;
        Ok(match completion.operation {
            Operation::Recv => completion.into_buffer().map(Happened::Received),
            Operation::Send => Some(Happened::Sent(completion.into_buffer())),
            Operation::Read => Some(Happened::ReadDone),
            _ => None,
        })
    }

    /// Says good-bye.
    pub(super) fn close(&self) -> CliResult<()> {
        self.ep.disconnect().map_err(|e| self.broken(e))
    }

    /// True if the connection ends in an orderly way within the policy's close time-out.
    pub(super) fn peer_closes(&self) -> CliResult<bool> {
        let end = self.ep.ended(Duration::from_secs(3)).map_err(|e| self.broken(e))?;
        Ok(matches!(end, Some(ConnEvent::Disconnected { .. })))
    }

    /// The cause of `error`: the connection's own reason if it has ended.
    fn broken(&self, error: Error) -> CliError {
        let flushed = matches!(
            error,
            Error::Incomplete { status: WcStatus::Flushed | WcStatus::RemoteTermination, .. }
        );
        let reason = match self.ep.ended(REASON) {
            Ok(Some(ConnEvent::Disconnected { ends, by_peer: true })) if flushed => {
                format!(
                    "{} closed the connection with {} in the middle of work",
                    ends.remote, ends.local
                )
            }
            Ok(Some(end)) => return CliError::connection(Exit::Failed, &end),
            Ok(None) | Err(_) => match self.ep.ends() {
                Some(ends) => format!("{error} ({ends})"),
                None => error.to_string(),
            },
        };
        CliError::new(Exit::Failed, reason)
    }
}

/// A message that the protocol does not allow here.
pub(super) fn unexpected(message: Option<Message>) -> CliError {
    CliError::new(Exit::Failed, format!("the other process sent {message:?} out of order"))
        .because("the two processes run different versions")
        .hint("run `warpline demo` again with one installed version")
}

/// The message in a buffer.
pub(super) fn message_in(buffer: &Buffer) -> CliResult<Message> {
    Message::decode(buffer).ok_or_else(|| unexpected(None))
}
