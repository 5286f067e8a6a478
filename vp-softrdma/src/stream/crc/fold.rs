//! CRC32c kernels for x86-64: carry-less multiplication for long pieces, the processor's own CRC32c
//! instruction for short ones.
//!
//! No state; called from any thread. A kernel is handed out only on a processor that can run it.
//!
//! Folding keeps the multiplier busy and leaves load and store units idle, so copying at the same time
//! costs nothing. A copier reads each octet once, into a register that is both stored and summed: the
//! CRC is that of the copy, whatever others write to the source meanwhile.
//!
//! Where 256 bits are multiplied at once, the multiplier is the bottleneck, and the unit for the crc32
//! instruction is idle. The mixed kernel folds the front of a piece and meanwhile sums the three runs
//! after it with that instruction ([`streams`](super::streams)). Copies are bound by loads and stores:
//! there it did not pay, nor with 512 bits.
//!
//! # How folding works
//!
//! A lane of 128 bits stands for octets whose remainder is still to be computed. Moving it `n` octets on
//! multiplies it by x^(8n); modulo the polynomial that takes one product of 64 by 33 bits for each of
//! its halves. Four vectors of lanes are folded in parallel, so that each hides the latency of the
//! others. At the end 16 octets are left that have the same remainder as the whole.

use std::arch::asm;
use std::arch::x86_64::*;

use super::Kernel;
use super::choice::Candidate;
use super::copier::Copier;
use super::streams::{BESIDE, Streams};
use crate::tuning::{FOLD_MIN, MIX_MIN};

/// The polynomial without its x^32, highest power first (RFC 3720 B.1).
pub(super) const POLYNOMIAL: u32 = 0x1edc_6f41;

/// Octets of four vectors of the mixed kernel.
const FOUR: usize = 4 * 32;

/// The processor has the 512-bit vector instructions that are used here.
fn is_wide() -> bool {
    is_x86_feature_detected!("avx512f") && multiplies()
}

/// The same for 256 bits.
fn is_half() -> bool {
    is_x86_feature_detected!("avx2") && multiplies()
}

