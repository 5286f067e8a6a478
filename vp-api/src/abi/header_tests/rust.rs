//! Maps a C type of the header to the Rust type that `types.rs` must have for it.

/// Opaque types, which the host only passes back.
const HANDLES: &[&str] =
    &["ri_rnic", "ri_cq", "ri_srq", "ri_qp", "ri_cm", "ri_ud", "ri_ud_qp", "ri_paths"];

/// The type, as `stringify` writes it, without blanks.
pub(super) fn of(c: &str) -> String {
    if let Some((result, arguments)) = c.split_once("(*)") {
        return format!("Option<{}>", function(result.trim(), arguments));
    }
    match c.split_once(" [") {
        Some((element, count)) => format!("[{}; {}", value(element), count),
        None if c.ends_with("_fn") => format!("Option<{}>", camel(c)),
        None => value(c),
    }
}

fn function(result: &str, arguments: &str) -> String {
    let list = arguments.trim().trim_start_matches('(').trim_end_matches(')');
    let types: Vec<String> = list.split(", ").map(|argument| of(&unnamed(argument))).collect();
    let result = if result == "void" { String::new() } else { format!("->{}", value(result)) };
    format!("unsafe extern \"C\" fn({}){result}", types.join(","))
}

/// An argument without its name.
fn unnamed(argument: &str) -> String {
    let at = argument.rfind([' ', '*']).map_or(0, |at| at + 1);
    let of = argument[..at].trim_end();
    if of.is_empty() { argument.to_owned() } else { of.to_owned() }
}

fn value(c: &str) -> String {
    let c = c.trim();
    if let Some(pointed) = c.strip_suffix('*').map(str::trim_end) {
        // A const after the star belongs to the pointer.
        if let Some(inner) = pointed.strip_suffix("const").filter(|p| p.trim_end().ends_with('*')) {
            return format!("*const {}", value(inner));
        }
        return match pointed.strip_prefix("const ") {
            Some(inner) => format!("*const {}", value(inner)),
            None => format!("*mut {}", value(pointed)),
        };
    }
    match c {
        "uint8_t" => "u8".into(),
        "uint16_t" => "u16".into(),
        "int32_t" => "i32".into(),
        "uint32_t" | "ri_status" => "u32".into(),
        "uint64_t" => "u64".into(),
        "size_t" => "usize".into(),
        "char" => "c_char".into(),
        "void" => "c_void".into(),
        handle if HANDLES.contains(&handle) => "c_void".into(),
        name => camel(name),
    }
}

/// `ri_mr_init` is `MrInit`.
fn camel(name: &str) -> String {
    let words = name.trim_start_matches("ri_").split('_');
    let upper = |word: &str| word[..1].to_uppercase() + &word[1..];
    words.map(upper).collect()
}
