//! The CRC32c seam: one function, chosen here and checked before it is trusted.
//!
//! Owns no state.

/// CRC32c over `octets`, continuing from `crc` (0 to begin); the signature that the core wants.
// RFC 5044 4.4 [MPA-07]
pub(crate) fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

/// Whether the kernel gives the check value of RFC 3720 B.4, whole and in pieces.
pub(crate) fn works() -> bool {
    let digits = b"123456789";
    let (head, tail) = digits.split_at(4);
    let long = [0xffu8; 1027];
    let pieces = long.chunks(100).fold(0, crc32c);
    crc32c(0, digits) == 0xe306_9283
        && crc32c(crc32c(0, head), tail) == 0xe306_9283
        && crc32c(0, &[0; 32]) == 0x8a91_36aa
        && crc32c(0, &long) == pieces
}

#[cfg(test)]
mod tests {
    // RFC 3720 B.4
    #[test]
    fn check_values() {
        assert!(super::works());
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(super::crc32c(0, &ascending), 0x46dd_794e);
        assert_eq!(super::crc32c(0, &[0xff; 32]), 0x62a8_ab43);
    }
}
