//! itapi
