//! An end of a ring in shared memory whose peer writes anything anywhere, also while the end reads and writes: it
//! touches nothing but its own words, the octets that it wrote and the memory that it was given; and where
//! the peer writes nothing meanwhile, every call returns the result of a model.
//!
//! Set-up octets: whether an honest process made the memory, and which side this end is; else size and seals,
//! and the memory's first octets. Then steps: an octet for the operation, and its operands.

mod ends;
mod memory;

use std::cell::{Cell, RefCell};

use shm_ring::{Corrupt, End, MAX_RING, MIN_RING, SHORT, Side, verify};

use crate::set_up;
use memory::{Memory, PAGE, WORDS, Way};

/// Steps of an input.
const MOST: usize = 64;

/// Runs one input.
pub fn run(input: &[u8]) {
    let ([kind, size, seals, octets], mut script) = set_up::<4>(input);
    let (memory, side) = match kind % 3 {
        0 => (Memory::honest(), Side::Maker),
        1 => (Memory::honest(), Side::Other),
        _ => {
            let (beginning, rest) = script.split_at(script.len().min(12));
            script = rest;
            let memory = Memory::any(size_of(size, octets), beginning, seals & 0x1f);
            (memory, Side::Other)
        }
    };
    let ring = match (verify(&memory.file), kind % 3) {
        (Ok(ring), _) => ring,
        (Err(_), 2) => {
            assert!(End::map(&memory.file, side).is_err());
            return;
        }
        (Err(refused), _) => panic!("{refused}"),
    };
    assert!(ring.is_power_of_two() && (MIN_RING..=MAX_RING).contains(&ring));
    let end = End::map(&memory.file, side).expect("it was verified");
    assert_eq!((end.ring_octets(), memory.ring()), (ring, ring));
    let mut play = Play::new(end, memory, side);
    for _ in 0..MOST {
        if play.step(&mut script).is_none() {
            break;
        }
    }
    play.ends();
}

/// Sizes near those that are right, and others.
fn size_of(size: u8, octets: u8) -> u64 {
    let right = PAGE as u64 + (u64::from(MIN_RING) << (1 + (size & 7)));
    match size >> 6 {
        0 => right,
        1 => right + u64::from(octets),
        2 => right - u64::from(octets),
        _ => u64::from(octets) << (size & 15),
    }
}

/// Takes the operands of a step off; zeros where the script ends.
fn take<const N: usize>(script: &mut &[u8]) -> [u8; N] {
    let (operands, rest) = set_up::<N>(script);
    *script = rest;
    operands
}

fn long(octets: [u8; 4]) -> u32 {
    u32::from_le_bytes(octets)
}

/// An end, its memory, and what the end must know.
struct Play {
    end: End,
    memory: RefCell<Memory>,
    out: usize,
    tail: u32,
    /// Position of the peer that was seen last.
    read: u32,
    head: u32,
    /// The head when it fell asleep last.
    slept_at: u32,
    written: u32,
    /// So many octets before that position were next to it.
    short: u32,
    /// What the peer writes to the page while a call is under way, the last one first.
    meanwhile: RefCell<Vec<(usize, u32)>>,
    bells: Cell<u32>,
    /// The end knows that the peer broke the rules.
    corrupt: bool,
    seed: u8,
}

impl Play {
    fn new(end: End, memory: Memory, side: Side) -> Self {
        let out = usize::from(side == Side::Other);
        let (memory, meanwhile) = (RefCell::new(memory), RefCell::default());
        let (tail, read, head, slept_at, written, short) = (0, 0, 0, 0, 0, 0);
        let (bells, corrupt, seed) = (Cell::new(0), false, 0);
        Self {
            end,
            memory,
            out,
            tail,
            read,
            head,
            slept_at,
            written,
            short,
            meanwhile,
            bells,
            corrupt,
            seed,
        }
    }

    fn way_out(&self) -> Way {
        Way::new(self.out)
    }

