//! Generates files from the table of exported symbols: version scripts, trampolines in assembly, and a
//! stub of `libibverbs.so.1` to link `librdmacm.so.1` with.
//!
//! rustc passes a version script of its own to the linker, so nodes are declared empty and each symbol
//! names its node by `.symver`. A trampoline is a jump; `remove` keeps its own name out of the library.

use std::fmt::Write;

use crate::table::{Kind, Library, Symbol, SymbolTable};

/// The version node of symbols between our two libraries, and of the marker.
const OWN_NODE: &str = "WARPLINE_1";

/// The symbol by which the bridge to rdma-core recognises our libraries (`ibv_sys::OWN_LIBRARY`).
const MARKER: &str = "warpline_own_library";

/// The jump instruction of a processor, and its assembly syntax.
pub(crate) struct Machine {
    pub(crate) jump: &'static str,
    pub(crate) options: &'static str,
}

impl Machine {
    /// The processor with this name in Rust.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self { jump: "jmp", options: "att_syntax, raw" }),
            "aarch64" => Some(Self { jump: "b", options: "raw" }),
            _ => None,
        }
    }
}

/// A version script with all nodes of a library, without symbols.
pub(crate) fn versions(table: &SymbolTable, library: Library) -> String {
    let nodes = table.nodes(library).into_iter().chain([OWN_NODE]);
    nodes.map(|node| format!("{node} {{ }};\n")).collect()
}

/// Rust source with all exports of a library.
pub(crate) fn trampolines(table: &SymbolTable, library: Library, machine: &Machine) -> String {
    let mut text = Assembly { text: String::new(), jump: machine.jump, count: 0 };
    for symbol in table.of(library) {
        let target = match library {
            Library::Ibverbs => function(symbol),
            Library::Rdmacm => entry(&function(symbol)),
        };
        text.export(&symbol.name, &symbol.node, symbol.is_default, symbol.kind, &target);
    }
    text.export(MARKER, OWN_NODE, true, Kind::Data, "");
    if library == Library::Ibverbs {
        for function in reached(table) {
            text.export(&entry(&function), OWN_NODE, true, Kind::Works, &function);
        }
        text.hide(table);
        text.text.push_str(".section .init_array,\"aw\"\n.p2align 3\n.quad warpline_init\n");
    }
    format!("std::arch::global_asm!(r#\"\n{}\"#, options({}));\n", text.text, machine.options)
}

/// Assembly of a stub with the names that `librdmacm.so.1` needs of `libibverbs.so.1`.
pub(crate) fn stand_in(table: &SymbolTable) -> String {
    let names = reached(table).into_iter().map(|function| entry(&function));
    names.fold(String::new(), |mut text, name| {
        // Writing to a String cannot fail.
        let _ = write!(text, ".globl {name}\n.type {name}, %function\n{name}:\n.byte 0\n");
        text
    })
}

/// The version script of the stub.
pub(crate) fn stand_in_versions() -> String {
    format!("{OWN_NODE} {{ global: *; }};\n")
}

/// The function of `ofa` that implements a symbol.
fn function(symbol: &Symbol) -> String {
    match symbol.kind {
        Kind::Works => format!("warpline_{}", symbol.name),
        kind => unsupported(kind),
    }
}

fn unsupported(kind: Kind) -> String {
    format!("warpline_unsupported_{}", kind.word())
}

/// Functions of `ofa` that `librdmacm.so.1` jumps to.
fn reached(table: &SymbolTable) -> Vec<String> {
    let works = table.of(Library::Rdmacm).filter(|symbol| symbol.kind == Kind::Works);
    works.map(function).chain(Kind::UNSUPPORTED.map(unsupported)).collect()
}

/// The name under which the first library exports a function to the second.
fn entry(function: &str) -> String {
    function.replacen("warpline_", "warpline_entry_", 1)
}

struct Assembly {
    text: String,
    jump: &'static str,
    count: usize,
}

impl Assembly {
    fn export(&mut self, name: &str, node: &str, is_default: bool, kind: Kind, target: &str) {
        let at = if is_default { "@@" } else { "@" };
        let own = format!("__warpline_{}", self.count);
        self.count += 1;
        let (type_, body) = match kind {
            Kind::Data => ("object", ".byte 0".to_owned()),
            _ => ("function", format!("{} {target}", self.jump)),
        };
        let section = if kind == Kind::Data { ".data" } else { ".text" };
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "{section}\n.globl {own}\n.type {own}, %{type_}\n{own}:\n{body}\n.size {own}, . - {own}\n\
             .symver {own}, {name}{at}{node}, remove\n"
        );
    }

    /// rustc would export the functions of `ofa` by their own names.
    fn hide(&mut self, table: &SymbolTable) {
        let works = table.of(Library::Ibverbs).filter(|symbol| symbol.kind == Kind::Works);
        let mut names: Vec<_> = works.map(function).chain(reached(table)).collect();
        names.push("warpline_init".to_owned());
        for name in names {
            let _ = writeln!(self.text, ".hidden {name}");
        }
    }
}
