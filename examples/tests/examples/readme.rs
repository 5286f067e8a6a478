//! Counts the lines of connection handling that the README states for each example.

use std::path::Path;

/// Bound of the lines of connection handling.
const MOST: usize = 60;

/// Lines of the functions whose comment begins with "Connection handling:", comment included.
fn connection_lines(source: &str) -> usize {
    let marked = |line: &str| {
        line.starts_with("/// Connection handling: ")
            || line.starts_with("/* Connection handling: ")
    };
    let (mut count, mut inside) = (0, false);
    for line in source.lines() {
        inside |= marked(line);
        count += usize::from(inside);
        inside &= line != "}";
    }
    count
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The README's row: lines of connection handling in Rust and in C.
fn counted(name: &str) -> [Option<usize>; 2] {
    let rust = read(&format!("{name}.rs"));
    // Too short for separate functions: all lines count.
    let rust = match connection_lines(&rust) {
        0 => rust.lines().count(),
        some => some,
    };
    let path = format!("c/{name}.c");
    let c = Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).exists().then(|| {
        let source = read(&path);
        connection_lines(&source) + connection_lines(&read("c/example.h"))
    });
    [Some(rust), c]
}

#[test]
fn the_counts_of_the_readme_are_right() {
    let readme = read("README.md");
    for name in ["hello_rdma", "ping_pong", "rdma_copy", "late_transition", "kv", "media_pull"] {
        let counts = counted(name);
        let [rust, c] = counts.map(|count| count.map_or("-".to_owned(), |n| n.to_string()));
        let row = format!("| `{name}` | {rust} | {c} |");
        assert!(readme.contains(&row), "the README lacks: {row}");
        assert!(counts.iter().flatten().all(|&lines| lines <= MOST), "{row}");
    }
}

#[test]
fn the_ping_pong_in_c_stays_short() {
    let lines = read("c/ping_pong.c").lines().count();
    assert!(lines < 80, "c/ping_pong.c has {lines} lines");
}

/// Everything of IT-API that the program uses, types aside, is in the tables for programmers who know verbs.
#[test]
fn the_tables_suffice_for_a_program_from_verbs() {
    let (program, tables) = (read("c/from_verbs.c"), read("../docs/verbs-to-it-api.md"));
    let words = |text: &str| -> std::collections::BTreeSet<String> {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !inside(c)).map(str::to_owned).collect()
    };
    let known = words(&tables);
    let ours = |word: &&String| ["it_", "itw_", "IT_"].iter().any(|start| word.starts_with(start));
    let used = words(&program);
    let used: Vec<_> =
        used.iter().filter(ours).filter(|w| !w.ends_with("_t") && *w != "it_api").collect();
    assert!(used.len() > 25, "{used:?}");
    let missing: Vec<_> = used.iter().filter(|word| !known.contains(**word)).collect();
    assert!(missing.is_empty(), "docs/verbs-to-it-api.md lacks {missing:?}");
}

/// Lines of both sides: the functions `serve` and `connect`.
fn both_sides(source: &str) -> usize {
    let begins = |line: &str| line.starts_with("fn serve(") || line.starts_with("fn connect(");
    let (mut count, mut inside) = (0, false);
    for line in source.lines() {
        inside |= begins(line);
        count += usize::from(inside);
        inside &= line != "}";
    }
    count
}

#[test]
fn the_short_programs_stay_short() {
    let readme = read("README.md");
    for (name, most) in [("rpc", 58), ("kv_read", 31), ("transfer", 40)] {
        let count = both_sides(&read(&format!("{name}.rs")));
        assert!(count <= most, "{name}: {count} lines of both sides");
        let row = format!("| `{name}` | {count} |");
        assert!(readme.contains(&row), "the README lacks: {row}");
    }
}

/// Programs that newcomers were asked to write.
#[test]
fn the_first_programs_stay_short() {
    let readme = read("README.md");
    for (name, most) in [("chat", 55), ("counter", 46), ("stream", 36)] {
        let count = read(&format!("{name}.rs")).lines().count();
        assert!(count <= most, "{name}: {count} lines");
        let row = format!("| `{name}` | {count} |");
        assert!(readme.contains(&row), "the README lacks: {row}");
    }
}

#[test]
fn functions_are_counted_with_their_comments() {
    let source =
        "fn a() {\n}\n\n/// Connection handling: all.\n/// Of it.\nfn b() {\n    x();\n}\n}\n";
    assert_eq!(connection_lines(source), 5);
    assert_eq!(connection_lines("/* Connection handling: c. */\nint c(void)\n{\n}\n"), 4);
}
