//! Loom model: all interleavings of two ends, with rings of two octets.

use loom::sync::Arc;
use loom::thread;

use kal_os::sync::{Condvar, Mutex, UnsafeCell, lock};

use crate::end::{End, Side};
use crate::page::Page;

const SIZE: u32 = 2;

/// The octets of one ring.
pub(crate) struct Cells([UnsafeCell<u8>; SIZE as usize]);

impl Cells {
    fn cell(&self, position: u32) -> &UnsafeCell<u8> {
        &self.0[(position % SIZE) as usize]
    }

    pub(crate) fn prefetch(&self, _: u32) {}

    pub(crate) unsafe fn write(&self, position: u32, from: *const u8, len: usize, _: usize) {
        for at in 0..len {
            // SAFETY: the caller's promise.
            let octet = unsafe { from.add(at).read() };
            // SAFETY: loom reports concurrent access to the cell.
            self.cell(position + at as u32).with_mut(|cell| unsafe { *cell = octet });
        }
    }

    pub(crate) unsafe fn read(&self, position: u32, to: *mut u8, len: usize) {
        for at in 0..len {
            // SAFETY: loom reports concurrent access to the cell.
            let octet = self.cell(position + at as u32).with(|cell| unsafe { *cell });
            // SAFETY: the caller's promise.
            unsafe { to.add(at).write(octet) };
        }
    }
}

/// Memory in which loom checks every access.
#[derive(Clone)]
pub(crate) struct Model(Arc<(Page, [Cells; 2])>);

impl Model {
    fn new() -> Self {
        let ring = || Cells([UnsafeCell::new(0), UnsafeCell::new(0)]);
        Self(Arc::new((Page::default(), [ring(), ring()])))
    }

    pub(crate) fn page(&self) -> &Page {
        &self.0.0
    }

    pub(crate) fn ring_octets(&self) -> u32 {
        SIZE
    }

    pub(crate) fn octets(&self, ring: usize) -> &Cells {
        &self.0.1[ring]
    }
}

/// A model of an eventfd.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Bell {
    fn ring(&self) {
        *lock(&self.rung) = true;
        self.bell.notify_one();
    }

    fn wait(&self) {
        let mut rung = lock(&self.rung);
        while !*rung {
            rung = self.bell.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

fn ends() -> (End, End, [Arc<Bell>; 2]) {
    let memory = Model::new();
    let ends = [Side::Maker, Side::Other].map(|side| End::new(memory.clone(), side));
    let [maker, other] = ends;
    (maker, other, [Arc::default(), Arc::default()])
}

/// Writes all octets, and sleeps while there is no room.
fn write(end: &End, mut octets: &[u8], mine: &Bell, peers: &Bell) {
    while !octets.is_empty() {
        // SAFETY: a live slice.
        let done = unsafe { end.write([(octets.as_ptr(), octets.len())], || peers.ring()) };
        octets = &octets[done.unwrap()..];
        if !octets.is_empty() && !end.fall_asleep(true, || peers.ring()).unwrap() {
            mine.wait();
        }
    }
}

/// Reads until the end of the stream, and sleeps while there is nothing to read.
fn read(end: &End, mine: &Bell, peers: &Bell) -> Vec<u8> {
    let mut octets = Vec::new();
    while !end.is_over() {
        let mut octet = 0;
        // SAFETY: one live octet.
        match unsafe { end.read([(&raw mut octet, 1)], || peers.ring()) }.unwrap() {
            0 => {
                if !end.fall_asleep(false, || peers.ring()).unwrap() {
                    mine.wait();
                }
            }
            _ => octets.push(octet),
        }
    }
    octets
}

/// Octets arrive once and in order, and no end hangs, whether it waits for octets, for the end of the stream or for
/// room.
#[test]
fn loom_written_octets_are_read() {
    model(|| {
        let (maker, other, [bell, others]) = ends();
        let writer = {
            let (bell, others) = (bell.clone(), others.clone());
            thread::spawn(move || {
                write(&maker, &[1, 2, 3], &bell, &others);
                maker.close(|| others.ring());
            })
        };
        assert_eq!(read(&other, &others, &bell), [1, 2, 3]);
        writer.join().unwrap();
    });
}

/// A short write is read from the cache line of the position, or, if another has begun since, from the ring.
#[test]
fn loom_short_writes_are_read() {
    model(|| {
        let (maker, other, [bell, others]) = ends();
        let writer = {
            let others = others.clone();
            thread::spawn(move || {
                // There is room for both.
                assert_eq!(maker.write_slice(&[1], || others.ring()), Ok(1));
                assert_eq!(maker.write_slice(&[2], || others.ring()), Ok(1));
                maker.close(|| others.ring());
            })
        };
        assert_eq!(read(&other, &others, &bell), [1, 2]);
        writer.join().unwrap();
    });
}

/// The two directions share only the sleep flags.
#[test]
fn loom_both_ways_at_once() {
    model(|| {
        let (maker, other, [bell, others]) = ends();
        let there = {
            let (bell, others) = (bell.clone(), others.clone());
            thread::spawn(move || {
                write(&maker, &[1], &bell, &others);
                maker.close(|| others.ring());
                read(&maker, &bell, &others)
            })
        };
        write(&other, &[2], &others, &bell);
        other.close(|| bell.ring());
        assert_eq!(read(&other, &others, &bell), [1]);
        assert_eq!(there.join().unwrap(), [2]);
    });
}
