//! Tables and quantities for people. Pure text, no state.

use itapi::NotLocal;

/// Text for the CRC of a connection: MPA's, or none without MPA (revision 0).
pub(crate) fn crc(revision: u8, crc: bool) -> &'static str {
    match (revision, crc) {
        (0, _) => "no MPA",
        (_, true) => "CRC on",
        (_, false) => "CRC off",
    }
}

/// Text for the carrier of a connection's FPDUs.
pub(crate) fn carrier(local: Result<(), NotLocal>) -> String {
    match local {
        Ok(()) => "local stream".into(),
        Err(why) => format!("TCP ({})", why.code()),
    }
}

/// Columns of a terminal by default.
const WIDTH: usize = 80;

/// A table: the first row is the header; all columns but the first are right-aligned. A first cell that would
/// make the table too wide, or is the only one of its row, has a line of its own.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0))
        .collect();
    let room = WIDTH.saturating_sub(widths.iter().skip(1).map(|width| width + 2).sum());
    let firsts = rows.iter().filter(|row| row.len() > 1).map(|row| row[0].chars().count());
    if let Some(first) = widths.first_mut() {
        *first = firsts.filter(|&width| width <= room).max().unwrap_or(0);
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            line += &if c == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") };
            if c == 0 && cell.chars().count() > *width && row.len() > 1 {
                line += &format!("\n{}", " ".repeat(*width));
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A paragraph in lines that fit, the second and later ones indented.
pub(crate) fn wrapped(paragraph: &str) -> String {
    folded(paragraph, WIDTH, 2)
}

/// A paragraph in lines of at most `width` columns that break between words, the second and later ones indented
/// by `indent`. Leading blanks stay.
pub(crate) fn folded(paragraph: &str, width: usize, indent: usize) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for (n, word) in paragraph.trim_end().split(' ').enumerate() {
        let long = word.chars().count();
        if n > 0 && !word.is_empty() && column > indent && column + 1 + long > width {
            text = text.trim_end().to_owned() + "\n" + &" ".repeat(indent);
            column = indent;
        } else if n > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += long;
    }
    text + "\n"
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
    let plural = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_plural() {
        assert_eq!([count(1, "octet"), count(0, "octet")], ["1 octet", "0 octets"]);
        assert_eq!([count(1, "process"), count(2, "process")], ["1 process", "2 processes"]);
    }

    #[test]
    fn crc_is_named_where_there_is_one() {
        assert_eq!([crc(0, true), crc(2, true), crc(1, false)], ["no MPA", "CRC on", "CRC off"]);
    }

    #[test]
    fn a_carrier_has_a_name_and_tcp_a_reason() {
        let carriers = [Ok(()), Err(NotLocal::PeerPlain)].map(carrier);
        assert_eq!(carriers, ["local stream", "TCP (peer-plain)"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["op".into(), "octets".into()], vec!["Write".into(), "7".into()]];
        assert_eq!(table(&rows), "op     octets\nWrite       7\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn a_cell_that_is_too_wide_has_a_line_of_its_own() {
        let row = |first: &str| vec![first.to_owned(), "7".to_owned()];
        let wide = "w".repeat(78);
        let rows = [row("op"), vec!["alone".into()], row("Write"), row(&wide)];
        assert_eq!(table(&rows), format!("op     7\nalone\nWrite  7\n{wide}\n       7\n"));
    }

    #[test]
    fn paragraphs_are_wrapped() {
        assert_eq!(wrapped("a b"), "a b\n");
        let long = wrapped(&"word ".repeat(40));
        assert!(long.lines().all(|line| line.len() <= WIDTH), "{long}");
        assert_eq!(long.split_whitespace().count(), 40);
        assert!(long.lines().skip(1).all(|line| line.starts_with("  word")), "{long}");
    }

    #[test]
    fn rates() {
        assert_eq!(rate(2_000_000_000, 1.0), "2.000");
        assert_eq!(rate(0, 1.0), "-");
        assert_eq!(rate(1, 0.0), "-");
    }
}