fn multiplies() -> bool {
    is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

/// The kernels of this processor, in the order of preference among equals.
pub(super) fn kernels() -> [Option<Candidate<Kernel>>; 4] {
    // SAFETY: handed out only if the processor has what `fold512` is compiled for.
    let wide: Kernel = |crc, octets| unsafe { !fold512(!crc, octets) };
    // SAFETY: handed out only if the processor has what `fold256` is compiled for.
    let half: Kernel = |crc, octets| unsafe { !fold256(!crc, octets) };
    // SAFETY: as above.
    let mixed: Kernel = |crc, octets| unsafe { !mix256(!crc, octets) };
    let (is_wide, is_half) = (is_wide(), is_half());
    [
        is_wide.then_some(Candidate::new("512-bit folding", wide)),
        is_half.then_some(Candidate::new("256-bit folding", half)),
        is_half.then_some(Candidate::new("256-bit folding and crc32", mixed)),
        narrow().map(|kernel| Candidate::new("crc32", kernel)),
    ]
}

/// The copiers of this processor, as [`kernels`].
pub(super) fn copiers() -> [Option<Candidate<Copier>>; 2] {
    // SAFETY: handed out only if the processor has what `copy512` is compiled for; the caller's
    // promise is its condition.
    let wide: Copier = |crc, from, to| unsafe { !copy512(!crc, from, to) };
    // SAFETY: handed out only if the processor has what `copy256` is compiled for; the caller's
    // promise is its condition.
    let half: Copier = |crc, from, to| unsafe { !copy256(!crc, from, to) };
    let (is_wide, is_half) = (is_wide(), is_half());
    [
        is_wide.then_some(Candidate::new("512-bit folding", wide)),
        is_half.then_some(Candidate::new("256-bit folding", half)),
    ]
}

/// Short pieces here; long ones by the portable code, which uses the same instruction.
fn narrow() -> Option<Kernel> {
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

/// Eight octets at a time; the state is a CRC before the final inversion.
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

/// Folds vectors of `$octets` into one, four in parallel: `$groups` of four, the first of them `$first`,
/// and `$singles` after them. `$next` makes lanes of each; `$state` is added to the first lane.
/// `$beside` is executed with every group but the first.
macro_rules! fold {
    ($state:ident, $first:ident, $groups:ident, $singles:ident, $next:ident, $octets:literal, $add:ident, $seed:ident, $keys:ident, $step:ident, $beside:expr) => {{
        let [first, second, third, fourth] = $first;
        let (mut a, mut b) = ($add($next(first), $seed($state)), $next(second));
        let (mut c, mut d) = ($next(third), $next(fourth));
        let four = $keys(const { keys(4 * $octets) });
        for [first, second, third, fourth] in $groups {
            a = $step(a, four, $next(first));
            b = $step(b, four, $next(second));
            c = $step(c, four, $next(third));
            d = $step(d, four, $next(fourth));
            $beside;
        }
        let (two, one) = ($keys(const { keys(2 * $octets) }), $keys(const { keys($octets) }));
        let whole = $step($step(a, one, b), two, $step(c, one, d));
        $singles.into_iter().fold(whole, |whole, vector| $step(whole, one, $next(vector)))
    }};
}

/// `$kernel`, and `$copier`, which copies, compiled for `$features`.
macro_rules! kernels {
    ($kernel:ident, $copier:ident, $features:literal, $octets:literal, $load:ident, $fetch:ident, $add:ident, $seed:ident, $keys:ident, $step:ident, $store:ident) => {
        #[target_feature(enable = $features)]
        fn $kernel(state: u32, octets: &[u8]) -> u32 {
            let (vectors, rest) = octets.as_chunks::<$octets>();
            let (groups, singles) = vectors.as_chunks::<4>();
            let Some((first, groups)) = groups.split_first().filter(|_| octets.len() >= FOLD_MIN)
            else {
                return serial(state, octets);
            };
            let whole =
                fold!(state, first, groups, singles, $load, $octets, $add, $seed, $keys, $step, ());
            serial(serial(0, &$store(whole)), rest)
        }

        /// # Safety
        /// As [`Copier`].
        #[target_feature(enable = $features)]
        unsafe fn $copier(state: u32, mut from: *const u8, to: &mut [u8]) -> u32 {
            let (vectors, rest) = to.as_chunks_mut::<$octets>();
            let (groups, singles) = vectors.as_chunks_mut::<4>();
            let Some((first, groups)) = groups.split_first_mut() else {
                // SAFETY: the caller's promise.
                return unsafe { copy_rest(state, from, to) };
            };
            let mut next = |to: &mut [u8; $octets]| {
                // SAFETY: `from` goes through the source as the vectors do through `to`, which is as
                // long: by the caller's promise these octets may be read.
                let lanes = unsafe { $fetch(from, to) };
                from = from.wrapping_add($octets);
                lanes
            };
            let whole =
                fold!(state, first, groups, singles, next, $octets, $add, $seed, $keys, $step, ());
            // SAFETY: as many octets are left of the source as of `to`.
            unsafe { copy_rest(serial(0, &$store(whole)), from, rest) }
        }
    };
}

/// [`fold256`] of the front, and in parallel the three runs after it.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn mix256(state: u32, octets: &[u8]) -> u32 {
    if octets.len() < MIX_MIN {
        return fold256(state, octets);
    }
    // How many groups of four vectors are folded in parallel with the runs, after the first.
    let steps = (octets.len() - FOUR) / (FOUR + BESIDE);
    let (front, rest) = octets.split_at((steps + 1) * FOUR);
    let (beside, rest) = rest.split_at(steps * BESIDE);
    let (groups, singles) = (front.as_chunks().0.as_chunks::<4>().0, []);
    let [first, groups @ ..] = groups else { return serial(state, octets) };
    let mut streams = Streams::new(beside);
    let whole = fold!(
        state,
        first,
        groups,
        singles,
        load256,
        32,
        _mm256_xor_si256,
        seed256,
        keys256,
        step256,
        streams.step()
    );
    serial(streams.join(serial(0, &store256(whole)), steps), rest)
}

/// Octet by octet.
///
/// # Safety
/// As [`Copier`].
#[target_feature(enable = "sse4.2")]
unsafe fn copy_rest(state: u32, from: *const u8, to: &mut [u8]) -> u32 {
    for (at, octet) in to.iter_mut().enumerate() {
        // SAFETY: the source has as many octets as `to`. Volatile: read once, with its value at that
        // moment.
        *octet = unsafe { from.wrapping_add(at).read_volatile() };
    }
    serial(state, to)
}

kernels!(
    fold512,
    copy512,
    "avx512f,vpclmulqdq,pclmulqdq,sse4.2",
    64,
    load512,
    fetch512,
    _mm512_xor_si512,
    seed512,
    keys512,
    step512,
    store512
);
kernels!(
    fold256,
    copy256,
    "avx2,vpclmulqdq,pclmulqdq,sse4.2",
    32,
    load256,
    fetch256,
    _mm256_xor_si256,
    seed256,
    keys256,
    step256,
    store256
);

/// Copies 64 octets, and returns them.
///
/// # Safety
/// The source may be read, though others may write to it.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn fetch512(from: *const u8, to: &mut [u8; 64]) -> __m512i {
    let lanes;
    // SAFETY: loads 64 octets, at any alignment, which by the caller's promise may be read; nothing
    // else. In assembly, since no Rust load may race, and so that there is exactly one load.
    unsafe {
        asm!("vmovdqu64 {lanes}, [{from}]", lanes = lateout(zmm_reg) lanes, from = in(reg) from,
            options(readonly, nostack, preserves_flags));
    }
    *to = store512(lanes);
    lanes
}

/// `state` in the first lane, zeros in the others.
#[inline]
#[target_feature(enable = "avx512f")]
fn seed512(state: u32) -> __m512i {
    _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn keys512(keys: (i64, i64)) -> __m512i {
    let (low, high) = keys;
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// `lanes` moved on, with `next` added.
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

/// Copies 32 octets, and returns them.
///
/// # Safety
/// The source may be read, though others may write to it.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn fetch256(from: *const u8, to: &mut [u8; 32]) -> __m256i {
    let lanes;
    // SAFETY: loads 32 octets, at any alignment, which by the caller's promise may be read; nothing
    // else. In assembly, since no Rust load may race, and so that there is exactly one load.
    unsafe {
        asm!("vmovdqu {lanes}, [{from}]", lanes = lateout(ymm_reg) lanes, from = in(reg) from,
            options(readonly, nostack, preserves_flags));
    }
    *to = store256(lanes);
    lanes
}

/// `state` in the first lane, zeros in the others.
#[inline]
#[target_feature(enable = "avx2")]
fn seed256(state: u32) -> __m256i {
    _mm256_zextsi128_si256(_mm_cvtsi32_si128(state as i32))
}

#[inline]
#[target_feature(enable = "avx2")]
fn keys256(keys: (i64, i64)) -> __m256i {
    let (low, high) = keys;
    _mm256_set_epi64x(high, low, high, low)
}

/// `lanes` moved on, with `next` added.
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
