//! Tests of two ends in one process, and of peers that break the rules.

use std::cell::Cell;

use crate::end::{Corrupt, End, Side};
use crate::memory::{MIN_RING, heap};
use crate::page::{SHORT, Written};

fn ends() -> [End; 2] {
    let [maker, other] = heap::pair(MIN_RING);
    [End::new(maker, Side::Maker), End::new(other, Side::Other)]
}

fn write(end: &End, octets: &[u8]) -> Result<usize, Corrupt> {
    // SAFETY: a live slice.
    unsafe { end.write([(octets.as_ptr(), octets.len())], || {}) }
}

fn read(end: &End, len: usize) -> Result<Vec<u8>, Corrupt> {
    let mut octets = vec![0; len];
    // SAFETY: a live slice that nothing else uses.
    let done = unsafe { end.read([(octets.as_mut_ptr(), octets.len())], || {}) }?;
    octets.truncate(done);
    Ok(octets)
}

/// Octets with a long period.
fn pattern(begin: usize, len: usize) -> Vec<u8> {
    (begin..begin + len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn octets_arrive_in_order_both_ways_and_round_the_end() {
    let [near, far] = ends();
    let mut done = 0;
    // Sizes below and above the threshold of non-temporal copies, at addresses of all alignments.
    let sizes = if cfg!(miri) { vec![1, 60_000, 4097] } else { (1..20_000).step_by(997).collect() };
    for len in sizes {
        let octets = pattern(done, len);
        assert_eq!(write(&near, &octets), Ok(len));
        assert_eq!(write(&far, &octets), Ok(len));
        assert_eq!(read(&far, len).unwrap(), octets, "{len}");
        assert_eq!(read(&near, len + 1).unwrap(), octets, "{len}");
        done += len;
    }
    assert!(near.is_read().unwrap() && far.is_read().unwrap());
}

#[test]
fn pieces_are_gathered_and_scattered() {
    let [near, far] = ends();
    let (first, second) = (pattern(0, 5), pattern(5, 7));
    let pieces = [&first, &second].map(|piece| (piece.as_ptr(), piece.len()));
    // SAFETY: live slices.
    assert_eq!(unsafe { near.write(pieces, || {}) }, Ok(12));
    let (mut front, mut back) = ([0; 9], [0; 9]);
    let pieces = [front.as_mut_ptr(), back.as_mut_ptr()].map(|piece| (piece, 9));
    // SAFETY: live arrays that nothing else uses.
    assert_eq!(unsafe { far.read(pieces, || {}) }, Ok(12));
    assert_eq!([&front[..], &back[..3]].concat(), pattern(0, 12));
}

#[test]
fn short_writes_arrive_whether_read_at_once_or_later() {
    let [near, far] = ends();
    let mut done = 0;
    let mut check = |lens: &[usize], reads: &[usize]| {
        let octets = pattern(done, lens.iter().sum());
        let mut rest = &octets[..];
        near.room().unwrap();
        for len in lens {
            let now = rest.split_off(..*len).unwrap();
            assert_eq!(near.write_slice(now, || {}), Ok(*len));
        }
        if let [len] = lens
            && reads.is_empty()
        {
            let (there, mut short) = (far.octets().unwrap(), [0; SHORT]);
            assert_eq!(far.read_short(&mut short, || {}), Some(*len));
            assert_eq!((there as usize, &short[..*len]), (*len, &octets[..]));
            done += len;
            return;
        }
        let read = reads.iter().flat_map(|len| read(&far, *len).unwrap());
        assert_eq!(read.collect::<Vec<_>>(), octets, "{lens:?} {reads:?}");
        done += octets.len();
    };
    for len in (1..=SHORT + 1).cycle().take(if cfg!(miri) { 99 } else { 9999 }) {
        check(&[len.min(SHORT)], &[]);
        check(&[len], &[len + 1]);
        check(&[len], &[1, len / 2, len]);
        check(&[len, 7], &[len + 3, 9]);
        check(&[100, len], &[50, 60, 48]);
        check(&[len, 100], &[1, len + 100]);
    }
}

/// What the peer writes next to its position while it is read is not taken for what was there.
#[test]
fn octets_of_the_next_short_write_are_not_read_for_the_last() {
    use kal_os::sync::Ordering;
    let [near, far] = ends();
    near.write_slice(b"first", || {}).unwrap();
    assert_eq!(far.octets(), Ok(5));
    near.write_slice(b"other", || {}).unwrap();
    assert_eq!(far.read_short(&mut [0; SHORT], || {}), None);
    assert_eq!(read(&far, 5).unwrap(), b"first");
    assert_eq!(read(&far, 9).unwrap(), b"other");
    // More than there is room for.
    let published = &near.memory_for_tests().page().ways[0].published.0;
    let word = Written { tail: 12, short: SHORT as u32 + 1 }.word();
    published.written.store(word, Ordering::Relaxed);
    assert_eq!(far.octets(), Err(Corrupt));
    // More than it wrote since.
    let word = Written { tail: 12, short: SHORT as u32 }.word();
    published.written.store(word, Ordering::Relaxed);
    assert_eq!(read(&far, 9).unwrap().len(), 2);
}

#[test]
fn a_full_ring_takes_no_octet() {
    let [near, far] = ends();
    let octets = pattern(0, MIN_RING as usize + 1);
    assert_eq!(write(&near, &octets), Ok(MIN_RING as usize));
    assert_eq!((write(&near, &octets), near.room()), (Ok(0), Ok(0)));
    assert_eq!((near.write_slice(&octets[..8], || {}), near.has_short_room()), (Ok(0), false));
    assert_eq!(read(&far, 10).unwrap(), octets[..10]);
    assert_eq!(write(&near, &octets), Ok(10));
    assert!(!near.is_read().unwrap());
}

#[test]
fn the_end_comes_after_the_octets() {
    let [near, far] = ends();
    write(&near, b"last").unwrap();
    near.close(|| {});
    assert!(!far.is_over());
    assert_eq!(read(&far, 9).unwrap(), b"last");
    assert!(far.is_over());
}

#[test]
fn the_bell_rings_once_and_for_a_sleeper_only() {
    let [near, far] = ends();
    let rung = Cell::new(0);
    let bell = || rung.set(rung.get() + 1);
    let octets = [0; 8];
    // SAFETY: a live array that nothing else uses.
    let write = || unsafe { near.write([(octets.as_ptr(), 8)], bell) }.unwrap();
    write();
    assert_eq!(rung.get(), 0);
    assert!(far.fall_asleep(false, || {}).unwrap(), "there is something");
    read(&far, 8).unwrap();
    assert!(!far.fall_asleep(false, || {}).unwrap());
    write();
    write();
    assert_eq!(rung.get(), 1);
    read(&far, 16).unwrap();
    assert!(!far.fall_asleep(false, || {}).unwrap() && far.is_asleep());
    far.wake();
    write();
    assert_eq!(rung.get(), 1);
}

#[test]
fn the_bell_rings_for_room_when_there_is_much() {
    let [near, far] = ends();
    write(&near, &pattern(0, MIN_RING as usize)).unwrap();
    assert!(!near.fall_asleep(true, || {}).unwrap());
    let rung = Cell::new(0);
    let mut octets = vec![0; 1 << 10];
    let mut read = || {
        // SAFETY: a live slice that nothing else uses.
        unsafe { far.read([(octets.as_mut_ptr(), octets.len())], || rung.set(rung.get() + 1)) }
    };
    read().unwrap();
    assert_eq!(rung.get(), 0);
    for _ in 0..MIN_RING >> 10 {
        read().unwrap();
    }
    assert_eq!(rung.get(), 1);
    assert!(near.fall_asleep(true, || {}).unwrap(), "there is room");
}

// It would find the request, see room by the position that it knows, and clear the request although there is none.
#[test]
fn a_reader_that_falls_asleep_leaves_the_request_of_a_full_ring() {
    let [near, far] = ends();
    write(&near, &pattern(0, 8)).unwrap();
    read(&far, 8).unwrap();
    assert_eq!(write(&near, &pattern(8, 2 * MIN_RING as usize)), Ok(MIN_RING as usize));
    assert!(!near.fall_asleep(true, || {}).unwrap() && near.is_stalled());
    let rung = Cell::new(0);
    let bell = || rung.set(rung.get() + 1);
    assert!(far.fall_asleep(false, bell).unwrap(), "there is something");
    assert!(near.is_stalled() && rung.get() == 0);
    let mut octets = vec![0; MIN_RING as usize];
    // SAFETY: a live slice that nothing else uses.
    assert_eq!(unsafe { far.read([(octets.as_mut_ptr(), octets.len())], bell) }, Ok(octets.len()));
    assert!(!near.is_stalled() && rung.get() == 1);
    // Its request for octets does not cover the room that it has made since.
    assert!(!far.is_asleep());
    assert!(!far.fall_asleep(false, bell).unwrap() && far.is_asleep());
}

#[test]
fn impossible_positions_are_refused() {
    use kal_os::sync::Ordering;
    for (far_off, what) in
        [(MIN_RING + 9, "beyond"), (u32::MAX, "back"), (7, "back of what was seen")]
    {
        let [near, far] = ends();
        write(&near, &[0; 8]).unwrap();
        assert_eq!(far.octets(), Ok(8));
        let published = &near.memory_for_tests().page().ways[0].published.0;
        published.written.store(u64::from(far_off), Ordering::Relaxed);
        assert_eq!(far.octets(), Err(Corrupt), "tail {what}");
    }
    for (far_off, what) in [(9, "beyond"), (u32::MAX, "back"), (3, "back of what was seen")] {
        let [near, far] = ends();
        write(&near, &[0; 8]).unwrap();
        read(&far, 4).unwrap();
        assert_eq!(near.room(), Ok(MIN_RING - 4));
        far.memory_for_tests().page().ways[0].head.0.store(far_off, Ordering::Relaxed);
        assert_eq!(near.room(), Err(Corrupt), "head {what}");
    }
}

#[cfg(not(miri))]
mod memory {
    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

    use super::*;
    use crate::{MAX_RING, Refused, create, verify};

    #[test]
    fn memory_that_was_made_is_accepted() {
        for ring in [MIN_RING, 256 << 10, MAX_RING] {
            let memory = create(ring).unwrap();
            assert_eq!(verify(&memory), Ok(ring));
            let near = End::map(&memory, Side::Maker).unwrap();
            let far = End::map(&memory, Side::Other).unwrap();
            drop(memory);
            write(&near, b"here").unwrap();
            assert_eq!(read(&far, 4).unwrap(), b"here");
        }
        for ring in [0, MIN_RING / 2, MIN_RING + 1, 3 * MIN_RING, 2 * MAX_RING] {
            assert_eq!(create(ring).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_seals_hold() {
        let memory = create(MIN_RING).unwrap();
        assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
        assert!(rustix::fs::ftruncate(&memory, 1 << 30).is_err());
        assert!(rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).is_err());
        // A hole can be punched; a page of zeros replaces it.
        let end = End::map(&memory, Side::Maker).unwrap();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&memory, hole, 0, 4096).unwrap();
        assert_eq!(write(&end, b"still"), Ok(5));
    }

    #[test]
    fn memory_that_is_something_else_is_refused() {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let made = |size: u64, about: [u32; 3], seals| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memory = rustix::fs::memfd_create("other", flags).unwrap();
            rustix::fs::ftruncate(&memory, size).unwrap();
            let about = about.map(u32::to_ne_bytes);
            rustix::io::pwrite(&memory, about.as_flattened(), 0).unwrap();
            rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
            verify(memory).unwrap_err()
        };
        use crate::page::VERSION;
        let magic = crate::page::MAGIC;
        let size = 4096 + 2 * u64::from(MIN_RING);
        let good = [magic, VERSION, MIN_RING];
        assert_eq!(made(size, good, SealFlags::SHRINK | SealFlags::SEAL), Refused::Seals);
        assert_eq!(made(size, good, sealed | SealFlags::FUTURE_WRITE), Refused::Seals);
        assert_eq!(made(size + 1, good, sealed), Refused::Size);
        assert_eq!(made(size - 1, good, sealed), Refused::Size);
        assert_eq!(made(size, [magic, VERSION, 2 * MIN_RING], sealed), Refused::Size);
        assert_eq!(made(4096, [magic, VERSION, 0], sealed), Refused::Size);
        assert_eq!(made(size, [magic, VERSION + 1, MIN_RING], sealed), Refused::Version);
        assert_eq!(made(size, [0, 1, MIN_RING], sealed), Refused::Magic);
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert_eq!(verify(read).unwrap_err(), Refused::Kind);
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(verify(null).unwrap_err(), Refused::Kind);
    }
}

/// Its methods take `&self`, and two threads that write at once would race.
#[test]
fn an_end_belongs_to_one_thread_at_a_time() {
    trait Named<Which> {
        fn is_named() {}
    }
    struct ForSync;
    impl<T: ?Sized> Named<()> for T {}
    impl<T: ?Sized + Sync> Named<ForSync> for T {}
    // Does not compile if both implementations apply.
    <End as Named<_>>::is_named();
}

/// Two would race as two threads at one end do.
#[test]
#[cfg(not(miri))]
fn a_process_has_one_end_of_a_side() {
    let memory = crate::create(MIN_RING).unwrap();
    let map = |side| End::map(&memory, side);
    let ends = [Side::Maker, Side::Other].map(|side| map(side).unwrap());
    assert_eq!(map(Side::Maker).unwrap_err(), crate::Refused::Taken);
    drop(ends);
    map(Side::Maker).unwrap();
}

/// As if the bell had been called between two calls.
#[test]
fn a_bell_may_use_its_end() {
    let [near, far] = ends();
    let long = vec![1; MIN_RING as usize / 2];
    assert_eq!(far.fall_asleep(false, || ()), Ok(false));
    let again = Cell::new(0);
    let bell = || again.set(near.write_slice(&[2; 100], || ()).unwrap());
    assert_eq!(near.write_slice(&long, bell), Ok(long.len()));
    let mut octets = vec![0; MIN_RING as usize];
    let read = far.read_slice(&mut octets, || ()).unwrap();
    assert_eq!((read, again.get()), (long.len() + 100, 100));
    assert_eq!(octets[..read].iter().filter(|octet| **octet == 2).count(), 100);
    assert_eq!(octets[..read].iter().filter(|octet| **octet == 1).count(), long.len());
}
