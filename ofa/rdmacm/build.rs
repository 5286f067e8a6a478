//! Generates exports, version nodes and links from the table of symbols.

fn main() -> Result<(), ofa_symbols::BuildError> {
    ofa_symbols::build(ofa_symbols::Library::Rdmacm)
}
