//! `chart CAPTION < FIGURES > SVG`: bars from the tables that `benches/peers` prints.
#![forbid(unsafe_code)]

use std::io::{Read, stdin};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let caption = std::env::args().nth(1).ok_or("usage: chart CAPTION < FIGURES > SVG")?;
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    print!("{}", warpline_pictures::chart::svg(&text, &caption)?);
    Ok(())
}
