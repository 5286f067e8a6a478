//! Build script of both verbs libraries: writes the files generated from the table of symbols, passes
//! soname and version nodes to the linker, and makes the links by which programs find the libraries.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

use crate::generate::{self, Machine};
use crate::table::{Library, SymbolTable, TableError};

/// Why a library cannot be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The table of symbols is wrong.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A file cannot be written.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// Not within a build script.
    #[error("no variable {0}: this is for a build script that cargo runs")]
    Variable(&'static str),
    /// A processor for which there are no trampolines.
    #[error("no trampolines for {0}: there are those of x86_64 and aarch64")]
    Machine(String),
    /// The stub library cannot be linked.
    #[error("`{command}` failed ({why}); is a C compiler installed?")]
    Compiler {
        /// What was run.
        command: String,
        /// How it ended.
        why: String,
    },
}

/// Does everything that a library's build script has to do.
///
/// # Errors
///
/// See [`BuildError`].
pub fn build(library: Library) -> Result<(), BuildError> {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| env::var(name).map_err(|_| BuildError::Variable(name));
    let out = PathBuf::from(variable("OUT_DIR")?);
    let machine = variable("CARGO_CFG_TARGET_ARCH")?;
    let machine = Machine::named(&machine).ok_or(BuildError::Machine(machine))?;
    let table = SymbolTable::own()?;
    let versions = out.join("versions.map");
    write(&versions, &generate::versions(&table, library))?;
    write(&out.join("trampolines.rs"), &generate::trampolines(&table, library, &machine))?;
    for argument in [
        format!("-Wl,--version-script={}", versions.display()),
        format!("-Wl,-soname,{}", library.soname()),
        // Programs unload it while its threads run.
        "-Wl,-z,nodelete".to_owned(),
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    if library == Library::Rdmacm {
        let stand_in = link_stand_in(&table, &out)?;
        println!("cargo::rustc-cdylib-link-arg={}", stand_in.display());
    }
    // Some programs load it by the name for compilers, which would find another beside rdma-core's headers.
    offer(library.soname().trim_end_matches(".1"), library.artifact())?;
    offer(library.soname(), library.artifact())
}

/// Makes `verbs/NAME` in the directory of cargo's results, a link to what cargo makes there: nowhere else, so
/// that only programs that look for the library by its path.
///
/// # Errors
///
/// [`BuildError::File`], [`BuildError::Variable`].
pub fn offer(name: &str, artifact: &str) -> Result<(), BuildError> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|_| BuildError::Variable("OUT_DIR"))?);
    // PROFILE/build/PACKAGE-HASH/out -> PROFILE
    let Some(results) = out.ancestors().nth(3) else { return Ok(()) };
    let directory = results.join("verbs");
    fs::create_dir_all(&directory).map_err(failed(&directory))?;
    let link = directory.join(name);
    let target = Path::new("..").join(artifact);
    if fs::read_link(&link).is_ok_and(|there| there == target) {
        return Ok(());
    }
    match fs::remove_file(&link) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(failed(&link)(why)),
        _ => symlink(target, &link).map_err(failed(&link)),
    }
}

/// A stub with the soname and symbols of the first library, for linking the second: cargo builds the two
/// in any order.
fn link_stand_in(table: &SymbolTable, out: &Path) -> Result<PathBuf, BuildError> {
    let at = |name: &str| out.join(name);
    let (source, versions, library) =
        (at("stand_in.s"), at("stand_in.map"), at("libibverbs_stand_in.so"));
    write(&source, &generate::stand_in(table))?;
    write(&versions, &generate::stand_in_versions())?;
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&source);
    command.arg(format!("-Wl,--version-script={}", versions.display()));
    command.arg(format!("-Wl,-soname,{}", Library::Ibverbs.soname()));
    let text = format!("{command:?}");
    let failed = |why: String| BuildError::Compiler { command: text, why };
    match command.output() {
        Err(why) => Err(failed(why.to_string())),
        Ok(output) if output.status.success() => Ok(library),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    fs::write(path, text).map_err(failed(path))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BuildError {
    move |why| BuildError::File { path: path.to_owned(), why }
}
