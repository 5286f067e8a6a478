//! Parser of the header's declarations: structs with fields and their types, types of functions, constants. It
//! reads only the C that the header uses. The C compiler checks everything found here, and so checks the parser.

use std::fmt::Write as _;

/// A field or the type of a function: name, and type without it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Typed {
    pub(super) name: String,
    pub(super) of: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<Typed>,
}

#[derive(Default)]
pub(super) struct Header {
    pub(super) structs: Vec<Struct>,
    pub(super) functions: Vec<Typed>,
    pub(super) constants: Vec<String>,
}

impl Header {
    pub(super) fn read(text: &str) -> Self {
        let text = without_comments(text);
        let mut header = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some("#define"), Some(name), Some(_)) =
                (words.next(), words.next(), words.next())
                && name.starts_with("RI_")
                && name != "RI_EXPORT"
            {
                header.constants.push(name.to_owned());
            }
        }
        let code: Vec<_> = text.lines().filter(|l| !l.trim_start().starts_with('#')).collect();
        let code = code.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        for at in code.match_indices("typedef ").map(|(at, word)| at + word.len()) {
            header.take(&code[at..]);
        }
        header
    }

    /// Parses what follows a `typedef`.
    fn take(&mut self, code: &str) {
        let Some(first) = code.find([';', '{']) else { return };
        if code[first..].starts_with('{') {
            let name = code[..first].trim_start_matches("struct ").trim().to_owned();
            let body = &code[first + 1..first + code[first..].find('}').unwrap()];
            let fields = body.split(';').flat_map(|field| declared(field.trim())).collect();
            self.structs.push(Struct { name, fields });
        } else if code[..first].contains("(*") {
            self.functions.extend(declared(code[..first].trim()));
        }
    }

    /// Everything found, as text with the header's names.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Struct { name, fields } in &self.structs {
            writeln!(text, "struct {name}").unwrap();
            fields.iter().for_each(|f| writeln!(text, "  {}: {}", f.name, f.of).unwrap());
        }
        self.functions.iter().for_each(|f| writeln!(text, "type {}: {}", f.name, f.of).unwrap());
        text
    }
}

/// The names of a declaration, each with its type.
fn declared(declaration: &str) -> Vec<Typed> {
    if let Some((before, behind)) = declaration.split_once("(*") {
        let (name, arguments) = behind.split_once(')').unwrap();
        return vec![Typed { name: name.into(), of: format!("{before}(*){arguments}") }];
    }
    let Some((first, others)) = split(declaration) else { return Vec::new() };
    let one = |name: &str| {
        let stars = name.len() - name.trim_start_matches('*').len();
        let (name, array) = match name.split_once('[') {
            Some((name, array)) => (name, format!(" [{array}")),
            None => (name, String::new()),
        };
        let of = format!("{first}{}{array}", if stars > 0 { " *" } else { "" });
        Typed { name: name.trim_start_matches('*').into(), of }
    };
    others.split(", ").map(one).collect()
}

/// A declaration's type, and its declarators.
fn split(declaration: &str) -> Option<(&str, &str)> {
    let first = declaration.split(',').next()?;
    let at = first.rfind(' ')?;
    Some((&declaration[..at], &declaration[at + 1..]))
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + " " + part.split_once("*/").map_or("", |(_, rest)| rest))
}
