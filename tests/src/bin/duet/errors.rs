//! Cases of `duet` that the other end must refuse. A request may complete with success before it is refused:
//! only the end of the connection decides. On InfiniBand devices the completion shows it.

use itapi::{RemoteRange, RmrContext, Work};

use crate::end::End;
use crate::side::Fail;

type Otherwise = Result<Option<String>, Fail>;

/// Octets of each operation; more than a receive of these cases has.
const OCTETS: u64 = 16;

pub(crate) fn write(end: &End<'_>) -> Otherwise {
    write_to(end, end.peer)
}

pub(crate) fn write_unknown(end: &End<'_>) -> Otherwise {
    write_to(end, unknown(end.peer))
}

pub(crate) fn write_beyond(end: &End<'_>) -> Otherwise {
    write_to(end, beyond(end.peer))
}

pub(crate) fn read(end: &End<'_>) -> Otherwise {
    read_from(end, end.peer)
}

pub(crate) fn read_unknown(end: &End<'_>) -> Otherwise {
    read_from(end, unknown(end.peer))
}

pub(crate) fn read_beyond(end: &End<'_>) -> Otherwise {
    read_from(end, beyond(end.peer))
}

pub(crate) fn send(end: &End<'_>) -> Otherwise {
    end.start(Work::send(&[7; OCTETS as usize]))?;
    end.ends()?;
    Ok(None)
}

fn write_to(end: &End<'_>, range: RemoteRange) -> Otherwise {
    let range = RemoteRange { len: OCTETS, ..range };
    end.start(Work::write(&[7; OCTETS as usize], range))?;
    end.ends()?;
    Ok(None)
}

fn read_from(end: &End<'_>, range: RemoteRange) -> Otherwise {
    let range = RemoteRange { len: OCTETS, ..range };
    end.start(Work::read(range, end.pz.buffer(OCTETS as usize)?))?;
    let failed = End::failed(&end.ends()?);
    Ok((!failed).then(|| "the read is answered".into()))
}

/// An STag with another index.
fn unknown(range: RemoteRange) -> RemoteRange {
    RemoteRange { context: RmrContext(range.context.0 ^ 0x0055_5500), ..range }
}

/// A range that ends beyond the region.
fn beyond(range: RemoteRange) -> RemoteRange {
    RemoteRange { addr: range.addr + range.len - OCTETS / 2, ..range }
}
