//! Messages by `warpline-channel`: both ends.

use std::time::Duration;

use itapi::Ia;
use warpline_benches::Result;
use warpline_channel::{Channel, Listener, Options};

use crate::{Case, WARM_UP, timed, touch};

/// With or without sessions that go on when their connection is lost.
fn options(resumes: bool) -> Options {
    Options { resume: resumes.then_some(Duration::from_secs(60)), ..Options::default() }
}

pub(crate) fn listen(ia: &Ia, resumes: bool) -> Result<Listener> {
    Ok(Listener::bind_with(ia, "127.0.0.1:0", options(resumes))?)
}

/// Small messages are copied; others are written into registered memory.
fn send(channel: &Channel, octets: &[u8]) -> Result<()> {
    if octets.len() <= 128 {
        return Ok(channel.send(octets)?);
    }
    let mut draft = channel.draft(octets.len())?;
    draft.resize(octets.len());
    touch(&mut draft);
    Ok(channel.send(draft)?)
}

/// Serves one connection after the other.
pub(crate) fn serve(listener: &Listener) -> Result<()> {
    loop {
        let channel = listener.accept()?;
        let first = channel.recv()?.ok_or("no case")?;
        let case = Case::from_octets(&first).ok_or("no case")?;
        let back = vec![0; case.octets];
        channel.send(b"")?;
        for _ in 0..WARM_UP + case.count {
            drop(channel.recv()?.ok_or("too few messages")?);
            if case.echo {
                send(&channel, &back)?;
            }
        }
        if !case.echo {
            channel.send(b"")?;
        }
        while channel.recv()?.is_some() {}
    }
}

/// Sends `count` messages, and takes as many if they return.
fn exchange(channel: &Channel, case: Case, octets: &[u8], count: u64) -> Result<()> {
    for _ in 0..count {
        send(channel, octets)?;
        if case.echo {
            channel.recv()?;
        }
    }
    Ok(())
}

/// Duration of the measurement.
pub(crate) fn run(ia: &Ia, address: &str, case: Case, resumes: bool) -> Result<Duration> {
    let channel = Channel::connect_with(ia, address, options(resumes))?;
    channel.send(&case.to_octets())?;
    channel.recv()?;
    let octets = vec![0; case.octets];
    exchange(&channel, case, &octets, WARM_UP)?;
    let took = timed(|| {
        exchange(&channel, case, &octets, case.count)?;
        if !case.echo {
            channel.recv()?;
        }
        Ok(())
    })?;
    channel.close()?;
    Ok(took)
}