    fn way_in(&self) -> Way {
        Way::new(1 - self.out)
    }

    fn word(&self, at: usize) -> u32 {
        self.memory.borrow().word(at)
    }

    fn put(&self, at: usize, word: u32) {
        self.memory.borrow_mut().put(at & !3, &word.to_ne_bytes());
    }

    /// The peer's next write while a call is under way.
    fn interrupt(&self) {
        if let Some((at, word)) = self.meanwhile.borrow_mut().pop() {
            self.put(at, word);
        }
    }

    fn bell(&self) {
        self.bells.set(self.bells.get() + 1);
        self.interrupt();
    }

    /// One step; `None`: the script is over, or the stream would be.
    fn step(&mut self, script: &mut &[u8]) -> Option<()> {
        if script.is_empty() || self.corrupt {
            return None;
        }
        let [step] = take(script);
        match step % 14 {
            0 => self.write(take(script)),
            1 => self.read(take(script)),
            2 => {
                let [low, high, word @ ..] = take::<6>(script);
                let at = usize::from(u16::from_le_bytes([low, high])) % WORDS;
                self.put(at, long(word));
            }
            3 => {
                let [which, low, high] = take(script);
                let way = Way::new(usize::from(which & 1));
                let at = if which & 2 == 0 { way.tail() } else { way.head() };
                let by = i32::from(i16::from_le_bytes([low, high]));
                self.put(at, self.word(at).wrapping_add_signed(by));
            }
            4 => {
                let [ring, octet, len, position @ ..] = take::<7>(script);
                let octets = vec![octet; usize::from(len)];
                self.memory.borrow_mut().scribble(usize::from(ring & 1), long(position), &octets);
            }
            5 => {
                let [low, high, word @ ..] = take::<6>(script);
                let at = usize::from(u16::from_le_bytes([low, high])) % WORDS;
                self.meanwhile.get_mut().push((at, long(word)));
            }
            6 => self.ask(),
            7 => self.fall_asleep(take(script)),
            8 => self.end.wake(),
            9 => self.close(),
            10 => self.change_size(take(script)),
            11 => self.write_slice(take(script)),
            12 => self.read_short(),
            _ => self.is_honest(take(script)),
        }
        self.check(None, None);
        Some(())
    }

    // ---- what this end does ----------------------------------------------------------------

    /// Calls the end; `true`: the peer wrote nothing meanwhile.
    fn call<R>(&self, call: impl FnOnce() -> R) -> (R, bool) {
        self.bells.set(0);
        let before = self.meanwhile.borrow().len();
        let result = call();
        (result, before == self.meanwhile.borrow().len())
    }

    fn octets(&mut self, len: usize) -> Vec<u8> {
        self.seed = self.seed.wrapping_add(1);
        (0..len).map(|n| (n as u8).wrapping_mul(7) ^ self.seed).collect()
    }

    fn write(&mut self, [low, high, parts]: [u8; 3]) {
        let len = usize::from(u16::from_le_bytes([low, high])) * 2;
        let octets = self.octets(len);
        let pieces: Vec<&[u8]> = octets.chunks(len / (1 + usize::from(parts & 3)) + 1).collect();
        let asleep = self.word(self.way_out().asleep()) != 0;
        let (done, alone) =
            self.call(|| ends::write(&self.end, &pieces, || self.interrupt(), || self.bell()));
        self.wrote(&octets, asleep, done, alone);
    }

    /// Short writes, and some that are too long for one.
    fn write_slice(&mut self, [len]: [u8; 1]) {
        let octets = self.octets(usize::from(len & 63));
        let asleep = self.word(self.way_out().asleep()) != 0;
        let (done, alone) = self.call(|| self.end.write_slice(&octets, || self.bell()));
        self.wrote(&octets, asleep, done, alone);
    }

