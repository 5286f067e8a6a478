//! Parses values that several commands take: a switch, seconds, a port; and says in words what is wrong with a value. No state.

use std::error::Error;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::time::Duration;

use clap::ValueEnum;

/// rping's port.
pub(crate) const PING_PORT: u16 = 7174;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Decimal seconds, up to a day.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("between 0 and 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// As [`parse_seconds`], but more than 0.
pub(crate) fn parse_bound(text: &str) -> Result<Duration, String> {
    parse_seconds(text).and_then(|bound| match bound.is_zero() {
        true => Err("more than 0 seconds".to_owned()),
        false => Ok(bound),
    })
}

/// Why a value is not accepted. The parsers of std and clap describe their own steps and types.
pub(crate) fn in_words(source: &(dyn Error + 'static)) -> String {
    let text = source.to_string();
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        let words = match error.kind() {
            IntErrorKind::PosOverflow => "too large a number",
            IntErrorKind::NegOverflow => "too small a number",
            _ => "not a whole number",
        };
        return words.to_owned();
    }
    if source.is::<ParseFloatError>() {
        return "not a number".to_owned();
    }
    if source.is::<AddrParseError>() {
        let with_port = text.contains("socket");
        return if with_port { "not ADDRESS:PORT or [IPV6]:PORT" } else { "not an IP address" }
            .to_owned();
    }
    match text
        .split_once(" is not in ")
        .and_then(|(value, range)| Some((value, range.split_once("..")?)))
    {
        Some((value, (low, ""))) => format!("{value} is less than {low}"),
        Some((value, ("", high))) => {
            format!("{value} is more than {}", high.trim_start_matches('='))
        }
        Some((value, (low, high))) => match high.strip_prefix('=') {
            Some(high) => format!("{value} is not from {low} to {high}"),
            None => format!("{value} is not from {low} up to, but without, {high}"),
        },
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["", "x", "-1", "NaN", "inf", "1e9"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
