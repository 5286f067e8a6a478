//! The command `spec`: prints the tables of requirements and functions, checks them, checks the
//! house.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpline_spec::lints::{arrows, circles, constants, house, pages, table};
use warpline_spec::trace::report::{Report, Style};
use warpline_spec::trace::requirements::RequirementLists;
use warpline_spec::trace::{contract, functions, scan};
use warpline_spec::{Error, source, workspace_root};

/// Which requirement is met where and tested by what; rules of the house.
#[derive(Parser)]
#[command(name = "spec", version, args_conflicts_with_subcommands = true)]
struct Cli {
    /// Print nothing but what is wrong; exit status 1 if anything is
    #[arg(long)]
    check: bool,
    /// Print the table as Markdown
    #[arg(long, conflicts_with = "check")]
    markdown: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Check which crate and which file depends on which, where `unsafe` stands, and the other rules of
    /// the house
    Arrows {
        /// Write the table of crates into ARCHITECTURE.md, and the pages made from chapters
        #[arg(long)]
        write: bool,
    },
    /// Print each promise of the provider interface with its cases and seeded faults
    Contract,
    /// Print, as Markdown, which test calls each function of the C header
    Functions {
        /// Print nothing but what is missing; exit status 1 if anything is
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let findings = match cli.command {
        Some(Command::Arrows { write: true }) => {
            let root = workspace_root();
            table::write(&root).and_then(|()| pages::write(&root)).map(|()| Vec::new())
        }
        Some(Command::Arrows { write: false }) => check_house(),
        Some(Command::Functions { check }) => table_of_functions(check),
        Some(Command::Contract) => table_of_promises(),
        None => requirements(&cli),
    };
    match findings {
        Ok(lines) if lines.is_empty() => ExitCode::SUCCESS,
        Ok(lines) => {
            for line in &lines {
                eprintln!("{line}");
            }
            eprintln!("{} findings", lines.len());
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("spec: {e}");
            ExitCode::from(2)
        }
    }
}

fn requirements(cli: &Cli) -> Result<Vec<String>, Error> {
    let root = workspace_root();
    let lists = RequirementLists::load(&root.join("spec"))?;
    let report = Report::new(lists, scan::scan(&source::read_tree(&root)?));
    if !cli.check {
        print!("{}", report.table(if cli.markdown { Style::Markdown } else { Style::Plain }));
        return Ok(Vec::new());
    }
    println!("{}", report.summary());
    let promises = contract::PromiseTable::load(&root)?;
    println!("{}", promises.summary());
    let mut findings = report.findings();
    findings.extend(promises.findings());
    Ok(findings)
}

fn table_of_promises() -> Result<Vec<String>, Error> {
    print!("{}", contract::PromiseTable::load(&workspace_root())?.text());
    Ok(Vec::new())
}

fn table_of_functions(check: bool) -> Result<Vec<String>, Error> {
    let root = workspace_root();
    let sources = source::read_tree(&root)?;
    let table = functions::FunctionTable::new(&root, &sources)?;
    if !check {
        print!("{}", table.markdown());
        return Ok(Vec::new());
    }
    println!("{}", table.summary());
    let mut findings = table.findings();
    findings.extend(constants::findings(&sources));
    Ok(findings)
}

fn check_house() -> Result<Vec<String>, Error> {
    let root = workspace_root();
    let sources = source::read_tree(&root)?;
    let workspace = arrows::read(&root)?;
    let mut findings = arrows::findings(&workspace);
    findings.extend(arrows::confined(&sources));
    findings.extend(circles::findings(&root, &workspace, &sources));
    findings.extend(house::findings(&sources));
    findings.extend(table::findings(&root, &workspace)?);
    findings.extend(pages::findings(&root)?);
    let (crates, arrows) = (workspace.crates.len(), workspace.arrows.len());
    println!("{crates} crates, {arrows} arrows, {} files", sources.len());
    Ok(findings)
}
