//! Commands of a tester to `warpline conform --serve`, in private data and in messages. No state.

use itapi::RemoteRange;

/// Beginning of the private data of the target's Reply, and of a Request with its configuration.
pub(super) const MAGIC: &[u8; 4] = b"WLC1";

/// Octets of each receive that the target posts.
pub(super) const MESSAGE: usize = 64;

/// The same with RoCE: some packets.
pub(super) const LONG_MESSAGE: usize = 8192;

/// The target's configuration in a Request: how many receives to post, and whether to send first.
pub(super) fn target_request(receives: u8, speak: bool) -> Vec<u8> {
    [&MAGIC[..], &[receives, speak.into()]].concat()
}

/// A message that is a command: `r` read, `w` write and then send a message, `s` send `number` octets, `d`
/// disconnect, `a` abort. The target posts `number` Reads at once and discards their octets. With RoCE also `i` write with
/// immediate data, `f` fetch and add 7, `c` compare with 7 and swap in 9, `v` send and invalidate the range's key, `e` send
/// a solicited message, `n` post this receive and `number` more a little later.
pub(super) fn command(letter: u8, number: u8, range: RemoteRange) -> Vec<u8> {
    [&[b'!', letter, number][..], &range.to_octets()].concat()
}
