//! RoCE's test bench in a run: its cases, its requirements, and how it is opened. No state.

use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;

use serde_json::{Value, json};

use super::bench::{Bench, Way};
use super::peer::Range;
use super::{Case, catalogue};
use crate::conform::args::ConformArgs;
use crate::conform::catalogue::Requirement;
use crate::conform::record::Record;
use crate::conform::resolve;
use crate::conform::session::Stand;
use crate::conform::verdict::{Needs, Play, Presence, Progress, Role, Verdict};
use crate::error::{CliError, CliResult, Exit};

impl Stand for Bench {
    const STRANGER: &'static str =
        "the peer does not listen, does not connect, or does not speak RoCE v2";
    const SERVES: &'static [&'static str] = &["IBRC-51"];

    fn open(args: &ConformArgs, out: &mut dyn Write) -> CliResult<Self> {
        let refused = |at: String, error: std::io::Error| {
            CliError::new(Exit::Network, format!("no UDP port 4791 for the tester: {error}"))
                .at(at)
                .hint(
                    "another program has it, or the kernel's rxe: use another own address (--from), or another host",
                )
        };
        let mut bench = match &args.listen {
            Some(address) => {
                let address = resolve(address)?;
                let at = format!("conform --roce --listen {address}");
                let bench = Self::listening(address, args.timeout, args.wait);
                bench.map_err(|error| refused(at, error))?
            }
            None => {
                let address = resolve(args.peer.as_deref().unwrap_or_default())?;
                let way = if args.pingpong { Way::Pingpong } else { Way::Manager };
                Self::connecting(address, args.from, way, args.timeout)
                    .map_err(|error| refused(format!("conform --roce {address}"), error))?
            }
        };
        bench.peer.memory = args.memory.map(|(to, key, len)| Range { key, to, len });
        if bench.role == Role::Initiator && !args.json {
            writeln!(out, "waiting for the peer at {}", bench.address)?;
            out.flush()?;
        }
        Ok(bench)
    }

    fn cases() -> Vec<&'static Case> {
        catalogue::cases()
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
        self.address
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
            "own address": self.wire.here.to_string(),
            "takes writes of no octets": self.peer.writes,
        })
    }
    fn begin(&mut self) -> Rc<Record> {
        self.begin()
    }
    fn probe(&mut self) -> Play {
        self.probe()
    }
    fn offers(&self, needs: Needs) -> bool {
        match needs {
            Needs::Manager => self.way == Way::Manager,
            needs => self.peer.offers(needs),
        }
    }
    fn presence(&mut self, verdict: &Verdict) -> Presence {
        self.presence(verdict)
    }
}
