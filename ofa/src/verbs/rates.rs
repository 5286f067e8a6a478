//! Conversions between `enum ibv_rate`, multiples of 2.5 Gbit/s and Mbit/s (ibv_rate_to_mult(3),
//! ibv_rate_to_mbps(3)).

use std::ffi::{c_int, c_uint};

/// Code, multiple of 2.5 Gbit/s (-1: none), and Mbit/s.
const RATES: [(c_uint, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `IBV_RATE_MAX`, for what is not in the table.
const MAX: c_uint = 0;

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_rate_to_mult(rate: c_uint) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(_, mult, _)| *mult)
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_mult_to_ibv_rate(mult: c_int) -> c_uint {
    RATES.iter().find(|(_, m, _)| *m == mult && mult > 0).map_or(MAX, |(code, ..)| *code)
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_rate_to_mbps(rate: c_uint) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(.., mbps)| *mbps)
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_mbps_to_ibv_rate(mbps: c_int) -> c_uint {
    RATES.iter().find(|(.., m)| *m == mbps).map_or(MAX, |(code, ..)| *code)
}
