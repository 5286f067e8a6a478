//! The screen of a terminal as a picture that needs no particular font.

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

use crate::escaped;

/// Size of a cell, and the room around all.
const WIDE: u32 = 8;
const HIGH: u32 = 17;
const ROOM: u32 = 14;
const PAPER: &str = "#1b1f24";
const INK: &str = "#d7dde4";
/// The colours of a terminal by number, dark ones first.
const COLOURS: [&str; 16] = [
    "#5c6670", "#e06c75", "#8bc270", "#d8b161", "#6ab0f3", "#c58be0", "#5bc2c9", "#d7dde4",
    "#7d8894", "#ff8a93", "#a8dd8f", "#f2cd7e", "#8cc6ff", "#dda9f3", "#7fdde3", "#ffffff",
];

/// How a cell looks.
#[derive(PartialEq, Eq)]
struct Style {
    ink: String,
    paper: String,
    bold: bool,
}

impl Style {
    fn of(cell: &Cell) -> Self {
        let mut ink = colour(cell.fgcolor(), INK);
        let mut paper = colour(cell.bgcolor(), PAPER);
        if cell.dim() {
            ink = COLOURS[8].to_owned();
        }
        if cell.inverse() {
            std::mem::swap(&mut ink, &mut paper);
        }
        Self { ink, paper, bold: cell.bold() }
    }
}

fn colour(colour: Color, default: &str) -> String {
    match colour {
        Color::Default => default.to_owned(),
        Color::Idx(n) => COLOURS.get(usize::from(n)).unwrap_or(&default).to_string(),
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
    }
}

/// The picture of a screen.
pub fn svg(screen: &Screen) -> String {
    let (lines, columns) = screen.size();
    let (width, height) =
        (u32::from(columns) * WIDE + 2 * ROOM, u32::from(lines) * HIGH + 2 * ROOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"13\" style=\"white-space: pre\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for line in 0..lines {
        let mut column = 0;
        while let Some(first) = screen.cell(line, column) {
            let (start, style, mut text) = (column, Style::of(first), String::new());
            while let Some(cell) = screen.cell(line, column).filter(|c| Style::of(c) == style) {
                text += if cell.has_contents() { cell.contents() } else { " " };
                column += 1;
            }
            run(&mut out, &style, &text, (line, start));
        }
    }
    out + "</svg>\n"
}

/// Cells of one look, side by side.
fn run(out: &mut String, style: &Style, text: &str, (line, column): (u16, u16)) {
    let (x, y) = (ROOM + u32::from(column) * WIDE, ROOM + u32::from(line) * HIGH);
    let width = text.chars().count() as u32 * WIDE;
    // Writing to a string cannot fail.
    if style.paper != PAPER {
        let paper = &style.paper;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HIGH}\" fill=\"{paper}\"/>"
        );
    }
    let left = text.trim_start();
    let x = x + (text.chars().count() - left.chars().count()) as u32 * WIDE;
    // Each word has its place, so that columns stay in line in any font.
    let mut at = 0;
    for word in left.split_inclusive("  ") {
        let (long, shown) = (word.chars().count() as u32, word.trim());
        let lead = word.chars().take_while(|c| *c == ' ').count() as u32;
        if !shown.is_empty() {
            let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" textLength=\"{}\" fill=\"{}\"{weight}>{}</text>",
                x + (at + lead) * WIDE,
                y + 13,
                shown.chars().count() as u32 * WIDE,
                style.ink,
                escaped(shown)
            );
        }
        at += long;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_places_and_colours() {
        let mut parser = vt100::Parser::new(2, 20, 0);
        parser.process(b"a  <b>\r\n\x1b[1;31mred\x1b[0m \x1b[7mback\x1b[0m");
        let picture = svg(parser.screen());
        let word = |x: u32, y: u32, rest: &str| {
            let start = format!("<text x=\"{}\" y=\"{}\" ", ROOM + x * WIDE, ROOM + y * HIGH + 13);
            picture.lines().any(|line| line.starts_with(&start) && line.ends_with(rest))
        };
        assert!(word(0, 0, ">a</text>") && word(3, 0, ">&lt;b&gt;</text>"), "{picture}");
        assert!(word(0, 1, "fill=\"#e06c75\" font-weight=\"bold\">red</text>"), "{picture}");
        assert!(word(4, 1, "fill=\"#1b1f24\">back</text>"), "{picture}");
        assert_eq!(picture.matches("<rect").count(), 2, "{picture}");
    }
}
