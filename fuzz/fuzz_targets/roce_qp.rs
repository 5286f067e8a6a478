//! Fuzz target: passes libFuzzer's input to the body of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| warpline_fuzz_bodies::roce_qp::run(octets));
