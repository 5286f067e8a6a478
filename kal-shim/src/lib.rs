//! kal-shim
