//! Selection of the copier: CRC32c computed while copying. Chosen and checked as the kernels are.
//!
//! Holds the choice. The thread that transmits calls it, under the QP's lock; the source is registered
//! memory.

use kal_os::fork::Once;
use vp_api::room;

use super::choice::{self, Candidate};
use super::portable;
use crate::tuning::CRC_TRIAL_OCTETS;

/// Copies octets and continues a CRC over the octets that it wrote; faster than one after the other.
///
/// # Safety
/// The source has as many octets as the slice and may be read, though others may write to it: a race
/// decides which octets are copied, and the CRC is that of the copied ones.
pub(crate) type Copier = unsafe fn(u32, *const u8, &mut [u8]) -> u32;

/// The fastest copier that works here, if there is one.
pub(crate) fn copier() -> Option<Copier> {
    static CHOSEN: Once<Option<Copier>> = Once::new();
    *CHOSEN.get_or_init(|| {
        let working: Vec<_> = copiers().filter(|copier| copies(copier.run)).collect();
        let Some(mut to) = room::try_filled(CRC_TRIAL_OCTETS, 0) else {
            return working.first().map(|copier| copier.run);
        };
        let run = |copier: Copier| {
            let from = std::hint::black_box(&choice::OCTETS).as_ptr();
            // SAFETY: both are `CRC_TRIAL_OCTETS` octets, of a static and of a live box.
            let crc = unsafe { copier(0, from, &mut to) };
            std::hint::black_box((crc, &to));
        };
        choice::fastest(&working, run).map(|chosen| chosen.run)
    })
}

/// In the order of preference among equals.
fn copiers() -> impl Iterator<Item = Candidate<Copier>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let own = super::fold::copiers();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let own = [const { None }; 0];
    own.into_iter().flatten()
}

/// Whether a copier copies, and returns the CRCs of the portable code.
fn copies(copier: Copier) -> bool {
    let source: [u8; 1027] = std::array::from_fn(|at| (at * 7 + at / 256) as u8);
    [0, 1, 100, 256, 300, source.len()].into_iter().all(|len| {
        let mut copy = [0; 1027];
        // SAFETY: both are `len` octets of live slices.
        let crc = unsafe { copier(len as u32, source.as_ptr(), &mut copy[..len]) };
        copy[..len] == source[..len] && crc == portable(len as u32, &source[..len])
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    // Every length around the limits of every copier, from and to every alignment; nothing is written
    // beyond the end.
    #[test]
    fn copiers_copy_and_agree() {
        let octets: Vec<u8> =
            (0..70_000u32).map(|i| (i.wrapping_mul(0x85eb_ca6b) >> 9) as u8).collect();
        for copier in copiers().map(|copier| copier.run) {
            let lens = (0..1100).chain((1100..69_000).step_by(997));
            for (n, len) in lens.enumerate() {
                let (from, to) = (n % 64, n / 7 % 64);
                let source = &octets[from..from + len];
                let mut copy = vec![0xee; to + len + 64];
                let before = (len as u32).wrapping_mul(0x9e37_79b9);
                // SAFETY: both are slices of `len` octets.
                let crc = unsafe { copier(before, source.as_ptr(), &mut copy[to..to + len]) };
                assert_eq!(crc, portable(before, source), "{len} octets");
                assert!(copy[to..to + len] == *source, "{len} octets");
                assert!(copy[..to].iter().chain(&copy[to + len..]).all(|&octet| octet == 0xee));
            }
        }
    }

    #[test]
    fn a_wrong_copier_is_not_trusted() {
        // SAFETY: the caller's promise.
        let right: Copier = |crc, from, to| unsafe {
            copy(from, to);
            portable(crc, to)
        };
        // SAFETY: the caller's promise.
        let sums_nothing: Copier = |crc, from, to| unsafe {
            copy(from, to);
            crc
        };
        assert!(copies(right));
        assert!(!copies(sums_nothing));
        assert!(!copies(|crc, _, to| portable(crc, to)));
    }

    /// # Safety
    /// As [`Copier`].
    unsafe fn copy(from: *const u8, to: &mut [u8]) {
        // SAFETY: the caller's promise; no code writes to the sources of tests.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }
}
