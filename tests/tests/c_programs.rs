//! Programs in C and C++ against the installed library: the header in every language and binding,
//! two processes, and a program for each area of functions, plain and under valgrind.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use warpline_tests::c::{Kit, Language, check, run};
use warpline_tests::skip;

const BINDINGS: [&[&str]; 3] =
    [&[], &["ITAPI_ENABLE_V20_BINDINGS"], &["ITAPI_ENABLE_V21_BINDINGS"]];
const ZURICH: &str = "ITAPI_ZRL_EXTENSIONS";

/// The installation, or `None` after saying what is missing.
fn kit(test: &str) -> Option<&'static Kit> {
    static KIT: OnceLock<Result<Kit, String>> = OnceLock::new();
    let kit = KIT.get_or_init(|| Kit::install("c-programs"));
    kit.as_ref().map_err(|reason| skip(test, reason)).ok()
}

#[test]
fn sizes_offsets_and_values_hold_in_every_language_binding_and_layout() {
    let Some(kit) = kit("the header in C and C++") else { return };
    for file in ["layout", "values"] {
        for language in Language::ALL {
            for binding in BINDINGS {
                for zurich in [&[][..], &[ZURICH]] {
                    let defines = [binding, zurich].concat();
                    kit.program(file, &[&format!("{file}.c")], language, &defines);
                }
            }
        }
    }
}

#[test]
fn two_processes_talk_whatever_they_were_compiled_with() {
    let Some(kit) = kit("ping between C programs") else { return };
    let build = |name: &str, language, defines: &[&str]| {
        kit.program(name, &["ping.c", "check.c"], language, defines)
    };
    let programs = [
        build("ping-c99", Language::C99, BINDINGS[0]),
        build("ping-cpp98", Language::Cpp98, BINDINGS[1]),
        build("ping-cpp17", Language::Cpp17, BINDINGS[2]),
        build("ping-zurich", Language::C99, &[ZURICH]),
        build("ping-zurich-cpp98", Language::Cpp98, &[ZURICH, BINDINGS[2][0]]),
    ];
    for (n, server) in programs.iter().enumerate() {
        ping(kit, server, &programs[(n + 1) % programs.len()]);
    }
}

fn ping(kit: &Kit, server: &Path, client: &Path) {
    let mut serving = kit
        .command(server)
        .arg("serve")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a compiled program starts");
    let mut said = BufReader::new(serving.stdout.take().expect("it was asked for"));
    let mut port = String::new();
    said.read_line(&mut port).expect("the server speaks");
    run(kit.command(client).args(["connect", port.trim()]));
    let mut rest = Vec::new();
    said.read_to_end(&mut rest).expect("the server ends");
    let status = serving.wait().expect("it is ours");
    check(
        &format!("{} serving {}", server.display(), client.display()),
        &std::process::Output { status, stdout: rest, stderr: Vec::new() },
    );
}

/// Compiles and runs the program of an area in a layout, plain and under valgrind.
fn area(name: &str, language: Language, defines: &[&str]) {
    let Some(kit) = kit(name) else { return };
    let program = kit.program(name, &[&format!("{name}.c"), "check.c"], language, defines);
    run(&mut kit.command(&program));
    match kit.checked_command(&program) {
        Ok(mut command) => drop(run(&mut command)),
        Err(reason) => skip(&format!("{name} under valgrind"), &reason),
    }
}

/// A test for each area, named after its file in `tests/c`.
macro_rules! areas {
    ($($name:ident: $($define:literal),*;)*) => {$(
        #[test]
        fn $name() {
            area(stringify!($name), Language::C99, &[$($define),*]);
        }
    )*};
}

areas! {
    adapter: "ITAPI_ENABLE_V21_BINDINGS";
    dispatcher: "ITAPI_ENABLE_V21_BINDINGS";
    connection: "ITAPI_ENABLE_V21_BINDINGS";
    convert: "ITAPI_ENABLE_V21_BINDINGS";
    endpoint: "ITAPI_ENABLE_V21_BINDINGS";
    memory: "ITAPI_ENABLE_V21_BINDINGS";
    version10: ;
    post: "ITAPI_ENABLE_V21_BINDINGS";
    datagram: "ITAPI_ENABLE_V21_BINDINGS";
    callers: "ITAPI_ENABLE_V21_BINDINGS";
    warpline: "ITAPI_ENABLE_V21_BINDINGS";
    zurich: "ITAPI_ENABLE_V21_BINDINGS", "ITAPI_ZRL_EXTENSIONS";
    application: "ITAPI_ENABLE_V20_BINDINGS", "ITAPI_ZRL_EXTENSIONS";
}
