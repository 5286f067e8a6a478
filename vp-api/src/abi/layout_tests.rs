//! The layout of every struct and the order of every table: this crate, the header as gcc lays it
//! out, and the committed list `abi.txt` are the same. The list may grow at the end of a struct
//! only, with a new minor version.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{MAGIC, MAJOR, MINOR, types};

const HELD: &str = include_str!("abi.txt");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

type Layout = Vec<(&'static str, usize, Vec<(&'static str, usize)>)>;

fn layout() -> Layout {
    types::fixed::layout().into_iter().chain(types::growing::layout()).collect()
}

fn ours() -> String {
    let mut text = format!("version {MAJOR}.{MINOR} magic {MAGIC:#010x}\n");
    for (name, size, fields) in layout() {
        writeln!(text, "{name} {size}").unwrap();
        for (field, offset) in fields {
            writeln!(text, "  {offset:>4} {field}").unwrap();
        }
    }
    text
}

/// A C program that prints what `ours` says.
fn program() -> String {
    let mut c = String::from(
        "#include <stdio.h>\n#include \"rnicpi.h\"\nint main(void) {\nprintf(\"version %d.%d \
         magic %#010x\\n\", RI_MAJOR, RI_MINOR, (unsigned)RI_MAGIC);\n",
    );
    for (name, _, fields) in layout() {
        writeln!(c, "printf(\"{name} %d\\n\", (int)sizeof({name}));").unwrap();
        for (field, _) in fields {
            writeln!(c, "printf(\"  %4d {field}\\n\", (int)offsetof({name}, {field}));").unwrap();
        }
    }
    c + "return 0;\n}\n"
}

#[test]
fn the_layout_is_the_held_one() {
    assert_eq!(ours(), HELD, "if this is a new minor version, write this to abi.txt");
}

#[test]
fn c_lays_out_the_same() {
    let dir = tempdir();
    let (source, binary) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&source, program()).unwrap();
    let flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", HEADERS, "-o"];
    match Command::new("cc").args(flags).arg(&binary).arg(&source).status() {
        Err(why) => warpline_skip::skip("c_lays_out_the_same", &format!("no C compiler: {why}")),
        Ok(status) => {
            assert!(status.success());
            let output = Command::new(&binary).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), HELD);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_header_is_clean_as_old_cpp_and_c() {
    for (compiler, language, standard) in [("c++", "c++", "c++98"), ("cc", "c", "c99")] {
        let mut command = Command::new(compiler);
        command.args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-Werror"]);
        command.args(["-pedantic", "-Wno-long-long", "-fsyntax-only", "-I", HEADERS, "-"]);
        match command.stdin(Stdio::piped()).spawn() {
            Err(why) => warpline_skip::skip(language, &format!("no {compiler}: {why}")),
            Ok(mut child) => {
                let text = b"#define RI_BUILDING_PROVIDER\n#include \"rnicpi.h\"\n";
                child.stdin.take().unwrap().write_all(text).unwrap();
                assert!(child.wait().unwrap().success(), "{standard}");
            }
        }
    }
}

#[test]
fn every_struct_of_the_headers_is_held() {
    let read = |name| std::fs::read_to_string(format!("{HEADERS}/{name}")).unwrap();
    let header = read("rnicpi.h") + &read("rnicpi_ud.h");
    let named = header.lines().filter_map(|l| l.strip_prefix("typedef struct "));
    for name in named.filter(|l| l.ends_with('{')).map(|l| l.trim_end_matches(" {")) {
        assert!(layout().iter().any(|(held, ..)| *held == name), "{name}");
    }
}

fn tempdir() -> std::path::PathBuf {
    let name = format!("warpline-layout-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
