//! `warpline capture`: writes the FPDUs of a running process as pcapng.
//!
//! The process copies FPDUs to memory that this command passes to it ([`feed`]); this command makes packets of them
//! ([`flows`]). When this command dies, the process detects that once the memory is full; when the process ends, so
//! does the capture. FPDUs that this command does not read in time are dropped by the process, and counted.

mod args;
mod feed;
mod flows;
mod pcapng;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use ual::observe::questions::{Capture as Begun, CaptureEnded, Question};
use ual::vp_api::capture::{Kind, Record};

pub(crate) use args::CaptureArgs;
use feed::Feed;
use flows::{Filter, Flows, Style};
use pcapng::Pcapng;

use crate::ask;
use crate::error::{CliError, CliResult, Exit};
use crate::output::count;
use crate::signals;
use crate::stat::{self, pages::Snapshot};

/// Octets of payload that include all of it.
const WHOLE: u32 = 65_535;

/// Captures until it is stopped, or until the process ends.
pub(crate) fn run(args: &CaptureArgs) -> CliResult<()> {
    let snapshot = Snapshot::take(Some(args.pid), false)?;
    let Some(seen) = snapshot.processes.first() else {
        return Err(stat::absent::of(args.pid, &snapshot));
    };
    signals::catch()?;
    let comment = match args.payload {
        0 => "headers of FPDUs, without payload".to_owned(),
        octets => format!("FPDUs, with up to {octets} octets of payload each"),
    };
    let (mut feed, theirs) = Feed::new()?;
    let question = Question::Capture { payload: args.payload };
    let begun: Begun = ask::ask(seen, &question, Some(theirs.as_fd())).map_err(refused)?;
    drop(theirs);
    // Not earlier: without a capture, an existing file must stay.
    let out = create(&args.output)?;
    let exe = &seen.page.process.exe;
    let title = format!("process {} {exe}: {comment}", args.pid);
    let mut pcapng = Pcapng::begin(BufWriter::with_capacity(1 << 20, out), &title)?;
    eprintln!("capturing process {}: {comment}", args.pid);
    let filter = Filter { peer: args.peer, qp: args.qp };
    let style = Style { fill: args.fill, whole: args.payload == WHOLE };
    let mut capture = Capture {
        flows: Flows::new(filter, style),
        most: args.count,
        fpdus: 0,
        dropped: 0,
        first_drop: None,
    };
    let ended = capture.follow(args, &mut feed, &mut pcapng)?;
    if !ended {
        // FPDUs in the memory are read first.
        let question = Question::EndCapture { number: begun.capture };
        if let Ok(ended) = ask::ask::<CaptureEnded>(seen, &question, None) {
            while capture.advance(&mut feed, &mut pcapng)? {}
            capture.drop_to(ended.dropped);
        }
    }
    pcapng.end(capture.fpdus, capture.dropped)?;
    capture.report(ended);
    Ok(())
}

fn refused(why: String) -> CliError {
    CliError::new(Exit::Failed, "the process cannot be captured").because(why)
}

fn create(output: &Path) -> CliResult<Box<dyn Write>> {
    if output.as_os_str() == "-" {
        if io::IsTerminal::is_terminal(&io::stdout()) {
            return Err(CliError::new(Exit::Usage, "a capture is no text for a terminal")
                .hint("name a file by -o, or pipe it into `tshark -i -`"));
        }
        return Ok(Box::new(io::stdout()));
    }
    let wrong = |error: io::Error| {
        CliError::input(format!("cannot create {}", output.display())).because(error.to_string())
    };
    Ok(Box::new(File::create(output).map_err(wrong)?))
}

struct Capture {
    flows: Flows,
    /// The capture is complete with so many FPDUs; what is dropped afterwards is no gap.
    most: Option<u64>,
    fpdus: u64,
    dropped: u64,
    /// FPDUs written before the first drop.
    first_drop: Option<u64>,
}

impl Capture {
    /// Writes FPDUs as they arrive. True: the process has ended, or has ended the capture.
    fn follow(
        &mut self,
        args: &CaptureArgs,
        feed: &mut Feed,
        to: &mut Pcapng<impl Write>,
    ) -> CliResult<bool> {
        let began = Instant::now();
        loop {
            let over = args.seconds.is_some_and(|seconds| began.elapsed() >= seconds);
            if over || self.is_complete() || signals::caught() {
                return Ok(false);
            }
            if !self.advance(feed, to)? {
                if feed.has_ended() {
                    return Ok(true);
                }
                // So that a reader of a pipe gets the packets so far.
                to.flush()?;
                feed.wait()?;
            }
        }
    }

    /// Writes some of the FPDUs that have arrived; false if there are none.
    fn advance(&mut self, feed: &mut Feed, to: &mut Pcapng<impl Write>) -> CliResult<bool> {
        feed.read(|record| self.write(record, to))
    }

    fn is_complete(&self) -> bool {
        self.most.is_some_and(|most| self.fpdus >= most)
    }

    fn write(&mut self, record: &Record<'_>, to: &mut Pcapng<impl Write>) -> CliResult<()> {
        match record.kind {
            Kind::Dropped => self.drop_to(record.position),
            _ if self.is_complete() => {}
            _ => self.fpdus += u64::from(self.flows.write(record, to)?),
        }
        Ok(())
    }

    fn drop_to(&mut self, dropped: u64) {
        if dropped > self.dropped && !self.is_complete() {
            self.first_drop.get_or_insert(self.fpdus);
            self.dropped = dropped;
        }
    }

    /// Prints a summary on standard error.
    fn report(&self, ended: bool) {
        let end = if ended { "; the process ended, or ended the capture" } else { "" };
        let connections = count(self.flows.streams(), "connection");
        eprintln!("{} of {connections} written{end}", count(self.fpdus, "FPDU"));
        if self.flows.marked() > 0 {
            let marked = count(self.flows.marked(), "connection");
            eprintln!("{marked} with markers, whose FPDUs are not captured");
        }
        match self.first_drop {
            None => eprintln!("none dropped"),
            Some(before) => eprintln!(
                "{} dropped, as this command did not read in time: there are gaps, the first after {before}",
                count(self.dropped, "FPDU"),
            ),
        }
    }
}