    fn wrote(&mut self, octets: &[u8], asleep: bool, done: Result<usize, Corrupt>, alone: bool) {
        let (begin, len) = (self.tail, octets.len());
        if alone {
            let due = self.due_write(len);
            assert_eq!(done, due);
            if let Ok(done) = due {
                assert_eq!(self.bells.get(), u32::from(asleep && done > 0));
            }
        }
        let done = done.unwrap_or_else(|_| {
            self.corrupt = true;
            // Part of it is there.
            len.min(self.end.ring_octets() as usize)
        });
        assert!(done <= len);
        self.check(Some((begin, done as u32)), None);
        if !self.corrupt {
            self.tail = begin.wrapping_add(done as u32);
            self.memory.borrow_mut().written(self.out, begin, &octets[..done]);
            self.meet(alone);
        }
    }

    /// What a write must return.
    fn due_write(&mut self, len: usize) -> Result<usize, Corrupt> {
        let ring = self.end.ring_octets();
        let known = (ring - self.tail.wrapping_sub(self.read)) as usize;
        if len <= known {
            return Ok(len);
        }
        let (tail, head) = (self.tail.wrapping_add(known as u32), self.word(self.way_out().head()));
        if tail.wrapping_sub(head) > tail.wrapping_sub(self.read) {
            return Err(Corrupt);
        }
        self.read = head;
        // It may have read what was written just now.
        Ok(len.min(known + (ring - tail.wrapping_sub(head)) as usize))
    }

    fn read(&mut self, [low, high, parts]: [u8; 3]) {
        let len = usize::from(u16::from_le_bytes([low, high])) * 2;
        let each = len / (1 + usize::from(parts & 3)) + 1;
        let lengths: Vec<usize> = (0..len).step_by(each).map(|at| each.min(len - at)).collect();
        let stalled = self.word(self.way_in().stalled()) != 0;
        let before = [self.written, self.short];
        let (done, alone) =
            self.call(|| ends::read(&self.end, &lengths, || self.interrupt(), || self.bell()));
        let begin = self.head;
        if alone {
            let due = self.due_read(len);
            assert_eq!(done.as_ref().map(Vec::len), due.as_ref().copied());
            // By the peer's present position.
            let tail = self.word(self.way_in().tail());
            let left = |done| tail.wrapping_sub(begin.wrapping_add(done as u32));
            if due.is_ok_and(|done| done > 0 && left(done) <= self.end.ring_octets() / 2) {
                assert_eq!(self.bells.get(), u32::from(stalled));
            }
        }
        match done {
            Ok(done) => {
                if alone {
                    self.is_right(&before, begin, &done);
                }
                self.check(None, Some((begin, done.len() as u32)));
                self.head = begin.wrapping_add(done.len() as u32);
                self.meet(alone);
            }
            Err(Corrupt) => {
                self.corrupt = true;
                self.check(None, Some((begin, self.end.ring_octets())));
            }
        }
    }

    /// What the peer wrote last, if that is all that is known to be there.
    fn read_short(&mut self) {
        let stalled = self.word(self.way_in().stalled()) != 0;
        let now = [self.word(self.way_in().tail()), self.word(self.way_in().short())];
        let page = self.memory.borrow().page(self.way_in().octets()).to_vec();
        let mut octets = [0; SHORT];
        let (done, alone) = self.call(|| self.end.read_short(&mut octets, || self.bell()));
        let (begin, short) = (self.head, self.short);
        let known = self.written.wrapping_sub(begin) == short && now == [self.written, short];
        assert_eq!(done, (known && short != 0).then_some(short as usize));
        let Some(done) = done else { return };
        assert_eq!(octets[..done], page[..done]);
        if alone {
            assert_eq!(self.bells.get(), u32::from(stalled));
        }
        self.check(None, Some((begin, done as u32)));
        self.head = begin.wrapping_add(done as u32);
        self.meet(alone);
    }

