//! `warpline perf serve`: serves the measurements of clients. A thread per client reads its requests and starts
//! the threads of a measurement; a client that dies or breaks the protocol ends only its own thread.

mod echo;
mod service;
mod sink;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use kal_os::Use;
use rustix::process::{Signal, set_parent_process_death_signal};

use self::service::Service;
use super::args::ServeArgs;
use super::case::{Case, Reference};
use super::control::{Answer, Control, PORT, Request};
use super::{machine, raw};
use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// Serves until stopped.
pub(super) fn run(args: &ServeArgs, out: &mut dyn Write) -> CliResult<()> {
    if args.follow {
        // The second process of `perf local` ends with the first.
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| CliError::new(Exit::Failed, error.to_string()))?;
        signals::leave_to_parent();
    }
    if let Some(nth) = args.cpu {
        machine::pin(nth);
    }
    let address = listener_address(&args.address)?;
    let refuse = |error: std::io::Error| {
        CliError::new(Exit::Network, format!("cannot listen: {error}"))
            .at(format!("perf serve {address}"))
            .hint_at(&error, &address, Use::Bind)
            .or_hint("choose another port, or 0 for a free one")
    };
    let listener = TcpListener::bind(address).map_err(refuse)?;
    writeln!(out, "serving measurements at {}", listener.local_addr().map_err(refuse)?)?;
    out.flush()?;
    loop {
        let (stream, peer) = listener.accept().map_err(refuse)?;
        let device = args.device.clone();
        // The client reports its own failure; other clients are not concerned.
        std::thread::spawn(move || {
            if let Err(error) = client(stream, peer, device) {
                let _ = std::io::stderr().write_all(error.render(80).as_bytes());
            }
        });
    }
}

/// The address to serve at; the defaults are the wildcard and the usual port.
fn listener_address(text: &str) -> CliResult<SocketAddr> {
    let whole = match text {
        "" => "[::]".to_owned(),
        port if port.starts_with(':') => format!("[::]{port}"),
        other => other.to_owned(),
    };
    let found = ual::resolve(&whole, PORT).map_err(|error| {
        CliError::new(Exit::Usage, error.to_string())
            .at("perf serve")
            .hint("write ADDR, ADDR:PORT, [IPV6]:PORT or :PORT")
    })?;
    let none = || CliError::new(Exit::Network, format!("{text} has no address"));
    found.into_iter().next().ok_or_else(none)
}

fn client(stream: TcpStream, peer: SocketAddr, device: Option<String>) -> CliResult<()> {
    let Some(mut control) = Control::accept(stream, peer)? else {
        return Err(CliError::new(Exit::Network, format!("{peer} does not speak our protocol"))
            .at("perf serve")
            .because("it is no `warpline perf run`, or another version"));
    };
    let here = control.local()?;
    while let Some(request) = control.receive()? {
        match request {
            Request::Hello { .. } | Request::End => control.say(&Answer::Done)?,
            Request::Used => control.say(&used())?,
            Request::Case(case) => match case.check() {
                Ok(()) => measurement(&mut control, Work::Case(case, here, device.clone()))?,
                Err(why) => control.say(&Answer::Failed { why })?,
            },
            Request::Raw(reference) => match reference.check() {
                Ok(()) => measurement(&mut control, Work::Raw(reference, here))?,
                Err(why) => control.say(&Answer::Failed { why })?,
            },
        }
    }
    Ok(())
}

fn used() -> Answer {
    Answer::Used { cpu_us: machine::cpu_us(), resident: machine::resident() }
}

/// A measurement to serve.
enum Work {
    Case(Case, SocketAddr, Option<String>),
    Raw(Reference, SocketAddr),
}

impl Work {
    fn start(self, announce: Sender<u16>, over: Arc<AtomicBool>) -> JoinHandle<CliResult<()>> {
        let announce = move |port| {
            // The control thread waits for the result, unless its client is gone.
            let _ = announce.send(port);
        };
        std::thread::spawn(move || match self {
            Self::Case(case, here, device) => {
                Service::new(case, device.as_deref())?.serve(here, announce, &over)
            }
            Self::Raw(reference, here) => raw::serve(reference, here, announce).map_err(|error| {
                CliError::new(Exit::Failed, format!("raw TCP: {error}")).at("perf serve")
            }),
        })
    }
}

/// One measurement, from the request for it to its end.
fn measurement(control: &mut Control, work: Work) -> CliResult<()> {
    let (announce, announced) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let thread = work.start(announce, over.clone());
    if let Ok(port) = announced.recv() {
        control.say(&Answer::Ready { port })?;
        loop {
            match control.receive()? {
                Some(Request::Used) => control.say(&used())?,
                Some(Request::End) => break,
                _ => {
                    over.store(true, Ordering::Release);
                    return Ok(());
                }
            }
        }
    }
    over.store(true, Ordering::Release);
    control.say(&match thread.join() {
        Ok(Ok(())) => Answer::Done,
        Ok(Err(error)) => Answer::Failed { why: format!("the server: {}", error.brief()) },
        Err(_) => Answer::Failed { why: "the server: a measuring thread panicked".into() },
    })
}
