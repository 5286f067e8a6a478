//! The table of C functions has no gap, and C and Rust agree about numbers.

#![forbid(unsafe_code)]

use warpline_spec::lints::constants;
use warpline_spec::trace::functions::FunctionTable;
use warpline_spec::{source, workspace_root};

#[test]
fn every_function_has_a_c_test_a_rust_test_and_a_reference() {
    let root = workspace_root();
    let sources = source::read_tree(&root).expect("the tree can be read");
    let table = FunctionTable::new(&root, &sources).expect("the list of symbols can be read");
    assert_eq!(table.findings(), Vec::<String>::new());
    assert_eq!(constants::findings(&sources), Vec::<String>::new());
}
