//! Gives `libitapi.so` its name, its symbol versions, and nothing to export but its functions.
//!
//! rustc passes the linker a version script of its own, without versions, and linkers accept only one.
//! So the library, and only it, is linked through a small script in the build directory that passes on
//! only the last version script: ours. It runs rustc's own lld, else `$LD`, else the system's `ld`.

use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The `2`: binaries of every IT-API 2.x run with it.
const SONAME: &str = "libitapi.so.2";
const VERSIONS: &str = "itapi.map";

/// Functions of the C library, and which of `wrapped.rs` the shared library calls in their places; for
/// the archive `scripts/install` has the same list.
const WRAPPED: &[(&str, &str)] =
    &[("malloc", "itapi_wrapped_malloc"), ("realloc", "itapi_wrapped_realloc")];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={VERSIONS}");
    println!("cargo::rerun-if-env-changed=LD");
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let home = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let tools = PathBuf::from(env::var("OUT_DIR")?).join("linker");
    write_linker(&tools)?;
    // The C compiler that drives linking looks for `ld.bfd` in the directories of -B first.
    let arguments = [
        "-fuse-ld=bfd".to_owned(),
        format!("-B{}/", tools.display()),
        // Its threads still run after a `dlclose`.
        "-Wl,-z,nodelete".to_owned(),
        format!("-Wl,-soname,{SONAME}"),
        format!("-Wl,--version-script={}", home.join(VERSIONS).display()),
    ];
    let wrapped = WRAPPED.iter().flat_map(|(theirs, ours)| {
        [format!("-Wl,--wrap={theirs}"), format!("-Wl,--defsym=__wrap_{theirs}={ours}")]
    });
    // Without this function Rust's library keeps its own list of what a thread does at its end; the C
    // library's ends the process when there is no memory for an entry.
    let own_list = "-Wl,--defsym=__cxa_thread_atexit_impl=0".to_owned();
    for argument in arguments.into_iter().chain(wrapped).chain([own_list]) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    Ok(())
}

fn write_linker(tools: &Path) -> Result<(), Box<dyn Error>> {
    let linker = match rustc_lld()? {
        Some(lld) => format!("'{}'", lld.display()),
        None => env::var("LD").unwrap_or_else(|_| "ld".to_owned()),
    };
    let script = format!(
        r#"#!/bin/sh
for argument; do
    shift
    case $argument in
    --version-script=*) versions=$argument ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {linker} "$@" "$versions"
"#
    );
    fs::create_dir_all(tools)?;
    let path = tools.join("ld.bfd");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The lld of rustc, if it has one.
fn rustc_lld() -> Result<Option<PathBuf>, Box<dyn Error>> {
    let rustc = env::var("RUSTC")?;
    let output = Command::new(rustc).args(["--print", "sysroot"]).output()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout)?.trim_end());
    let tools = sysroot.join("lib/rustlib").join(env::var("HOST")?).join("bin/gcc-ld");
    Ok(Some(tools.join("ld.lld")).filter(|lld| lld.exists()))
}
