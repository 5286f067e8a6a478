//! Cases about elements that name memory which a request may not use: each kind of request checks each element.

use vp_api::*;

use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("sge: what a Send may not read", sends).keeps("RI-45"),
    Case::new("sge: what a Write may not read", writes).keeps("RI-45"),
    Case::new("sge: what a Read may not write", reads).keeps("RI-45"),
    Case::new("sge: what a receive may not write", receives).keeps("RI-45"),
];

/// Octets of a good element.
const LEN: usize = 16;

/// What is wrong with an element.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// There is no such STag.
    Nothing,
    OtherKey,
    OtherPd,
    NoRight,
    BehindEnd,
    FarBehind,
    Before,
}

const ALL: [Wrong; 7] = [
    Wrong::Nothing,
    Wrong::OtherKey,
    Wrong::OtherPd,
    Wrong::NoRight,
    Wrong::BehindEnd,
    Wrong::FarBehind,
    Wrong::Before,
];

/// An element of `end` that is wrong, for a use that needs the local right `needed`.
fn element(end: &End<'_>, peer: &End<'_>, wrong: Wrong, needed: Access) -> Result<Sge, Fail> {
    let of = match wrong {
        Wrong::OtherPd => peer,
        _ => end,
    };
    let access = match wrong {
        Wrong::NoRight => Access::LOCAL - needed,
        _ => Access::LOCAL,
    };
    let memory = of.memory_with(64, access, Addressing::Absolute)?;
    let good = memory.sge(8, LEN);
    let sge = match wrong {
        Wrong::Nothing => Sge { stag: Stag(0x00ab_cd00), ..good },
        Wrong::OtherKey => {
            let stag = Stag::new(good.stag.index(), good.stag.key() ^ 0x81);
            Sge { stag, ..good }
        }
        Wrong::OtherPd | Wrong::NoRight => good,
        Wrong::BehindEnd => memory.sge(64 - LEN + 1, LEN),
        Wrong::FarBehind => memory.sge(64 + 100, LEN),
        Wrong::Before => Sge { to: good.to - 8 - LEN as u64, ..good },
    };
    Ok(sge)
}

/// Plays with each wrong element as the only one, and behind a good one if a list of two is possible.
fn each(
    rig: &Rig,
    needed: Access,
    lists: bool,
    play: impl Fn(&End<'_>, &End<'_>, &[Sge]) -> Result<WcStatus, Fail>,
) -> Result<(), Fail> {
    for wrong in ALL {
        for behind in [false, true] {
            if behind && !lists {
                continue;
            }
            // InfiniBand's regions can always be read locally.
            let native = rig.attrs.connection_model == ConnectionModel::Native;
            if matches!(wrong, Wrong::NoRight) && needed == Access::LOCAL_READ && native {
                continue;
            }
            let (near, far) = rig.pair()?;
            let good = near.memory(LEN)?;
            let bad = element(&near, &far, wrong, needed)?;
            let list = if behind { vec![good.all(), bad] } else { vec![bad] };
            let what = |Fail(why)| Fail(format!("{wrong:?}, of {} elements: {why}", list.len()));
            if play(&near, &far, &list).map_err(what)? == WcStatus::Success {
                return Err(format!("{wrong:?}, of {} elements: it succeeded", list.len()).into());
            }
        }
    }
    Ok(())
}

/// Posts a request, which is refused at once or completes in error.
fn sent(end: &End<'_>, op: SendOp, sgl: &[Sge]) -> Result<WcStatus, Fail> {
    match end.post(1, op, sgl) {
        Err(_) => Ok(WcStatus::InvalidStag),
        Ok(()) => Ok(end.completion()?.status),
    }
}

fn sends(rig: &Rig) -> Result<(), Fail> {
    each(rig, Access::LOCAL_READ, rig.attrs.max_sge_send > 1, |near, far, list| {
        let sink = far.memory(64)?;
        far.recv(2, &[sink.all()])?;
        let status = sent(near, SEND, list)?;
        sink.holds("the receive", 0, &[0; 64])?;
        Ok(status)
    })
}

fn writes(rig: &Rig) -> Result<(), Fail> {
    let lists = rig.attrs.max_sge_send.min(rig.attrs.max_sge_write) > 1;
    each(rig, Access::LOCAL_READ, lists, |near, far, list| {
        let target = far.memory(64)?;
        let status = sent(near, SendOp::Write { remote: target.remote(0) }, list)?;
        target.holds("the target", 0, &[0; 64])?;
        Ok(status)
    })
}

fn reads(rig: &Rig) -> Result<(), Fail> {
    each(rig, Access::LOCAL_WRITE, false, |near, far, list| {
        let source = far.pattern(64, 1)?;
        let remote = source.remote(0);
        sent(near, SendOp::Read { remote, invalidate_sink: false }, list)
    })
}

fn receives(rig: &Rig) -> Result<(), Fail> {
    each(rig, Access::LOCAL_WRITE, rig.attrs.max_sge_recv > 1, |near, far, list| {
        if near.recv(1, list).is_err() {
            return Ok(WcStatus::InvalidStag);
        }
        let len = list.iter().map(|sge| sge.len as usize).sum();
        let source = far.pattern(len, 2)?;
        far.post(2, SEND, &[source.all()])?;
        Ok(near.completion()?.status)
    })
}
