//! Parses `programs.toml`: the list of unmodified verbs programs and their command lines.

use serde::Deserialize;

/// One program, or the two sides of one.
#[derive(Clone, Debug)]
pub struct Program {
    /// The group.
    pub row: u32,
    /// Its name.
    pub name: String,
    /// The package of Debian that has it.
    pub package: String,
    /// The command line of the side that listens.
    pub server: Option<String>,
    /// The command line of the other, or of the only one.
    pub client: String,
    /// Whether the server must be killed.
    pub is_endless: bool,
    /// Whether tests run it.
    pub is_short: bool,
    /// How often the command runs it.
    pub times: u32,
    /// A text that the client must print.
    pub shows: Option<String>,
    /// The option of `warpline run` that its client needs, or it if it has one process.
    pub needs: Option<String>,
    /// The option that its server needs.
    pub server_needs: Option<String>,
    /// The list of `wheels` whose Python environment `{wheel}` is.
    pub wheel: Option<String>,
    /// Whether its server opens no TCP port.
    pub is_unseen: bool,
    /// What the server prints when the client may start.
    pub ready: Option<String>,
    /// A compiler, and the file in `c` of which it makes `{program}`.
    pub source: Option<(String, String)>,
    /// Linker options beyond libdl.
    pub links: Vec<String>,
    /// A header that it needs to be compiled.
    pub header: Option<String>,
}

#[derive(Deserialize)]
struct File {
    program: Vec<Entry>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    row: u32,
    name: String,
    package: String,
    server: Option<String>,
    client: String,
    serves: Option<Serves>,
    #[serde(default = "once")]
    each: Vec<String>,
    #[serde(default = "once")]
    with: Vec<String>,
    #[serde(default)]
    short: bool,
    #[serde(default = "one")]
    times: u32,
    shows: Option<String>,
    needs: Option<String>,
    server_needs: Option<String>,
    wheel: Option<String>,
    listens: Option<Listens>,
    ready: Option<String>,
    compiler: Option<String>,
    source: Option<String>,
    #[serde(default)]
    links: Vec<String>,
    header: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
enum Serves {
    #[serde(rename = "for ever")]
    ForEver,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Listens {
    Unseen,
}

fn once() -> Vec<String> {
    vec![String::new()]
}

fn one() -> u32 {
    1
}

/// All programs, in the order of the file.
pub fn all() -> Vec<Program> {
    let file: File = toml::from_str(include_str!("../programs.toml")).unwrap();
    file.program.iter().flat_map(spread).collect()
}

fn spread(entry: &Entry) -> Vec<Program> {
    let pairs = entry.each.iter().flat_map(|each| entry.with.iter().map(move |with| (each, with)));
    pairs.map(|(each, with)| one_of(entry, each, with)).collect()
}

fn one_of(entry: &Entry, each: &str, with: &str) -> Program {
    let fill = |text: &String| {
        let text = text.replace("{each}", each).replace("{with}", with);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    Program {
        row: entry.row,
        name: fill(&entry.name),
        package: entry.package.clone(),
        server: entry.server.as_ref().map(fill),
        client: fill(&entry.client),
        is_endless: entry.serves.is_some(),
        is_short: entry.short,
        times: entry.times,
        shows: entry.shows.clone(),
        needs: entry.needs.clone(),
        server_needs: entry.server_needs.clone(),
        wheel: entry.wheel.clone(),
        is_unseen: entry.listens.is_some(),
        ready: entry.ready.clone(),
        links: entry.links.clone(),
        header: entry.header.clone(),
        source: entry.compiler.clone().zip(entry.source.clone()),
    }
}