    /// Octets that were read are those of the ring, but for those that the peer's last write put next to its position.
    /// `before`: that position and their number at the last check.
    fn is_right(&self, before: &[u32; 2], begin: u32, done: &[u8]) {
        let now = [self.word(self.way_in().tail()), self.word(self.way_in().short())];
        let memory = self.memory.borrow();
        let mut due = memory.octets(1 - self.out, begin, done.len());
        let [tail, short] = now;
        let known = before[0].wrapping_sub(begin) as usize;
        // Of octets that were known before, those of the ring were read if the peer has written since.
        let from = if *before == now { 0 } else { known };
        for (n, due) in due.iter_mut().enumerate().skip(from) {
            let left = tail.wrapping_sub(begin.wrapping_add(n as u32));
            if left <= short {
                *due = memory.page(self.way_in().octets())[(short - left) as usize];
            }
        }
        assert_eq!(done, due);
    }

    /// What a read must return.
    fn due_read(&mut self, len: usize) -> Result<usize, Corrupt> {
        let known = self.written.wrapping_sub(self.head);
        if len <= known as usize {
            return Ok(len);
        }
        // The peer may have written over what was read just now.
        let head = self.head.wrapping_add(known);
        let tail = self.word(self.way_in().tail());
        let (there, short) = (tail.wrapping_sub(head), self.word(self.way_in().short()));
        if there > self.end.ring_octets() || short > SHORT as u32 {
            return Err(Corrupt);
        }
        (self.written, self.short) = (tail, short);
        Ok(len.min(known as usize + there as usize))
    }

    /// Octets to read by the peer's position, of which so many are known.
    fn due_octets(&mut self, known: u32) -> Result<u32, Corrupt> {
        let tail = self.word(self.way_in().tail());
        let (there, short) = (tail.wrapping_sub(self.head), self.word(self.way_in().short()));
        if there > self.end.ring_octets() || there < known || short > SHORT as u32 {
            return Err(Corrupt);
        }
        (self.written, self.short) = (tail, short);
        Ok(there)
    }

