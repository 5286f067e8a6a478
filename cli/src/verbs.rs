//! `warpline verbs`: finds Warpline's libibverbs and librdmacm, beside this program. No state.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::error::{CliError, CliResult, Exit};

/// Names by which programs load them.
pub(crate) const SONAMES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// Name of the library that redirects programs to a view of the devices.
const VIEW: &str = "libwarpline-view.so.1";

/// Name of the library that follows TCP connections.
const SOCKETS: &str = "libwarpline-sockets.so.1";

/// Directories of the libraries, relative to that of this program: as built by cargo, as installed.
const PLACES: [&str; 2] = ["verbs", "../lib/warpline/verbs"];

/// Options of `warpline verbs`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct VerbsArgs {
    /// Print the directory of libibverbs.so.1 and librdmacm.so.1, for LD_LIBRARY_PATH
    #[arg(long)]
    libdir: bool,
}

pub(crate) fn run(args: &VerbsArgs, out: &mut dyn Write) -> CliResult<()> {
    if args.libdir {
        out.write_all(Libraries::find()?.directory().as_os_str().as_bytes())?;
        writeln!(out)?;
    }
    Ok(())
}

/// The directory of the two libraries.
#[derive(Clone)]
pub(crate) struct Libraries(PathBuf);

impl Libraries {
    /// Finds them; the error lists the directories searched.
    pub(crate) fn find() -> CliResult<Self> {
        let program = std::env::current_exe().and_then(|path| path.canonicalize());
        let program =
            program.map_err(|e| CliError::input(format!("cannot find this program: {e}")))?;
        let beside = program.parent().unwrap_or(Path::new("/"));
        let places = PLACES.map(|place| beside.join(place));
        let whole = |place: &&PathBuf| SONAMES.iter().all(|name| place.join(name).exists());
        if let Some(directory) = places.iter().find(whole) {
            return Ok(Self(directory.canonicalize().unwrap_or_else(|_| directory.clone())));
        }
        let places = places.map(|place| place.display().to_string()).join(", ");
        Err(CliError::new(Exit::Input, format!("there are no {} here", SONAMES.join(" and ")))
            .because(format!("they are not in {places}"))
            .hint("cargo build --release -p ofa-ibverbs -p ofa-rdmacm, or scripts/install-verbs"))
    }

    /// Those in this directory.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// The directory of both.
    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// The library that redirects programs to a view of the devices.
    pub(crate) fn view(&self) -> CliResult<PathBuf> {
        self.beside(VIEW, "ofa-view")
    }

    /// The library that follows TCP connections.
    pub(crate) fn sockets(&self) -> CliResult<PathBuf> {
        self.beside(SOCKETS, "warpline-sockets")
    }

    fn beside(&self, name: &str, package: &str) -> CliResult<PathBuf> {
        let file = self.0.join(name);
        if file.exists() {
            return Ok(file);
        }
        Err(CliError::new(Exit::Input, format!("there is no {}", file.display()))
            .hint(format!("cargo build --release -p {package}, or scripts/install-verbs")))
    }

    /// Their files.
    pub(crate) fn files(&self) -> [PathBuf; 2] {
        SONAMES.map(|name| self.0.join(name))
    }
}
