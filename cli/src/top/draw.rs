//! Draws the view: a line of sums, the rows or the page, and a line of keys. A screen too small for all has rows only.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::columns::{HEADERS, cells, fitting};
use super::keys;
use super::page::Page;
use super::rows::{Order, Row as Entry};
use super::view::{Cursor, Shown, View};
use crate::output::count;
use crate::stat::table::octets;

/// Screens of fewer lines have neither sums nor keys.
const LEAST: u16 = 4;

pub(super) fn all(frame: &mut Frame<'_>, view: &mut View) {
    let area = frame.area();
    let around = u16::from(area.height >= LEAST);
    let lengths = [around, 0, around].map(Constraint::Length);
    let [top, mut middle, bottom] =
        Layout::vertical([lengths[0], Constraint::Fill(1), lengths[2]]).areas(area);
    frame.render_widget(Line::raw(help(view)), bottom);
    let View { shown, cursor, is_typing, page } = view;
    if let Some(trouble) = shown.snapshot.complaint().filter(|_| middle.height >= LEAST) {
        let [rest, line] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(middle);
        frame.render_widget(Line::raw(trouble), line);
        middle = rest;
    }
    let rows = shown.rows();
    frame.render_widget(Line::styled(sums(&rows, &shown.order, *is_typing), Modifier::BOLD), top);
    match page {
        Some(page) => {
            cursor.height = usize::from(middle.height).max(1);
            draw_page(frame, page, shown, middle);
        }
        None => list(frame, &rows, shown, cursor, middle),
    }
}

fn help(view: &View) -> &'static str {
    match (&view.page, view.is_typing) {
        (Some(_), _) => keys::PAGE,
        (None, true) => keys::FILTER,
        (None, false) => keys::LIST,
    }
}

/// The sums of what the filter lets pass, and the order.
fn sums(rows: &[Entry<'_>], order: &Order, is_typing: bool) -> String {
    let (mut processes, mut connections, mut received, mut sent) = (0, 0, 0.0, 0.0);
    for row in rows {
        if let Entry::Process(of) = row {
            processes += 1;
            connections += of.connected as u64;
            received += of.rate.octets_received;
            sent += of.rate.octets_sent;
        }
    }
    let reversed = if order.reverse { ", reversed" } else { "" };
    let filter = match (is_typing, order.filter.as_str()) {
        (true, filter) => format!("; filter: {filter}_"),
        (false, "") => String::new(),
        (false, filter) => format!("; filter: {filter}"),
    };
    format!(
        "{}, {}, in {}/s, out {}/s; by {}{reversed}{filter}",
        count(processes, "process"),
        count(connections, "connection"),
        octets(received),
        octets(sent),
        order.sort.name()
    )
}

fn list(frame: &mut Frame<'_>, rows: &[Entry<'_>], shown: &Shown, cursor: &mut Cursor, area: Rect) {
    // One line is the header.
    let (range, selected) = cursor.visible(rows, usize::from(area.height).saturating_sub(1));
    if rows.is_empty() {
        let filtered = !shown.snapshot.processes.is_empty();
        let text =
            if filtered { "nothing contains the filter" } else { "no process publishes anything" };
        return frame.render_widget(Line::raw(text), area);
    }
    let stopped = |row: &Entry<'_>| match row {
        Entry::Process(of) => shown.stopped.contains(&of.seen.page.process.pid),
        Entry::Connection(_) => false,
    };
    let texts: Vec<_> = rows[range].iter().map(|row| cells(row, stopped(row))).collect();
    let columns = fitting(&texts, area.width.into());
    let lines = texts.iter().enumerate().map(|(n, cells)| {
        let style = if n == selected { Modifier::REVERSED } else { Modifier::empty() };
        line(cells, &columns).style(Style::new().add_modifier(style))
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width as u16));
    let headers = HEADERS.map(str::to_owned);
    let table = Table::new(lines, widths)
        .header(line(&headers, &columns).style(Modifier::UNDERLINED))
        .column_spacing(1);
    frame.render_widget(table, area);
}

/// The cells of these columns; all but the first end at the right.
fn line<'a>(cells: &'a [String], columns: &[(usize, usize)]) -> Row<'a> {
    Row::new(columns.iter().map(|(column, _)| {
        let side = if *column == 0 { Alignment::Left } else { Alignment::Right };
        Cell::new(Text::raw(cells[*column].as_str()).alignment(side))
    }))
}

fn draw_page(frame: &mut Frame<'_>, page: &mut Page, shown: &Shown, area: Rect) {
    let height = usize::from(area.height);
    let is_stopped = shown.stopped.contains(&page.seen.page.process.pid);
    let lines = page.lines(area.width.into(), is_stopped);
    page.scroll = page.scroll.min(lines.len().saturating_sub(height));
    let visible: Vec<_> = lines.into_iter().skip(page.scroll).take(height).map(Line::raw).collect();
    frame.render_widget(Paragraph::new(visible), area);
}
