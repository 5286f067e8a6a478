//! Builds the command and the verbs libraries by cargo for the running test, and runs programs with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use ofa_symbols::Library;
/// The root of the tree.
pub use warpline_artifacts::root;
use warpline_skip::skip;

/// The libraries, built.
#[derive(Clone, Debug)]
pub struct Libraries {
    results: PathBuf,
}

impl Libraries {
    /// Builds them by cargo, in the profile of the running test program.
    pub fn build() -> Self {
        Self {
            results: warpline_artifacts::command_and(&[
                "ofa-ibverbs",
                "ofa-rdmacm",
                "ofa-view",
                "warpline-sockets",
            ]),
        }
    }

    /// The directory to name in `LD_LIBRARY_PATH`.
    pub fn directory(&self) -> PathBuf {
        self.results.join("verbs")
    }

    /// The path of one library.
    pub fn file(&self, library: Library) -> PathBuf {
        self.directory().join(library.soname())
    }

    /// A command that finds them first.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_LIBRARY_PATH", self.directory());
        command
    }

    /// `warpline run`, with this option; the program follows.
    pub fn run(&self, option: Option<&str>) -> Command {
        let mut command = Command::new(self.results.join("warpline"));
        command.arg("run").args(option).arg("--");
        command
    }
}

/// Path of an installed program.
pub fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|path| path.join(program)).find(|path| path.is_file())
}

/// Whether the program of a line is installed; else reports that `test` is skipped.
pub fn is_installed(line: &str, package: &str, test: &str) -> bool {
    let name = line.split(' ').next().unwrap();
    let is = find(name).is_some();
    if !is {
        skip(&format!("{test} {name}"), warpline_skip::missing(package));
    }
    is
}

/// The library of rdma-core that the loader would take, if it is installed.
pub fn stock(library: Library) -> Option<PathBuf> {
    let list = ["ldconfig", "/sbin/ldconfig"].into_iter();
    let list = list.filter_map(|program| Command::new(program).arg("-p").output().ok()).next()?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with(library.soname()))?;
    line.split_once("=> ").map(|(_, path)| PathBuf::from(path))
}

/// rdma-core's libibverbs, if it is installed.
pub fn stock_verbs() -> Option<PathBuf> {
    stock(Library::Ibverbs)
}