    fn due_room(&mut self) -> Result<u32, Corrupt> {
        let head = self.word(self.way_out().head());
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.read) {
            return Err(Corrupt);
        }
        self.read = head;
        Ok(self.end.ring_octets() - self.tail.wrapping_sub(head))
    }

    /// After a call during which the peer wrote: what the end has seen of it is not known, and is queried.
    fn meet(&mut self, alone: bool) {
        if alone {
            return;
        }
        match (self.end.octets(), self.end.room()) {
            (Ok(there), Ok(room)) => {
                self.written = self.head.wrapping_add(there);
                self.short = self.word(self.way_in().short());
                self.read = self.tail.wrapping_sub(self.end.ring_octets() - room);
            }
            _ => self.corrupt = true,
        }
    }

    fn ask(&mut self) {
        let known = self.written.wrapping_sub(self.head);
        let octets = self.end.octets();
        assert_eq!(octets, self.due_octets(known));
        let room = self.end.room();
        assert_eq!(room, self.due_room());
        self.corrupt = octets.is_err() || room.is_err();
        assert_eq!(self.end.is_read(), room.map(|room| room == self.end.ring_octets()));
        let way = self.way_in();
        let over = self.word(way.closed()) != 0 && self.word(way.tail()) == self.head;
        assert_eq!(self.end.is_over(), over);
        let asks = self.word(way.asleep()) != 0;
        assert_eq!(self.end.is_asleep(), asks && self.slept_at == self.head);
        assert_eq!(self.end.is_stalled(), self.word(self.way_out().stalled()) != 0);
    }

    fn fall_asleep(&mut self, [wants_room]: [u8; 1]) {
        let wants_room = wants_room & 1 != 0;
        let known = self.written.wrapping_sub(self.head);
        let there = self.word(self.way_in().tail()).wrapping_sub(self.head);
        let is_told =
            self.word(self.way_in().stalled()) != 0 && there <= self.end.ring_octets() / 2;
        self.slept_at = self.head;
        let (result, alone) = self.call(|| self.end.fall_asleep(wants_room, || self.bell()));
        self.check(None, None);
        if !alone {
            self.corrupt = result.is_err();
            if !self.corrupt {
                self.meet(false);
            }
            return;
        }
        assert_eq!(self.bells.get(), u32::from(is_told));
        assert_eq!(self.word(self.way_in().asleep()), 1);
        assert!(!wants_room || self.word(self.way_out().stalled()) == 1);
        let closed = self.word(self.way_in().closed()) != 0;
        let due = self.due_octets(known).and_then(|there| {
            let now = there > 0 || closed;
            Ok(now || (wants_room && self.due_room()? > 0))
        });
        assert_eq!(result, due);
        self.corrupt = due.is_err();
    }

    fn close(&mut self) {
        let asleep = self.word(self.way_out().asleep()) != 0;
        let ((), alone) = self.call(|| self.end.close(|| self.bell()));
        assert_eq!(self.bells.get(), u32::from(asleep));
        self.check(None, None);
        assert!(!alone || self.word(self.way_out().closed()) == 1);
    }

    // ---- what the peer does ----------------------------------------------------------------

    fn change_size(&mut self, [what, page]: [u8; 2]) {
        let memory = self.memory.get_mut();
        match what & 1 {
            0 => memory.punch(usize::from(page)),
            _ => {
                let (size, now) = (u64::from(page) << (what >> 3), memory.file.metadata());
                let is_same = now.expect("memory").len() == size;
                assert_eq!(memory.file.set_len(size).is_ok(), is_same);
            }
        }
    }

    /// The peer reads everything, and writes some octets, as it should: few of them next to its position, too.
    fn is_honest(&mut self, [low, high]: [u8; 2]) {
        self.put(self.way_out().head(), self.tail);
        let (tail, most) = (self.word(self.way_in().tail()), self.end.ring_octets());
        let room = most.saturating_sub(tail.wrapping_sub(self.head)) as usize;
        let len = room.min(usize::from(u16::from_le_bytes([low, high])) * 2);
        self.memory.get_mut().scribble(1 - self.out, tail, &vec![low; len]);
        let short = if len <= SHORT { len } else { 0 };
        let octets = self.way_in().octets().start;
        self.memory.get_mut().put(octets, &vec![low; short]);
        self.put(self.way_in().short(), short as u32);
        self.put(self.way_in().tail(), tail.wrapping_add(len as u32));
    }

    // ---- what must hold --------------------------------------------------------------------

    /// Only words of this end differ, or flags of the peer that were seen; `wrote` and `read`: from where on, and how
    /// many octets at most.
    fn check(&self, wrote: Option<(u32, u32)>, read: Option<(u32, u32)>) {
        let (out, into) = (self.way_out(), self.way_in());
        let within = |word: u32, moved: Option<(u32, u32)>| {
            moved.is_some_and(|(begin, octets)| word.wrapping_sub(begin) <= octets)
        };
        for (at, word) in self.memory.borrow_mut().changed() {
            let may = match at {
                _ if at == out.tail() => within(word, wrote),
                _ if at == out.short() => word <= SHORT as u32,
                _ if out.octets().contains(&at) => wrote.is_some(),
                _ if at == into.head() => within(word, read),
                _ if at == out.closed() => word == 1,
                _ if at == into.asleep() || at == out.stalled() => word <= 1,
                _ if at == out.asleep() || at == into.stalled() => word == 0,
                _ => false,
            };
            assert!(may, "the word at {at} is {word}");
        }
    }

    fn ends(self) {
        let memory = self.memory.into_inner();
        assert!(memory.is_due(1 - self.out), "the ring of the peer was written to");
        assert!(self.corrupt || memory.is_due(self.out), "this end's ring");
    }
}
