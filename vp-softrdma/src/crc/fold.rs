//! CRC32c kernels for x86-64: carry-less multiplication for long pieces, the processor's own CRC32c
//! instruction for short ones.
//!
//! Owns nothing, any thread. A kernel is handed out only on a processor that can run it.
//!
//! # How folding works
//!
//! A lane of 128 bits stands for octets whose remainder is still to come. Moving it `n` octets on
//! multiplies it by x^(8n); modulo the polynomial that takes one product of 64 by 33 bits for each of
//! its halves. Four vectors of lanes go side by side, so that each hides the latency of the others.
//! At the end 16 octets are left that have the same remainder as the whole.

use std::arch::x86_64::*;

use super::Kernel;

/// The polynomial without its x^32, highest power first (RFC 3720 B.1).
const POLYNOMIAL: u32 = 0x1edc_6f41;
/// Shorter pieces are faster without folding.
const FOLD_MIN: usize = 256;

/// With vectors of 512 bits, if the processor has them.
pub(super) fn wide() -> Option<Kernel> {
    let able = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2");
    // SAFETY: handed out only if the processor has what `fold512` is compiled for.
    able.then_some(|crc, octets| unsafe { !fold512(!crc, octets) })
}

/// With vectors of 256 bits, if the processor has them.
pub(super) fn half() -> Option<Kernel> {
    let able = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2");
    // SAFETY: handed out only if the processor has what `fold256` is compiled for.
    able.then_some(|crc, octets| unsafe { !fold256(!crc, octets) })
}

/// Short pieces here, long ones by the portable code, which knows the same instruction.
pub(super) fn narrow() -> Option<Kernel> {
    let kernel: Kernel = |crc, octets| {
        if octets.len() >= FOLD_MIN {
            return super::portable(crc, octets);
        }
        // SAFETY: handed out only if the processor has what `serial` is compiled for.
        unsafe { !serial(!crc, octets) }
    };
    is_x86_feature_detected!("sse4.2").then_some(kernel)
}

/// The factors that move the lower and the upper half of a lane `octets` on.
const fn keys(octets: u32) -> (i64, i64) {
    (key(octets * 8 + 32), key(octets * 8 - 32))
}

/// x^`power` modulo the polynomial, with its bits reversed as those of the octets are. A product of
/// reversed numbers is one place too low: hence the shift.
const fn key(power: u32) -> i64 {
    let (mut value, mut done) = (1u32, 0);
    while done < power {
        value = (value << 1) ^ (POLYNOMIAL * (value >> 31));
        done += 1;
    }
    (value.reverse_bits() as i64) << 1
}

/// Eight octets at a time; states are CRCs before the last inversion.
#[inline]
#[target_feature(enable = "sse4.2")]
fn serial(state: u32, octets: &[u8]) -> u32 {
    let (words, rest) = octets.as_chunks();
    let step = |state, word: &[u8; 8]| _mm_crc32_u64(state, u64::from_le_bytes(*word));
    let state = words.iter().fold(u64::from(state), step) as u32;
    let (words, rest) = rest.as_chunks();
    let step = |state, word: &[u8; 4]| _mm_crc32_u32(state, u32::from_le_bytes(*word));
    let state = words.iter().fold(state, step);
    rest.iter().fold(state, |state, octet| _mm_crc32_u8(state, *octet))
}

/// The octets with the CRC so far added in front, where it belongs.
fn begin<const N: usize>(state: u32, mut octets: [u8; N]) -> [u8; N] {
    octets.iter_mut().zip(state.to_le_bytes()).for_each(|(octet, state)| *octet ^= state);
    octets
}

/// A kernel: `$name`, compiled for `$features`, over vectors of `$octets`.
macro_rules! kernel {
    ($name:ident, $features:literal, $octets:literal, $load:ident, $keys:ident, $step:ident, $store:ident) => {
        #[target_feature(enable = $features)]
        fn $name(state: u32, octets: &[u8]) -> u32 {
            let (vectors, rest) = octets.as_chunks::<$octets>();
            let (groups, singles) = vectors.as_chunks::<4>();
            let Some(([first, second, third, fourth], groups)) =
                groups.split_first().filter(|_| octets.len() >= FOLD_MIN)
            else {
                return serial(state, octets);
            };
            let (mut a, mut b) = ($load(&begin(state, *first)), $load(second));
            let (mut c, mut d) = ($load(third), $load(fourth));
            let four = $keys(const { keys(4 * $octets) });
            for [first, second, third, fourth] in groups {
                a = $step(a, four, $load(first));
                b = $step(b, four, $load(second));
                c = $step(c, four, $load(third));
                d = $step(d, four, $load(fourth));
            }
            let (two, one) = ($keys(const { keys(2 * $octets) }), $keys(const { keys($octets) }));
            let whole = $step($step(a, one, b), two, $step(c, one, d));
            let whole =
                singles.iter().fold(whole, |whole, vector| $step(whole, one, $load(vector)));
            serial(serial(0, &$store(whole)), rest)
        }
    };
}

kernel!(fold512, "avx512f,vpclmulqdq,pclmulqdq,sse4.2", 64, load512, keys512, step512, store512);
kernel!(fold256, "avx2,vpclmulqdq,pclmulqdq,sse4.2", 32, load256, keys256, step256, store256);

#[inline]
#[target_feature(enable = "avx512f")]
fn keys512(keys: (i64, i64)) -> __m512i {
    let (low, high) = keys;
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// `lanes` moved on, and `next` added.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn step512(lanes: __m512i, keys: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(lanes, keys);
    let high = _mm512_clmulepi64_epi128::<0x11>(lanes, keys);
    // All three added.
    _mm512_ternarylogic_epi64::<0x96>(low, high, next)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load512(octets: &[u8; 64]) -> __m512i {
    // SAFETY: reads 64 octets, at any alignment.
    unsafe { _mm512_loadu_si512(octets.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store512(lanes: __m512i) -> [u8; 64] {
    let mut octets = [0; 64];
    // SAFETY: writes 64 octets, at any alignment.
    unsafe { _mm512_storeu_si512(octets.as_mut_ptr().cast(), lanes) };
    octets
}

#[inline]
#[target_feature(enable = "avx2")]
fn keys256(keys: (i64, i64)) -> __m256i {
    let (low, high) = keys;
    _mm256_set_epi64x(high, low, high, low)
}

/// `lanes` moved on, and `next` added.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn step256(lanes: __m256i, keys: __m256i, next: __m256i) -> __m256i {
    let low = _mm256_clmulepi64_epi128::<0x00>(lanes, keys);
    let high = _mm256_clmulepi64_epi128::<0x11>(lanes, keys);
    _mm256_xor_si256(_mm256_xor_si256(low, high), next)
}

#[inline]
#[target_feature(enable = "avx2")]
fn load256(octets: &[u8; 32]) -> __m256i {
    // SAFETY: reads 32 octets, at any alignment.
    unsafe { _mm256_loadu_si256(octets.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store256(lanes: __m256i) -> [u8; 32] {
    let mut octets = [0; 32];
    // SAFETY: writes 32 octets, at any alignment.
    unsafe { _mm256_storeu_si256(octets.as_mut_ptr().cast(), lanes) };
    octets
}
