//! iWARP's test bench in a run: its cases, its requirements, and how it is opened. No state.

use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use kal_os::Use;
use serde_json::{Value, json};

use super::args::ConformArgs;
use super::bench::Bench;
use super::case::Case;
use super::catalogue::{self, Requirement};
use super::record::Record;
use super::resolve;
use super::session::Stand;
use super::verdict::{Needs, Play, Presence, Progress, Role, Verdict};
use crate::error::{CliError, CliResult, Exit};

impl Stand for Bench {
    const STRANGER: &'static str =
        "the peer does not listen, does not connect, or does not speak MPA";
    const SERVES: &'static [&'static str] = &["SEC-18"];

    fn open(args: &ConformArgs, out: &mut dyn Write) -> CliResult<Self> {
        if let Some(address) = &args.listen {
            let address = resolve(address)?;
            let bench = Self::listening(address, args.timeout, args.wait).map_err(|error| {
                CliError::new(Exit::Network, format!("cannot listen at {address}: {error}"))
                    .at("conform --listen")
                    .hint_at(&error, &address, Use::Bind)
                    .or_hint("choose another port, or 0 for a free one")
            })?;
            if !args.json {
                writeln!(out, "waiting for the peer at {}", bench.address())?;
                out.flush()?;
            }
            return Ok(bench);
        }
        let address = resolve(args.peer.as_deref().unwrap_or_default())?;
        Ok(Self::connecting(address, args.timeout, Duration::from_millis(args.settle)))
    }

    fn cases() -> Vec<&'static Case> {
        catalogue::cases().collect()
    }
    fn requirements() -> Vec<Requirement> {
        catalogue::requirements()
    }
    fn on_the_way() -> &'static [&'static str] {
        catalogue::ON_THE_WAY
    }
    fn hidden(id: &str) -> &'static str {
        catalogue::hidden(id)
    }
    fn role(&self) -> Role {
        self.role
    }
    fn address(&self) -> SocketAddr {
        self.address()
    }
    fn progress(&self) -> &Progress {
        &self.progress
    }
    fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }
    fn head(&self) -> Value {
        json!({
            "kind": self.peer.kind.name(),
            "answers zero-length reads": self.peer.probes,
        })
    }
    fn begin(&mut self) -> Rc<Record> {
        self.begin()
    }
    fn probe(&mut self) -> Play {
        self.probe()
    }
    fn offers(&self, needs: Needs) -> bool {
        self.peer.offers(needs)
    }
    fn presence(&mut self, verdict: &Verdict) -> Presence {
        self.presence(verdict)
    }
}
