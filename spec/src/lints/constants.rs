//! Check that the constants of the C header and those of its Rust mirror are equal.

use std::collections::BTreeMap;

use crate::source::Source;

const HEADERS: &str = "itapi/c/include/itapi/";
const MIRROR: &[&str] = &["itapi/c/src/types/numbers.rs", "itapi/c/src/status.rs"];

/// Numbers that differ between the Rust side and the header.
pub fn findings(sources: &[Source]) -> Vec<String> {
    let mut header: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.path.starts_with(HEADERS)) {
        for (name, value) in numbers(source) {
            // The Zurich layout gives some names a second value.
            header.entry(name).or_default().push(value);
        }
    }
    let mut out = Vec::new();
    for source in sources.iter().filter(|s| MIRROR.contains(&s.path.as_str())) {
        for (name, value) in numbers(source) {
            match header.get(name) {
                Some(values) if values.contains(&value) => {}
                Some(values) => out.push(format!(
                    "{}: {name} is {value:#x}, but {:#x} in the header",
                    source.path, values[0]
                )),
                None => out.push(format!("{}: {name} is not in the header", source.path)),
            }
        }
    }
    out
}

/// `IT_NAME = 12,`, decimal or hexadecimal.
fn numbers(source: &Source) -> impl Iterator<Item = (&str, u64)> {
    (0..source.lines.len()).filter_map(|n| {
        let (name, rest) = source.split(n).0.split_once(" = ")?;
        let digits: &str = rest.split([',', ' ', ';']).next()?.trim();
        let value = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        Some((name.trim(), value.ok()?)).filter(|(name, _)| name.starts_with("IT_"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Language;

    #[test]
    fn a_wrong_and_a_strange_number_are_findings() {
        let header = "    IT_A = 0x10, /**< ten */\n    IT_B = 2\n    IT_ALL = IT_A | IT_B,\n";
        let mirror = "    IT_A = 0x10,\n    IT_B = 3,\n    IT_C = 4, \"text\";\n";
        let sources = [
            Source::new("itapi/c/include/itapi/values.h", Language::C, header),
            Source::new("itapi/c/src/status.rs", Language::Rust, mirror),
        ];
        assert_eq!(
            findings(&sources),
            [
                "itapi/c/src/status.rs: IT_B is 0x3, but 0x2 in the header",
                "itapi/c/src/status.rs: IT_C is not in the header",
            ]
        );
    }
}
