//! The bridge to rdma-core does not take a library of Warpline's with rdma-core's soname for rdma-core.

#![allow(clippy::unwrap_used)] // a test fails loudly

use std::path::PathBuf;
use std::process::Command;

use vp_api::Provider;
use vp_verbs::{Libraries, Machine, Verbs};
use warpline_skip::skip;

/// A library with one symbol; `None`: no compiler.
fn library(name: &str, symbol: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let path =
        |ending: &str| test.with_file_name(format!("{name}-{}.{ending}", std::process::id()));
    let (source, library) = (path("c"), path("so"));
    std::fs::write(&source, format!("const int {symbol} = 1;\n")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let built = cc.status().ok()?;
    assert!(built.success(), "{cc:?}");
    Some(library)
}

fn why_not(verbs: PathBuf) -> String {
    let libraries = Libraries { rdmacm: verbs.clone(), verbs };
    Verbs::with(libraries, Machine::default()).devices().unwrap_err().to_string()
}

#[test]
fn a_library_of_our_own_is_refused_by_its_marker() {
    let Some(own) = library("own", "warpline_own_library") else {
        return skip("a library of our own in place of rdma-core's", warpline_skip::missing("gcc"));
    };
    let why = why_not(own);
    assert!(why.contains("Warpline's own library"), "{why}");
    let other = library("other", "something_else").unwrap();
    let why = why_not(other);
    assert!(why.contains("ibv_get_device_list"), "{why}");
}
