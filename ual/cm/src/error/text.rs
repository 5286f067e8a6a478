//! Texts of errors that both this crate and the access layer return; each text is defined once. No
//! state.

use std::fmt::{Display, Formatter, Result};
use std::io;

/// What to do about a port in use.
pub const IN_USE: &str = "choose another, or close what uses it";

/// The object was closed before.
pub fn closed(object: &dyn Display, f: &mut Formatter<'_>) -> Result {
    write!(f, "the {object} is closed already")
}

/// It is in another state.
pub fn state(
    object: &dyn Display,
    state: &str,
    attempt: &str,
    needed: &str,
    f: &mut Formatter<'_>,
) -> Result {
    write!(f, "the {object} is {state}; {attempt} needs it {needed}")
}

/// `len` octets of private data where `max` fit.
pub fn private_data_too_long(len: &usize, max: &usize, f: &mut Formatter<'_>) -> Result {
    write!(
        f,
        "private data of {len} octets is too long: at most {max} fit into this start-up frame"
    )
}

/// `attempt`: where, and for what.
pub fn address_in_use(attempt: &str, f: &mut Formatter<'_>) -> Result {
    write!(f, "{attempt}: the port is in use; {IN_USE}")
}

/// `place`: where a listener was looked for.
pub fn no_listener(place: &str, f: &mut Formatter<'_>) -> Result {
    write!(
        f,
        "no listener of this process at {place}; the request can still be accepted or rejected"
    )
}

/// `why` it cannot be converted, and what to do.
pub fn socket(why: &str, f: &mut Formatter<'_>) -> Result {
    write!(f, "the socket cannot be converted: {why}")
}

/// A refusal of the operating system.
pub fn os(attempt: &str, source: &io::Error, f: &mut Formatter<'_>) -> Result {
    match kal_os::remedy(source) {
        Some(remedy) => address(attempt, source, remedy, f),
        None => write!(f, "{attempt}: {source}"),
    }
}

/// A refusal of an address.
pub fn address(attempt: &str, source: &io::Error, remedy: &str, f: &mut Formatter<'_>) -> Result {
    write!(f, "{attempt}: {source}; {remedy}")
}
