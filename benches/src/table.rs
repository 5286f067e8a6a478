//! Figures as text. No state.

use std::fmt::{self, Write};

use crate::DEPTH;
use crate::cases::{CASES, Case};
use crate::meter::Summary;

/// What the rounds gave.
#[derive(Debug, Default)]
pub struct Figures {
    rounds: Vec<(Case, f64)>,
}

impl Figures {
    /// A case's figure of a round.
    pub fn add(&mut self, case: Case, figure: f64) {
        self.rounds.push((case, figure));
    }

    fn summary(&self, case: Case) -> Option<Summary> {
        let of_case = self.rounds.iter().filter(|(c, _)| *c == case);
        Summary::of(&of_case.map(|(_, figure)| *figure).collect::<Vec<_>>())
    }

    /// Its median as a part of another's; empty if that was not measured.
    fn ratio(&self, summary: Summary, raw: Case) -> String {
        self.summary(raw)
            .map_or_else(String::new, |raw| format!("{:.2}", summary.median / raw.median))
    }

    fn section(&self, f: &mut fmt::Formatter<'_>, title: &str, bandwidth: bool) -> fmt::Result {
        let cases = CASES.into_iter().filter(|case| case.is_bandwidth() == bandwidth);
        let rows: Vec<_> = cases.filter_map(|case| Some((case, self.summary(case)?))).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{title}")?;
        writeln!(
            f,
            "{:<33}{:>4}{:>10}{:>5}{:>10}{:>10}{:>12}{:>12}",
            "", "CRC", "median", "", "min", "max", "/raw_same", "/raw_max"
        )?;
        for (case, summary) in rows {
            let crc = case.crc().map_or("", |on| if on { "on" } else { "off" });
            let mut row = format!("{:<33}{crc:>4}", case.to_string());
            write!(row, "{:>10.2} {:<4}", summary.median, case.unit())?;
            write!(row, "{:>10.2}{:>10.2}", summary.min, summary.max)?;
            write!(row, "{:>12}", self.ratio(summary, case.raw_same()))?;
            writeln!(f, "{row}{:>12}", self.ratio(summary, case.raw_max()))?;
        }
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("Bandwidth, 64 KiB messages, depth {DEPTH}; more is better");
        self.section(f, &title, true)?;
        self.section(f, "Half round trip, 8 octets, p50; less is better", false)
    }
}
