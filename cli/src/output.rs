//! Tables and quantities for people. Pure text, no state.

/// A table: the first row is the header; all columns but the first are right-aligned.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            line += if c == 0 { "" } else { "  " };
            line += &if c == 0 { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Gigaoctets (10^9) per second; a dash if nothing was moved or no time passed.
pub(crate) fn rate(octets: u64, seconds: f64) -> String {
    if octets == 0 || seconds <= 0.0 {
        return "-".into();
    }
    format!("{:.3}", octets as f64 / seconds / 1e9)
}

/// `1 octet`, `2 octets`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["op".into(), "octets".into()], vec!["Write".into(), "7".into()]];
        assert_eq!(table(&rows), "op     octets\nWrite       7\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn rates() {
        assert_eq!(rate(2_000_000_000, 1.0), "2.000");
        assert_eq!(rate(0, 1.0), "-");
        assert_eq!(rate(1, 0.0), "-");
    }
}
