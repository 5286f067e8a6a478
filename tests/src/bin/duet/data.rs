//! Cases of `duet` for the operations: the other end compares each octet.

use itapi::Work;

use crate::cases::{LARGE, Play};
use crate::end::{End, pattern};
use crate::side::Fail;

/// Sizes: none, one FPDU and many, with and without padding.
const SIZES: [usize; 6] = [0, 1, 7, 1000, 65_537, LARGE];
const FINE: &[u8] = b"fine";

/// Messages of all sizes, and back.
pub(crate) const SEND: Play = Play {
    lead: |end| {
        for (seed, size) in SIZES.into_iter().enumerate() {
            let octets = pattern(size, seed);
            end.post(Work::send(end.buffer(octets)?))?;
            same("the echo", &end.next_message()?.0, octets)?;
        }
        Ok(None)
    },
    follow: |end| {
        for (seed, size) in SIZES.into_iter().enumerate() {
            let octets = end.next_message()?.0;
            same("the message", &octets, pattern(size, seed))?;
            end.post(Work::send(end.buffer(&octets)?))?;
        }
        Ok(())
    },
};

/// Send with Solicited Event. Devices show it only by waking.
pub(crate) const SOLICITED: Play = Play {
    lead: |end| {
        end.post(Work::send(b"wake").solicited())?;
        hear_fine(end)
    },
    follow: |end| {
        if !end.next_message()?.1.solicited && end.side.is_ours {
            return Err("the message is not solicited".into());
        }
        end.send(FINE)
    },
};

/// Send with Invalidate; a Write shows that the STag is invalid.
pub(crate) const INVALIDATE: Play = Play {
    lead: |end| {
        // Not inline: Linux's siw cannot have both.
        let message = end.buffer(b"back")?;
        end.post(Work::send(message).invalidate(end.peer.context))?;
        hear_fine(end)?;
        crate::errors::write(end)
    },
    follow: |end| {
        let invalidated = end.next_message()?.1.invalidated;
        let own = end.board.as_ref().map(|board| board.remote().context);
        // Linux's siw does not report it to programs.
        if invalidated != own && (end.side.is_ours || invalidated.is_some()) {
            return Err(format!("invalidated: {invalidated:?} where {own:?} is expected").into());
        }
        end.send(FINE)
    },
};

/// RDMA Writes; the Send after each shows that it has arrived.
pub(crate) const WRITE: Play = Play {
    lead: |end| {
        for (at, size) in SIZES.into_iter().enumerate() {
            let range = end.peer.slice(target(at, size))?;
            end.start(Work::write(end.buffer(pattern(size, at + 100))?, range))?;
            end.send(b"look")?;
            end.done()?;
            hear_fine(end)?;
        }
        Ok(None)
    },
    follow: |end| {
        let board = end.board.as_ref().ok_or("no memory to look at")?;
        for (at, size) in SIZES.into_iter().enumerate() {
            end.next_message()?;
            let (from, mut found) = (target(at, size).start as usize, vec![0; size]);
            board.read_at(from, &mut found)?;
            same("what was written", &found, pattern(size, at + 100))?;
            end.send(FINE)?;
        }
        Ok(())
    },
};

/// RDMA Reads.
pub(crate) const READ: Play = Play {
    lead: |end| {
        SIZES.into_iter().enumerate().skip(1).try_for_each(|(at, size)| read(end, at, size))?;
        end.send(FINE).map(|()| None)
    },
    follow: |end| end.next_message().map(drop),
};

/// RDMA Reads of no octets.
pub(crate) const READ_NOTHING: Play = Play {
    lead: |end| {
        read(end, 0, 0)?;
        end.send(FINE).map(|()| None)
    },
    follow: |end| end.next_message().map(drop),
};

/// Reads, up to four at once.
fn read(end: &End<'_>, at: usize, size: usize) -> Result<(), Fail> {
    let range = target(at, size);
    let wanted = &pattern(LARGE, 0)[range.start as usize..range.end as usize];
    let count = if size == LARGE { 1 } else { 4 };
    for _ in 0..count {
        let sink = end.pz.buffer(size.max(1))?;
        end.start(Work::read(end.peer.slice(range.clone())?, sink))?;
    }
    for _ in 0..count {
        let sink = end.done()?.into_buffer().ok_or("a read without its buffer")?;
        let mut found = vec![0; size];
        sink.read_at(0, &mut found)?;
        same("what was read", &found, wanted)?;
    }
    Ok(())
}

/// Offset of operation number `at`, also odd ones.
fn target(at: usize, size: usize) -> std::ops::Range<u64> {
    let from = at.min(LARGE - size);
    from as u64..(from + size) as u64
}

fn hear_fine(end: &End<'_>) -> Result<Option<String>, Fail> {
    same("the answer", &end.next_message()?.0, FINE).map(|()| None)
}

fn same(what: &str, found: &[u8], wanted: &[u8]) -> Result<(), Fail> {
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} octets, not {}", found.len(), wanted.len()).into());
    }
    match found.iter().zip(wanted).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: octet {at} differs").into()),
    }
}
