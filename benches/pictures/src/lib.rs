//! Pictures of the documentation as SVG: a bar chart of figures, and the screen of a terminal. Pure text, no state.
#![forbid(unsafe_code)]

pub mod chart;
pub mod screen;

/// Text within an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
