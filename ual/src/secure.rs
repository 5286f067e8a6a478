//! Whether this process has more rights than the one that started it. If so, no library is loaded whose
//! name comes from the environment. No state.

/// `AT_SECURE` of the auxiliary vector (getauxval(3)).
const AT_SECURE: usize = 23;

/// True for setuid, setgid and the like, and if the kernel does not report it.
pub(crate) fn is_secure() -> bool {
    std::fs::read("/proc/self/auxv").map_or(true, |vector| says_secure(&vector))
}

fn says_secure(vector: &[u8]) -> bool {
    let word = |octets: &[u8]| octets.try_into().map(usize::from_ne_bytes).unwrap_or(0);
    let pairs = vector.chunks_exact(2 * size_of::<usize>());
    let mut pairs = pairs.map(|pair| pair.split_at(size_of::<usize>()));
    let found = pairs.find(|(key, _)| word(key) == AT_SECURE);
    found.is_none_or(|(_, value)| word(value) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_decides() {
        let vector =
            |words: &[usize]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        assert!(!says_secure(&vector(&[6, 4096, 23, 0, 0, 0])));
        assert!(says_secure(&vector(&[6, 4096, 23, 1, 0, 0])));
        assert!(says_secure(&vector(&[6, 4096])));
        assert!(!is_secure());
    }
}
