//! Selection of the CRC32c kernel: the fastest of this processor, chosen once by measuring, and checked
//! before it is trusted.
//!
//! Holds the choice. Any thread asks for it when it creates a QP; from then on the kernel is a function
//! pointer that the protocol core calls for every FPDU. Long payloads to be sent are summed while they
//! are copied, by a [`Copier`](copier::Copier).

mod choice;
mod copier;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod fold;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streams;

use choice::Candidate;
pub(crate) use choice::Chosen;
pub(crate) use copier::copier;
use kal_os::fork::Once;

/// CRC32c over octets, continuing from a CRC (0 to begin), with the signature that the core expects.
/// RFC 5044 4.4 [MPA-07]
pub(crate) type Kernel = fn(u32, &[u8]) -> u32;

/// The fastest kernel that works here.
pub(crate) fn kernel() -> Kernel {
    chosen().run
}

/// The same, with its name and the rate that was measured.
pub(crate) fn chosen() -> &'static Chosen<Kernel> {
    static CHOSEN: Once<Chosen<Kernel>> = Once::new();
    CHOSEN.get_or_init(|| {
        let run = |kernel: Kernel| {
            std::hint::black_box(kernel(0, std::hint::black_box(&choice::OCTETS)));
        };
        let working: Vec<_> = candidates().filter(|kernel| works(kernel.run)).collect();
        choice::fastest(&working, run)
            .or_else(|| choice::fastest(&[PORTABLE], run))
            .expect("one of one is the fastest")
    })
}

/// Whether there is one.
pub(crate) fn is_right() -> bool {
    works(kernel())
}

/// Ordered by preference if equally fast.
fn candidates() -> impl Iterator<Item = Candidate<Kernel>> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let own = fold::kernels();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let own = [const { None }; 0];
    own.into_iter().flatten().chain([PORTABLE])
}

const PORTABLE: Candidate<Kernel> = Candidate::new("portable", portable);

/// The kernel that runs everywhere, and that the others are tested against.
fn portable(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

/// Whether a kernel returns the check values of RFC 3720 B.4, and the same result whole and in pieces.
fn works(kernel: Kernel) -> bool {
    let digits = b"123456789";
    let (head, tail) = digits.split_at(4);
    let long = [0x5a; 1027];
    let pieces = long.chunks(100).fold(0, kernel);
    kernel(0, digits) == 0xe306_9283
        && kernel(kernel(0, head), tail) == 0xe306_9283
        && kernel(0, &[0; 32]) == 0x8a91_36aa
        && kernel(0, &long) == pieces
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Kernel> {
        candidates().map(|candidate| candidate.run)
    }

    // The kernels for the instructions that this processor has are among the candidates.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn kernels_of_the_processor_are_offered() {
        let offered = |name| candidates().any(|candidate| candidate.name == name);
        let multiplies = is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2");
        let wide = is_x86_feature_detected!("avx512f") && multiplies;
        let half = is_x86_feature_detected!("avx2") && multiplies;
        assert_eq!(offered("512-bit folding"), wide);
        assert_eq!(offered("256-bit folding"), half);
        assert_eq!(offered("256-bit folding and crc32"), half);
        assert_eq!(offered("crc32"), is_x86_feature_detected!("sse4.2"));
        let copiers = fold::copiers().map(|copier| copier.map(|copier| copier.name));
        let expected = [(wide, "512-bit folding"), (half, "256-bit folding")];
        assert_eq!(copiers, expected.map(|(has, name)| has.then_some(name)));
        assert_eq!(copier().is_some(), wide || half);
    }

    // The chosen kernel is among the candidates, and no other is faster by more than noise.
    #[test]
    fn a_working_kernel_is_chosen() {
        let chosen = chosen();
        assert!(candidates().any(|candidate| candidate.name == chosen.name));
        assert!(chosen.rate() > 0.0 && works(chosen.run));
    }

    // RFC 3720 B.4
    #[test]
    fn check_values() {
        assert!(is_right());
        let ascending: Vec<u8> = (0..32).collect();
        for kernel in all() {
            assert!(works(kernel));
            assert_eq!(kernel(0, &ascending), 0x46dd_794e);
            assert_eq!(kernel(0, &[0xff; 32]), 0x62a8_ab43);
        }
    }

    #[test]
    fn a_wrong_kernel_is_not_trusted() {
        let whole_only: Kernel = |_, octets| portable(0, octets);
        assert!(!works(|crc, _| crc) && !works(whole_only));
        // Correct except for one of the values that are checked.
        let but_digits: Kernel = |crc, octets| portable(crc, octets) ^ u32::from(octets.len() == 9);
        let but_zeros: Kernel = |crc, octets| portable(crc, octets) ^ u32::from(octets.len() == 32);
        let but_long: Kernel = |crc, octets| portable(crc, octets) ^ u32::from(octets.len() > 999);
        assert!(!works(but_digits) && !works(but_zeros) && !works(but_long));
    }

    // Every length around the limits of every kernel, at every alignment, after any CRC.
    #[test]
    fn kernels_agree_at_all_lengths_and_alignments() {
        let most = if cfg!(miri) { 80 } else { 2100 };
        let octets: Vec<u8> =
            (0..most as u32 + 64).map(|i| (i.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
        for kernel in all() {
            for len in 0..most {
                let piece = &octets[len % 64..][..len];
                let before = (len as u32).wrapping_mul(0x9e37_79b9);
                assert_eq!(kernel(before, piece), portable(before, piece), "{len} octets");
            }
            for start in 0..64 {
                let piece = &octets[start..most];
                assert_eq!(kernel(0, piece), portable(0, piece), "alignment {start}");
            }
        }
    }

    #[test]
    fn kernels_agree_on_long_pieces() {
        let octets: Vec<u8> =
            (0..70_000u32).map(|i| (i.wrapping_mul(0x85eb_ca6b) >> 9) as u8).collect();
        let most = if cfg!(miri) { 0 } else { octets.len() };
        for kernel in all() {
            // Around the shortest length of the mixed kernel, with any number of octets after the runs.
            for len in (6000..6600).filter(|len| *len < most) {
                let piece = &octets[len % 64..][..len];
                assert_eq!(kernel(7, piece), portable(7, piece), "{len} octets");
            }
            for len in (0..most).step_by(997) {
                let (head, tail) = octets.split_at(len);
                let crc = kernel(kernel(0, head), tail);
                assert_eq!(crc, portable(0, &octets), "{len} octets first");
            }
        }
    }
}
