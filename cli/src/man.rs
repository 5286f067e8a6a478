//! Generates the manual pages: those of the commands from the text of `--help`, that of the configuration file
//! from the file with every key. For packages. No state.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::roff::{Roff, roman};

use crate::args::Cli;
use crate::error::{CliError, CliResult, Exit};

/// Writes `warpline.1`, a page for each command, and `warpline.toml.5`.
pub(crate) fn write(directory: &Path) -> CliResult<()> {
    let failed = |error: std::io::Error| {
        CliError::new(Exit::Failed, format!("cannot write manual pages: {error}"))
            .at(format!("man, {}", directory.display()))
            .hint("name a directory that exists and that you may write to")
    };
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    fs::write(directory.join("warpline.toml.5"), configuration()).map_err(failed)
}

/// The page of the configuration file: where it is, and the file with every key.
fn configuration() -> String {
    let title = format!("warpline {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["warpline.toml", "5", "", &title, "File formats"]);
    page.control("SH", ["NAME"]);
    page.text([roman("warpline.toml - configuration of the RDMA stack warpline")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "The file that $WARPLINE_CONFIG names, else ~/.config/warpline/warpline.toml, else \
         /etc/warpline/warpline.toml. Everything works without one. A key that does not exist is an error, with \
         line and column. This is a file with every key and its default; keys that have no default are \
         comments.",
    )]);
    page.control("SH", ["EXAMPLE"]);
    page.control("nf", []);
    for line in ual::config::SAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.render()
}
