//! Arguments of `warpline explain`. No state.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::values::parse_bound;

/// `PID`, or `PID:QP`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Which {
    pub(crate) pid: u32,
    /// `None`: the busiest one.
    pub(crate) qp: Option<u32>,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pid, qp) = match text.split_once(':') {
            Some((pid, qp)) => (pid, Some(qp)),
            None => (text, None),
        };
        let number = |text: &str, what: &str| {
            text.parse()
                .map_err(|_| format!("`{text}` is not the number of a {what}: name PID, or PID:QP"))
        };
        let qp = qp.map(|qp| number(qp, "queue pair")).transpose()?;
        Ok(Self { pid: number(pid, "process")?, qp })
    }
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    // As an attribute: in a documentation comment the brackets would be a link.
    #[arg(
        value_name = "PID[:QP]",
        help = "Process, and queue pair as `warpline stat` shows it; without one the busiest"
    )]
    pub(crate) which: Which,
    /// Seconds to observe
    #[arg(long, visible_alias = "duration", default_value = "5", value_parser = parse_bound, value_name = "SECONDS")]
    pub(crate) seconds: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_perhaps_a_queue_pair() {
        assert_eq!("7".parse(), Ok(Which { pid: 7, qp: None }));
        assert_eq!("7:3".parse(), Ok(Which { pid: 7, qp: Some(3) }));
        for wrong in ["", "x", "7:", "7:x", ":3", "-1"] {
            assert!(wrong.parse::<Which>().is_err(), "{wrong}");
        }
    }
}
