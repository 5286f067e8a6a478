//! Encoding and decoding of every header on the wire.
