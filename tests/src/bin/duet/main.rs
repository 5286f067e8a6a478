//! Conformance program of two ends over IT-API: every operation, end of connection and refusal is a case with
//! its own connection, which both ends judge. The ends may be on different machines and over different
//! providers.
//!
//! `duet serve ADDRESS` prints `listening at ADDRESS` and runs until the other end has finished; `duet connect
//! ADDRESS [CASE...]` runs all cases, or these. Options: `--ia NAME`; `--without CASE,...`, or names without
//! their `.connector` or `.listener` for both directions; and for SoftRDMA `--profile NAME` of a peer, `--crc
//! on|off`, `--mpa 1|2` and `--rtr none|write|read`. Each case prints a line: `ok CASE`, `differs CASE` if it
//! deviates from the standards, or `FAILED CASE`; then what was seen. The exit status is 1 if one failed.
//!
//! One thread. A case owns its connection; when the other end dies, a bounded wait ends it.
#![forbid(unsafe_code)]

mod cases;
mod data;
mod end;
mod errors;
mod side;

use std::process::ExitCode;

use itapi::{ConnEvent, Error};

use cases::Case;
use end::End;
use side::{Fail, Seen, Side};

/// The request that ends a server; it is rejected.
const OVER: &str = "over";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    match Side::open(&mut args).and_then(|side| run(&side, &args)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(Fail(why)) => {
            eprintln!("duet: {why}");
            ExitCode::FAILURE
        }
    }
}

/// How many cases failed.
fn run(side: &Side, args: &[String]) -> Result<usize, Fail> {
    match args {
        [what, address] if what == "serve" => serve(side, address),
        [what, address, names @ ..] if what == "connect" => connect(side, address, names),
        _ => Err("duet serve ADDRESS | duet connect ADDRESS [CASE...]".into()),
    }
}

fn serve(side: &Side, address: &str) -> Result<usize, Fail> {
    let listen = side.ia.listen(address)?;
    println!("listening at {}", listen.address());
    let mut failed = 0;
    loop {
        let request = listen.request()?;
        let name = side::name_in(request.private_data());
        if name == OVER {
            request.reject(b"")?;
            return Ok(failed);
        }
        let (case, lead) =
            cases::find(&name).ok_or_else(|| format!("there is no case {name:?}"))?;
        let seen = match case.rejection {
            Some(answer) => request.reject(answer).map(|()| Seen::ok("")).map_err(Fail::from),
            None => End::accept(side, case, lead, request).and_then(|end| play(&end)),
        };
        failed += report(&name, seen);
    }
}

fn connect(side: &Side, address: &str, names: &[String]) -> Result<usize, Fail> {
    let mut failed = 0;
    for (case, lead) in cases::all() {
        let name = case.name(lead);
        let is_out = side.without.iter().any(|without| case.is(without) || *without == name);
        if is_out || !names.is_empty() && !names.contains(&name) {
            continue;
        }
        let seen = match case.rejection {
            Some(answer) => rejected(side, address, &name, answer),
            None => End::connect(side, case, lead, address).and_then(|end| play(&end)),
        };
        failed += report(&name, seen);
    }
    // The server exits, perhaps before its reply is sent.
    let _ = rejected(side, address, OVER, b"");
    Ok(failed)
}

/// Runs this end of a case.
fn play(end: &End<'_>) -> Result<Seen, Fail> {
    let Case { play, terminate, .. } = end.case;
    end.begin()?;
    if !end.leads {
        (play.follow)(end)?;
        return match terminate {
            None => end.is_closed(),
            Some(code) => end.terminates(*code),
        };
    }
    match ((play.lead)(end)?, terminate) {
        (None, None) => end.close(),
        (None, Some(code)) => end.is_terminated(*code),
        (Some(otherwise), _) => end.close().map(|_| Seen::Differs(otherwise)),
    }
}

/// Connects, and is rejected with these octets.
fn rejected(side: &Side, address: &str, name: &str, answer: &[u8]) -> Result<Seen, Fail> {
    let (pz, evd) = (side.ia.pz()?, side.ia.evd(4)?);
    let connected = pz.ep(&evd).build()?.connect(address, name.as_bytes());
    let event = match connected {
        Ok(_) => return Err("it was accepted".into()),
        Err(Error::Connection(event)) => *event,
        Err(other) => return Err(other.into()),
    };
    match event {
        ConnEvent::Rejected { private_data, .. } if private_data == answer => {
            Ok(Seen::ok("rejected, with private data"))
        }
        ConnEvent::Rejected { private_data, .. } if private_data.is_empty() => {
            Ok(Seen::Differs("rejected, without the private data".into()))
        }
        other => Err(format!("{other:?} where a rejection with private data is expected").into()),
    }
}

/// Prints the result of a case; returns 1 if it failed.
fn report(name: &str, seen: Result<Seen, Fail>) -> usize {
    match &seen {
        Ok(Seen::Ok(what)) => println!("ok {name} {what}"),
        Ok(Seen::Differs(what)) => println!("differs {name} {what}"),
        Err(Fail(why)) => println!("FAILED {name} {why}"),
    }
    usize::from(seen.is_err())
}
