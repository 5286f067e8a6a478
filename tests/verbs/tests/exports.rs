//! Tests that the verbs libraries export exactly the table of symbols, and all symbols of rdma-core's.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::collections::BTreeSet;
use std::process::Command;

use ofa_symbols::{Library, SymbolTable};
use verbs_programs::exports::{self, Export};
use verbs_programs::{Libraries, libraries, skip};

/// Version node of our own symbols.
const OWN: Option<&str> = Some("WARPLINE_1");

fn listed(table: &SymbolTable, library: Library) -> BTreeSet<Export> {
    let export = |symbol: &ofa_symbols::Symbol| Export {
        name: symbol.name.clone(),
        node: Some(symbol.node.clone()),
        is_default: symbol.is_default,
    };
    table.of(library).map(export).collect()
}

#[test]
fn exactly_what_is_listed_is_exported() {
    let (libraries, table) = (Libraries::build(), SymbolTable::own().unwrap());
    for library in Library::ALL {
        let all = match exports::of(&libraries.file(library)) {
            Ok(all) => all,
            Err(why) => return skip("exports of the verbs libraries", why),
        };
        let (own, others): (BTreeSet<_>, BTreeSet<_>) =
            all.into_iter().partition(|export| export.node.as_deref() == OWN);
        assert_eq!(others, listed(&table, library), "{library:?}");
        assert!(own.iter().any(|export| export.name == "warpline_own_library"), "{library:?}");
    }
}

#[test]
fn all_symbols_of_rdma_core_are_exported() {
    let table = SymbolTable::own().unwrap();
    for library in Library::ALL {
        let Some(stock) = libraries::stock(library) else {
            let package = match library {
                Library::Ibverbs => "libibverbs-dev",
                Library::Rdmacm => "librdmacm-dev",
            };
            return skip("comparison with rdma-core's exports", warpline_skip::missing(package));
        };
        let stock = match exports::of(&stock) {
            Ok(stock) => stock,
            Err(why) => return skip("comparison with rdma-core's exports", why),
        };
        let missing: Vec<_> = stock.difference(&listed(&table, library)).cloned().collect();
        // Later releases of rdma-core may export more.
        let unknown: Vec<_> = missing.iter().filter(|export| !is_of_before_2008(export)).collect();
        assert!(unknown.is_empty(), "{library:?}: {unknown:#?}");
    }
}

/// Functions with structures that `IBVERBS_1.1` replaced, and the old registration of providers.
fn is_of_before_2008(export: &Export) -> bool {
    let is_replaced = export.node.as_deref() == Some("IBVERBS_1.0");
    !export.is_default && (is_replaced || export.name == "ibv_register_driver")
}

#[test]
fn only_libraries_of_the_system_are_needed() {
    let libraries = Libraries::build();
    for library in Library::ALL {
        let read = Command::new("readelf").arg("-d").arg(libraries.file(library)).output();
        let Ok(read) = read else {
            return skip("what the verbs libraries need", warpline_skip::missing("binutils"));
        };
        let text = String::from_utf8_lossy(&read.stdout).into_owned();
        assert!(text.contains(&format!("soname: [{}]", library.soname())), "{text}");
        assert!(text.contains("NODELETE"), "{text}");
        let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
        let names = needed.filter_map(|line| line.split(['[', ']']).nth(1));
        let system = ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2"];
        let others: Vec<_> = names.filter(|name| !system.contains(name)).collect();
        let expected: &[&str] = match library {
            Library::Ibverbs => &[],
            Library::Rdmacm => &["libibverbs.so.1"],
        };
        assert_eq!(others, expected, "{text}");
    }
}
