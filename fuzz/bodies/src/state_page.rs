//! Reads a state page that anybody may have written: the reader never panics, and finds no more queue pairs
//! than there are octets for.

use state_page::layout::SHORTEST_SLOT;
use state_page::read::{LARGEST, Page};

use crate::set_up;

/// The first octets say where the second and the third reading differ from the first, and where they end.
pub fn run(input: &[u8]) {
    let ([at, to, cut, _], octets) = set_up::<4>(input);
    let mut changed = octets.to_vec();
    if let Some(octet) = changed.get_mut(usize::from(at) * 64) {
        *octet = to;
    }
    let mut short = octets.to_vec();
    short.truncate(octets.len().saturating_sub(usize::from(cut) * 16));
    for readings in [
        [octets.to_vec(), octets.to_vec(), octets.to_vec()],
        [octets.to_vec(), octets.to_vec(), changed.clone()],
        [short.clone(), octets.to_vec(), octets.to_vec()],
        [octets.to_vec(), octets.to_vec(), short],
    ] {
        if let Ok((page, _)) = Page::read(&readings, LARGEST) {
            assert!(page.queue_pairs.len() <= octets.len() / SHORTEST_SLOT);
            assert!(!page.process.exe.chars().any(char::is_control));
        }
    }
}
