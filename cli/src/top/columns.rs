//! The cells of a row, and which columns a terminal has room for. Pure.

use super::rows::Row;
use crate::stat::table::{connection, octets, program};

/// Headers; the first column takes the width that is left.
pub(super) const HEADERS: [&str; 9] =
    ["process, peer", "QP", "state", "in", "out", "msgs/s", "SQ", "RQ", "stalls/s"];
/// The least widths: those of usual values, so that columns do not move with each of them.
const LEAST: [usize; 9] = [23, 4, 7, 10, 10, 6, 5, 5, 8];
/// The columns that a narrow terminal lacks, the first of these first.
const LEFT_OUT: [usize; 8] = [8, 7, 1, 6, 2, 5, 3, 4];

/// The cells of a row.
pub(super) fn cells(row: &Row<'_>, is_stopped: bool) -> Vec<String> {
    match row {
        Row::Connection(of) => {
            let mut cells = connection(of.qp, of.rate);
            cells[0].insert_str(0, "  ");
            cells
        }
        Row::Process(of) => {
            let process = &of.seen.page.process;
            let state = if is_stopped { "stopped" } else { "" };
            vec![
                format!("{} {} ({})", process.pid, program(&process.exe), of.connected),
                String::new(),
                state.to_owned(),
                octets(of.rate.octets_received) + "/s",
                octets(of.rate.octets_sent) + "/s",
                format!("{:.0}", of.rate.messages),
                String::new(),
                String::new(),
                format!("{:.0}", of.rate.stalls),
            ]
        }
    }
}

/// The columns that fit into `width`, each with its own; all but the first have a blank before them.
pub(super) fn fitting(rows: &[Vec<String>], width: usize) -> Vec<(usize, usize)> {
    let longest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(LEAST[column])
    };
    let mut columns: Vec<_> = (0..HEADERS.len()).map(|column| (column, longest(column))).collect();
    let others = |columns: &[(usize, usize)]| {
        columns.iter().skip(1).map(|(_, width)| width + 1).sum::<usize>()
    };
    for left_out in LEFT_OUT {
        if others(&columns) + LEAST[0] <= width {
            break;
        }
        columns.retain(|(column, _)| *column != left_out);
    }
    columns[0].1 = width.saturating_sub(others(&columns));
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_lacks_the_least_columns() {
        let names = |width| {
            let columns = fitting(&[], width);
            assert!(columns.iter().map(|(_, of)| of + 1).sum::<usize>() <= width.max(1) + 1);
            columns.into_iter().map(|(column, _)| HEADERS[column]).collect::<Vec<_>>()
        };
        assert_eq!(names(200), HEADERS);
        assert_eq!(names(80), HEADERS[..8]);
        assert_eq!(names(50), ["process, peer", "in", "out"]);
        assert_eq!(names(1), ["process, peer"]);
        let wide = vec!["".to_owned(), "".into(), "".into(), "".into(), "".into(), "9".repeat(60)];
        assert!(fitting(&[wide], 80).iter().all(|(column, _)| *column != 5));
    }
}
