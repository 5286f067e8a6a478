//! ual
