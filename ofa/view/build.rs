//! Makes the link by which `warpline run` finds the library.

fn main() -> Result<(), ofa_symbols::BuildError> {
    ofa_symbols::offer("libwarpline-view.so.1", "libwarpline_view.so")
}
