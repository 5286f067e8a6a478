//! Parses values that several commands take: a switch, seconds, a port. No state.

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
