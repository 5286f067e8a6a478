//! Random programs: a pair of queue pairs and a list of steps, made from a seed. Plain data; what is possible when
//! a step is due, the oracle knows.

/// Choices that a seed repeats (Marsaglia's xorshift).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // Zero is a fixed point; neighbours should not begin alike.
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        (self.next() >> 11) as usize % sides.max(1)
    }

    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.roll(list.len())]
    }
}

/// Which CQs the queues complete to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cqs {
    /// One for all.
    One,
    /// One for each queue pair.
    Each,
    /// One for each queue.
    EachQueue,
}

/// The two queue pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Of the send and the receive queue, of each queue pair.
    pub(super) depths: [(u32, u32); 2],
    /// IRD and ORD.
    pub(super) reads: u16,
    pub(super) cqs: Cqs,
    /// Receives of the second queue pair come from an SRQ, if the device has any.
    pub(super) srq: bool,
    /// The second end, of the connection, begins it.
    pub(super) second_calls: bool,
}

/// An operation of the send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send { solicited: bool },
    Write,
    WriteImmediate,
    Read,
    Add,
}

/// What is wrong with a request that ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    WriteWithoutRight,
    ReadWithoutRight,
    WriteBehindEnd,
    ReadBehindEnd,
    OtherKey,
    TooLong,
}

/// One step of an end, 0 or 1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Posts a receive of up to two elements.
    Receive {
        lens: [u16; 2],
    },
    Post {
        kind: Kind,
        len: u16,
        at: u16,
        signaled: bool,
        fenced: bool,
        inline: bool,
    },
    Wrong(Wrong),
    /// Polls up to so many completions.
    Poll(u8),
    /// Waits until everything has completed, and compares the memory.
    Settle,
    /// Ends the connection at once.
    End,
}

/// The octets of a region that peers write to.
pub(super) const REGION: usize = 8192;
/// The most octets of a message.
pub(super) const LONGEST: u16 = 4096;
/// The last octets of a region are numbers, to which peers add.
pub(super) const NUMBERS: usize = 4;

const LENS: [u16; 8] = [0, 1, 8, 63, 64, 1000, 1461, LONGEST];

pub(super) struct Program {
    dice: Dice,
    pub(super) shape: Shape,
    left: usize,
}

impl Program {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let depths = [0, 1].map(|_| {
            let depth = |dice: &mut Dice| dice.of(&[1, 2, 3, 4, 8, 17]);
            (depth(&mut dice), depth(&mut dice))
        });
        let cqs = dice.of(&[Cqs::One, Cqs::Each, Cqs::EachQueue]);
        let reads = dice.of(&[1, 2, 8]);
        let (srq, second_calls) = (dice.once_in(3), dice.once_in(2));
        let left = 60 + dice.roll(160);
        Self { dice, shape: Shape { depths, reads, cqs, srq, second_calls }, left }
    }

    /// A choice while a step is played.
    pub(super) fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn kind(&mut self) -> Kind {
        let solicited = self.dice.once_in(3);
        let send = Kind::Send { solicited };
        self.dice.of(&[
            send,
            send,
            Kind::Write,
            Kind::Write,
            Kind::Read,
            Kind::Read,
            Kind::Add,
            Kind::WriteImmediate,
        ])
    }

    fn post(&mut self) -> Step {
        let kind = self.kind();
        let len = self.dice.of(&LENS);
        let room = match kind {
            Kind::Add => NUMBERS,
            _ => REGION - NUMBERS * 8 - usize::from(len) + 1,
        };
        let at = self.dice.roll(room) as u16;
        let (signaled, fenced) = (!self.dice.once_in(3), self.dice.once_in(4));
        Step::Post { kind, len, at, signaled, fenced, inline: self.dice.once_in(5) }
    }
}

/// Which end, and what it does.
impl Iterator for Program {
    type Item = (usize, Step);

    fn next(&mut self) -> Option<Self::Item> {
        use Wrong::*;
        self.left = self.left.checked_sub(1)?;
        let step = match self.dice.roll(100) {
            0..30 => Step::Receive { lens: [self.dice.of(&LENS), self.dice.of(&LENS)] },
            30..70 => self.post(),
            70..90 => Step::Poll(self.dice.of(&[1, 2, 16])),
            90..96 => Step::Settle,
            96..98 => Step::End,
            _ => Step::Wrong(self.dice.of(&[
                WriteWithoutRight,
                ReadWithoutRight,
                WriteBehindEnd,
                ReadBehindEnd,
                OtherKey,
                TooLong,
            ])),
        };
        Some((self.dice.roll(2), step))
    }
}
