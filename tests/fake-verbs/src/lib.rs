//! Plays `libibverbs.so.1` and `librdmacm.so.1`.
