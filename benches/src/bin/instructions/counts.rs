//! The committed instruction counts: a line with the tools that counted them, then a line per step.
//!
//! A text file in the crate's directory, read and written by one thread.

use std::path::PathBuf;

use warpline_benches::Result;

/// Figures by step, in tenths of an instruction.
#[derive(Debug, Default)]
pub(crate) struct InstructionCounts {
    /// Compiler, C library, valgrind, processor family.
    pub(crate) tools: String,
    rows: Vec<(String, u64)>,
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

impl InstructionCounts {
    /// A table without figures.
    pub(crate) fn new(tools: String) -> Self {
        Self { tools, rows: Vec::new() }
    }

    /// The committed table; empty if there is none.
    pub(crate) fn committed() -> Result<Self> {
        if !file().exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(file())?;
        let (tools, lines) = text.split_once('\n').ok_or("instructions.txt has no first line")?;
        let row = |line: &str| {
            let (figure, name) = line.trim().split_once(' ')?;
            let (whole, tenth) = figure.split_once('.')?;
            let figure = 10 * whole.parse::<u64>().ok()? + tenth.parse::<u64>().ok()?;
            Some((name.trim().to_owned(), figure))
        };
        let rows: Option<Vec<_>> = lines.lines().map(row).collect();
        Ok(Self { tools: tools.into(), rows: rows.ok_or("instructions.txt has a bad line")? })
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, name: &str, tenths: u64) {
        self.rows.push((name.into(), tenths));
    }

    fn figure(&self, name: &str) -> Option<u64> {
        self.rows.iter().find(|(row, _)| row == name).map(|(_, figure)| *figure)
    }

    /// Both tables side by side.
    pub(crate) fn print_beside(&self, committed: &Self) {
        println!(
            "{:<34} {:>10} {:>10} {:>8}",
            "instructions per", "counted", "committed", "change"
        );
        for (name, now) in &self.rows {
            let Some(before) = committed.figure(name) else {
                println!("{name:<34} {:>10}", text(*now));
                continue;
            };
            let change = 100.0 * (*now as f64 / before as f64 - 1.0);
            println!("{name:<34} {:>10} {:>10} {change:>+7.1}%", text(*now), text(before));
        }
    }

    /// Steps that cost at least 5 % more here, or have no committed figure.
    pub(crate) fn worse_than(&self, committed: &Self) -> Vec<&str> {
        let worse = |(name, now): &&(String, u64)| committed.is_worse(name, *now);
        self.rows.iter().filter(worse).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether a step that now costs so many tenths costs at least 5 % more than here, or has no figure here.
    pub(crate) fn is_worse(&self, name: &str, now: u64) -> bool {
        self.figure(name).is_none_or(|before| 100 * now > 105 * before)
    }

    /// Replaces the committed table.
    pub(crate) fn commit(&self) -> Result<()> {
        let row = |(name, figure): &(String, u64)| format!("{:>9} {name}\n", text(*figure));
        let rows: String = self.rows.iter().map(row).collect();
        Ok(std::fs::write(file(), format!("{}\n{rows}", self.tools))?)
    }
}

fn text(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_more_is_worse() {
        let committed = InstructionCounts {
            tools: String::new(),
            rows: vec![("a".into(), 1000), ("b".into(), 1000)],
        };
        let mut now = InstructionCounts::new(String::new());
        now.push("a", 1050);
        now.push("b", 1051);
        now.push("c", 1);
        assert_eq!(now.worse_than(&committed), ["b", "c"]);
    }

    #[test]
    fn the_committed_table_reads() {
        let table = InstructionCounts::committed().unwrap();
        assert!(!table.rows.is_empty() && table.rows.iter().all(|(_, figure)| *figure > 0));
    }
}
