//! Work request ids: encode the queue and the request of a completion.
//!
//! `notify << 63 | receive << 62 | slot << 32 | number`: the slot of the endpoint or shared receive
//! queue in the table of handles, and the number of the request in its ring. Plain numbers.

/// The id is of a receive queue.
const RECEIVE: u64 = 1 << 62;
const SLOT: u64 = (1 << 30) - 1;

/// The id of a request in the send queue (`receive`: a receive queue) of the object in `slot`.
pub(crate) fn id(slot: u32, receive: bool, number: u32, notify: bool) -> u64 {
    let receive = if receive { RECEIVE } else { 0 };
    let notify = if notify { ual::event::NOTIFY } else { 0 };
    notify | receive | (u64::from(slot) & SLOT) << 32 | u64::from(number)
}

/// The slot of an id, whether it is of a receive queue, and the number there.
#[inline]
pub(crate) fn parts(id: u64) -> (u32, bool, u32) {
    ((id >> 32 & SLOT) as u32, id & RECEIVE != 0, id as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_id_do_not_overlap() {
        let parts = [id(0, false, 0, true), id(0, true, 0, false), id(0, false, u32::MAX, false)];
        let slot = id(u32::MAX, false, 0, false);
        assert_eq!(parts.iter().fold(slot, |all, part| all | part), u64::MAX);
        assert_eq!(parts.iter().map(|part| part.count_ones()).sum::<u32>() + 30, 64);
    }
}
