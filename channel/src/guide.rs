#![doc = include_str!("../doc/guide.md")]
