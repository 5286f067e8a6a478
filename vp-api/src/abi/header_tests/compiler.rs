//! The C compiler's view of a header: generates programs that print it, and runs them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::header::{Header, Struct, Typed};

/// A program that prints sizes, offsets and values, and does not compile unless every field and every
/// function has the type that was read.
pub(super) fn program(header: &Header) -> String {
    let mut c = String::from(
        "#define RI_BUILDING_PROVIDER\n#include <stdio.h>\n#include \"rnicpi.h\"\n\
         #define IS(what, ...) _Static_assert(__builtin_types_compatible_p(__typeof__(what), \
         __VA_ARGS__), #what)\n\
         #define SAY(x) _Generic((x), char *: says, default: counts)(#x, _Generic((x), char *: (x), \
         default: (const char *)0), _Generic((x), char *: 0, default: (x)))\n\
         static void says(const char *n, const char *s, unsigned long long v) { (void)v; \
         printf(\"constant %s \\\"%s\\\"\\n\", n, s); }\n\
         static void counts(const char *n, const char *s, unsigned long long v) { (void)s; \
         printf(\"constant %s %llu\\n\", n, v); }\n\
         IS(&warpline_provider_get_ops, ri_get_ops_fn);\nIS(&warpline_provider_wrap, ri_wrap_fn);\n",
    );
    for Typed { name, of } in &header.functions {
        writeln!(c, "IS(({name})0, {of});").unwrap();
    }
    for Struct { name, fields } in &header.structs {
        for Typed { name: field, of } in fields {
            writeln!(c, "IS((({name} *)0)->{field}, {of});").unwrap();
        }
    }
    c += "int main(void)\n{\n";
    for Struct { name, fields } in &header.structs {
        writeln!(c, "printf(\"size {name} %d\\n\", (int)sizeof({name}));").unwrap();
        for Typed { name: field, .. } in fields {
            let at = format!("(int)offsetof({name}, {field})");
            writeln!(c, "printf(\"offset {name}.{field} %d\\n\", {at});").unwrap();
        }
    }
    header.constants.iter().for_each(|name| writeln!(c, "SAY({name});").unwrap());
    c + "return 0;\n}\n"
}

/// The output of a program that is compiled with the headers of a directory; `None`: no compiler.
pub(super) fn run(name: &str, program: &str, headers: &Path) -> Option<String> {
    let dir = std::env::temp_dir().join(format!("warpline-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (source, binary) = (dir.join("held.c"), dir.join("held"));
    std::fs::write(&source, program).unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(headers);
    let status = command.arg("-o").arg(&binary).arg(&source).status().ok()?;
    assert!(status.success(), "{name}: what the header says is not what the compiler sees");
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}
