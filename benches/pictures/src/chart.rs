//! Bars from the tables of `benches/peers`, in its output or on a page that has them.

use std::fmt::Write;

use crate::escaped;

/// What is drawn: the title of a table, one of its columns, and what it says to a reader.
const PANELS: [(&str, &str, &str); 3] = [
    ("Bandwidth, GB/s", "64 KiB", "Messages of 64 KiB: GB/s, more is better"),
    ("Bandwidth, GB/s", "4 KiB", "Messages of 4 KiB: GB/s, more is better"),
    ("Half round trip, us", "64 B", "Half a round trip of 64 octets: µs, less is better"),
];
/// Rows of the tables, in this order; a panel leaves out those without a figure.
const ROWS: [&str; 6] = [
    "Warpline, CRC off",
    "Warpline, CRC on",
    "raw TCP, framed and batched",
    "raw TCP, one write per message",
    "libfabric tcp",
    "UCX tcp",
];
/// Width of the picture, of the names, and of the longest bar.
const WIDTH: f64 = 760.0;
const NAMES: f64 = 252.0;
const LONGEST: f64 = 430.0;
/// Height of a bar with its gap, and of what a panel has besides.
const STEP: f64 = 21.0;
const TITLE: f64 = 46.0;

/// A figure of the first table with this title, in the row and column of these names.
fn figure(text: &str, title: &str, row: &str, column: &str) -> Option<f64> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("| {title} |")));
    let at = cells(lines.next()?).iter().position(|cell| cell == column)?;
    let mut rows = lines.take_while(|line| line.starts_with('|')).map(cells);
    rows.find(|cells| cells[0] == row)?.get(at)?.parse().ok()
}

/// The chart, with a line below it; `Err`: the table or column that is missing.
pub fn svg(text: &str, caption: &str) -> Result<String, String> {
    let (mut body, mut down) = (String::new(), 0.0);
    for (table, column, says) in PANELS {
        let bars = ROWS.iter().filter_map(|row| Some((*row, figure(text, table, row, column)?)));
        let bars: Vec<_> = bars.collect();
        let most = bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        if most <= 0.0 {
            return Err(format!("there is no table {table:?} with a column {column:?}"));
        }
        body += &panel(says, &bars, most, down);
        down += TITLE + STEP * bars.len() as f64;
    }
    let height = down + 40.0;
    let caption = escaped(caption);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n{body}\
         <text x=\"20\" y=\"{}\" font-size=\"12\" fill=\"#666666\">{caption}</text>\n</svg>\n",
        height - 16.0
    ))
}

fn panel(says: &str, bars: &[(&str, f64)], most: f64, down: f64) -> String {
    let mut out = format!(
        "<text x=\"20\" y=\"{}\" font-weight=\"bold\">{}</text>\n",
        down + 32.0,
        escaped(says)
    );
    for (n, (name, value)) in bars.iter().enumerate() {
        let y = down + TITLE + STEP * n as f64;
        let colour = if name.starts_with("Warpline") { "#0072b2" } else { "#b4b4b4" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{value}</text>",
            NAMES - 8.0,
            y + 13.0,
            escaped(name),
            value / most * LONGEST,
            STEP - 4.0,
            NAMES + value / most * LONGEST + 8.0,
            y + 13.0,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| Bandwidth, GB/s | 4 KiB | 64 KiB |
|---|---|---|
| Warpline, CRC on | 5.5 | 8 |
| UCX tcp | - | 2 |

| Half round trip, us | 64 B |
|---|---|
| Warpline, CRC on | 4 |
| a stack of another picture | 1 |
";

    #[test]
    fn each_figure_has_a_bar_in_proportion() {
        let picture = svg(TEXT, "on a & b").unwrap();
        assert_eq!(picture.matches("<rect x=").count(), 4, "{picture}");
        assert!(picture.contains("width=\"430.0\"") && picture.contains("width=\"107.5\""));
        assert!(picture.contains("on a &amp; b") && !picture.contains("another"), "{picture}");
    }

    #[test]
    fn a_missing_table_is_named() {
        let error = svg("| Bandwidth, GB/s | 4 KiB |\n", "").unwrap_err();
        assert!(error.contains("64 KiB"), "{error}");
    }

    /// The committed chart is that of the committed figures, and says where and when they were measured.
    #[test]
    fn the_chart_of_the_documentation_has_its_figures() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
        let page = std::fs::read_to_string(format!("{docs}comparison.md")).unwrap();
        let chart = std::fs::read_to_string(format!("{docs}peers.svg")).unwrap();
        let caption = chart.rsplit_once("fill=\"#666666\">").unwrap().1;
        let caption = caption.split_once("</text>").unwrap().0;
        assert_eq!(
            svg(&page, caption).unwrap(),
            chart,
            "make it anew: benches/pictures/make chart"
        );
        for fact in ["2026-11-22", "AMD EPYC"] {
            assert!(caption.contains(fact) && page.contains(fact), "{caption}");
        }
    }
}
