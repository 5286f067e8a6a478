//! Makes the link by which `warpline run --sockets` finds the library.

fn main() -> Result<(), ofa_symbols::BuildError> {
    ofa_symbols::offer("libwarpline-sockets.so.1", "libwarpline_sockets.so")
}
