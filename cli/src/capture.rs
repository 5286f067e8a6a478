//! `warpline capture`: writes the FPDUs of a running process as pcapng.
//!
//! The process copies FPDUs to a socket that this command passes to it ([`ual::vp_api::capture`]); this command makes
//! packets of them ([`flows`]). When this command dies, the process detects that at its next FPDU; when the process
//! ends, so does the capture. FPDUs that this command does not read in time are dropped by the process, and counted.

mod args;
mod flows;
mod pcapng;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};
use serde_json::json;
use ual::vp_api::capture::{MESSAGE_LEN, Record};

pub(crate) use args::CaptureArgs;
use flows::{Filter, Flows, Style};
use pcapng::Pcapng;

use crate::ask;
use crate::error::{CliError, CliResult, Exit};
use crate::output::count;
use crate::stat::{self, pages::Snapshot};

/// Octets of payload that include all of it.
const WHOLE: u32 = 65_535;
/// Octets that may wait in the socket; the system grants what it allows.
const SOCKET: usize = 2 << 20;
/// How long to wait for FPDUs before checking for an interrupt.
const STEP: Duration = Duration::from_millis(100);
/// How long not to wait after FPDUs: the process then wakes nobody for each of its messages, which would take the
/// processor from it. Only with a buffer of [`SOCKET`] octets: a smaller one overflows meanwhile.
const PAUSE: Duration = Duration::from_millis(1);

/// Captures until it is stopped, or until the process ends.
pub(crate) fn run(args: &CaptureArgs) -> CliResult<()> {
    let snapshot = Snapshot::take(Some(args.pid), false)?;
    let Some(seen) = snapshot.processes.first() else {
        return Err(stat::absent::of(args.pid, &snapshot));
    };
    ual::catch_interrupt()?;
    let comment = match args.payload {
        0 => "headers of FPDUs, without payload".to_owned(),
        octets => format!("FPDUs, with up to {octets} octets of payload each"),
    };
    let (ours, theirs) = sockets()?;
    let question = json!({ "ask": "capture", "payload": args.payload });
    let begun = ask::ask(&seen.socket, &question, Some(theirs.as_fd())).map_err(refused)?;
    let granted = sockopt::socket_send_buffer_size(&theirs).map_err(io::Error::from)?;
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
        pauses: granted >= SOCKET,
        fpdus: 0,
        dropped: 0,
        first_drop: None,
    };
    let ended = capture.follow(args, &ours, &mut pcapng)?;
    if !ended {
        // FPDUs in the socket still arrive, then the end.
        let question = json!({ "ask": "end_capture", "number": begun["capture"] });
        if let Ok(answer) = ask::ask(&seen.socket, &question, None) {
            capture.drain(args, &ours, &mut pcapng)?;
            capture.drop_to(answer["dropped"].as_u64().unwrap_or(0));
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

/// Two ends: this command's, and the process's.
fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
    sockopt::set_socket_send_buffer_size(&theirs, SOCKET)?;
    // Only root may do this.
    let _ = sockopt::set_socket_send_buffer_size_force(&theirs, SOCKET);
    Ok((ours, theirs))
}

struct Capture {
    flows: Flows,
    /// It waits for [`PAUSE`] after FPDUs.
    pauses: bool,
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
        from: &OwnedFd,
        to: &mut Pcapng<impl Write>,
    ) -> CliResult<bool> {
        let began = Instant::now();
        let mut message = vec![0; MESSAGE_LEN];
        let mut idle = true;
        loop {
            let over = args.seconds.is_some_and(|seconds| began.elapsed() >= seconds);
            let enough = args.count.is_some_and(|count| self.fpdus >= count);
            if over || enough || ual::interrupted() {
                return Ok(false);
            }
            match rustix::net::recv(from, &mut message[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(true),
                Ok((len, _)) => {
                    self.write(args, &message[..len], to)?;
                    idle = false;
                }
                Err(Errno::AGAIN) => {
                    // So that a reader of a pipe gets the packets so far.
                    to.flush()?;
                    if std::mem::replace(&mut idle, true) || !self.pauses {
                        wait(from)?;
                    } else {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(Errno::INTR) => {}
                Err(other) => return Err(io::Error::from(other).into()),
            }
        }
    }

    /// Writes the FPDUs in the socket.
    fn drain(
        &mut self,
        args: &CaptureArgs,
        from: &OwnedFd,
        to: &mut Pcapng<impl Write>,
    ) -> CliResult<()> {
        let mut message = vec![0; MESSAGE_LEN];
        while let Ok((len @ 1.., _)) =
            rustix::net::recv(from, &mut message[..], RecvFlags::DONTWAIT)
        {
            self.write(args, &message[..len], to)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        args: &CaptureArgs,
        message: &[u8],
        to: &mut Pcapng<impl Write>,
    ) -> CliResult<()> {
        let Some((dropped, mut rest)) = message.split_first_chunk::<8>() else { return Ok(()) };
        self.drop_to(u64::from_le_bytes(*dropped));
        while let Some(record) = Record::take(&mut rest) {
            if args.count.is_some_and(|count| self.fpdus >= count) {
                break;
            }
            let written = self.flows.write(&record, to)?;
            self.fpdus += u64::from(written);
        }
        Ok(())
    }

    fn drop_to(&mut self, dropped: u64) {
        if dropped > self.dropped {
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

fn wait(from: &OwnedFd) -> io::Result<()> {
    let step = Timespec::try_from(STEP).unwrap_or_default();
    match rustix::event::poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&step)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(other) => Err(other.into()),
    }
}
