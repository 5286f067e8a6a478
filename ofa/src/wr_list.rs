//! Lists of work requests that are built call by call (ibv_wr_post(3)), until they are posted or
//! aborted.
//! One list per queue pair; while a thread builds one, others wait, as the interface specifies. The
//! memory is kept for the next list, so nothing is allocated once it is large enough, but for lists of more
//! than [`POST_LIST`]. A list is posted as a whole or not at all.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use kal_os::lock;
use vp_api::{AhId, Data, PostFailure, SendFlags, SendOp, SendWr, Sge, UdAddress, UdQp, UdSendWr};

use crate::errno::{EINVAL, ENOMEM, Errno};
use crate::tuning::POST_LIST;

/// The list of one queue pair.
#[derive(Default)]
pub(crate) struct WrList {
    building: AtomicBool,
    list: Mutex<List>,
}

/// Requests with what they are made of.
#[derive(Default)]
pub(crate) struct List {
    requests: Vec<Request>,
    sges: Vec<Sge>,
    octets: Vec<u8>,
    /// Then nothing of the list is posted.
    refused: Option<Errno>,
}

struct Request {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    data: Place,
    /// Of a datagram.
    to: Option<(AhId, UdAddress)>,
}

impl Request {
    fn new(wr_id: u64, flags: SendFlags, op: SendOp) -> Self {
        Self { wr_id, op, flags, data: Place::Elements(0..0), to: None }
    }
}

/// The place of its data.
#[derive(Clone)]
enum Place {
    Elements(Range<usize>),
    Octets(Range<usize>),
}

impl WrList {
    /// Begins a list; waits until another thread's is complete.
    pub(crate) fn start(&self) {
        while self.building.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        lock(&self.list).clear();
    }

    /// Adds a request without data.
    pub(crate) fn add(&self, wr_id: u64, flags: SendFlags, op: Result<SendOp, Errno>) {
        let mut list = lock(&self.list);
        match op {
            Ok(op) => list.requests.push(Request::new(wr_id, flags, op)),
            Err(error) => list.refuse(error),
        }
    }

    /// Sets the elements of the last request.
    pub(crate) fn set_elements(&self, elements: &[Sge]) {
        lock(&self.list).set_elements(elements);
    }

    /// Copies octets for the last request.
    pub(crate) fn set_octets(&self, octets: &[u8]) {
        lock(&self.list).set_octets(octets);
    }

    /// Sets the destination of the last request.
    pub(crate) fn set_destination(&self, ah: AhId, to: UdAddress) {
        let mut list = lock(&self.list);
        match list.requests.last_mut() {
            Some(last) => last.to = Some((ah, to)),
            None => list.refuse(EINVAL),
        }
    }

    /// A request is not supported: the list will not be posted.
    pub(crate) fn refuse(&self, error: Errno) {
        lock(&self.list).refuse(error);
    }

    /// Posts the list, and ends it.
    ///
    /// # Errors
    /// Of its requests the first that is refused, or ENOMEM for more than `most`; or those of `post`.
    pub(crate) fn complete(
        &self,
        ready: Result<(), Errno>,
        most: u32,
        post: impl FnOnce(&List) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let result = {
            let list = lock(&self.list);
            let fits = if list.len() > most as usize { Err(ENOMEM) } else { Ok(()) };
            ready.and(list.refused.map_or(Ok(()), Err)).and(fits).and_then(|()| post(&list))
        };
        self.building.store(false, Ordering::Release);
        result
    }

    /// Drops the list.
    pub(crate) fn abort(&self) {
        self.building.store(false, Ordering::Release);
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.octets.clear();
        self.refused = None;
    }

    /// Appends a copy of a request.
    pub(crate) fn push(&mut self, SendWr { wr_id, op, data, flags }: &SendWr<'_>) {
        self.requests.push(Request::new(*wr_id, *flags, op.clone()));
        match data {
            Data::Sgl(elements) => self.set_elements(elements),
            Data::Inline(octets) => self.set_octets(octets),
        }
    }

    fn set_elements(&mut self, elements: &[Sge]) {
        let begin = self.sges.len();
        self.sges.extend_from_slice(elements);
        self.set_data(Place::Elements(begin..begin + elements.len()));
    }

    fn set_octets(&mut self, octets: &[u8]) {
        let begin = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.set_data(Place::Octets(begin..begin + octets.len()));
    }

    fn refuse(&mut self, error: Errno) {
        self.refused.get_or_insert(error);
    }

    fn set_data(&mut self, data: Place) {
        match self.requests.last_mut() {
            Some(last) => last.data = data,
            None => self.refuse(EINVAL),
        }
    }

    pub(crate) fn request(&self, at: usize) -> Option<SendWr<'_>> {
        let Request { wr_id, op, flags, data, .. } = self.requests.get(at)?;
        let data = self.data(data)?;
        Some(SendWr { wr_id: *wr_id, op: op.clone(), data, flags: *flags })
    }

    fn data(&self, place: &Place) -> Option<Data<'_>> {
        Some(match place.clone() {
            Place::Elements(range) => Data::Sgl(self.sges.get(range)?),
            Place::Octets(range) => Data::Inline(self.octets.get(range)?),
        })
    }

    /// Posts the requests as datagrams, one after the other: those before one that the provider refuses stay posted.
    pub(crate) fn post_datagrams(&self, qp: &dyn UdQp) -> Result<(), Errno> {
        self.requests.iter().try_for_each(|request| self.datagram(request).map(drop))?;
        self.requests.iter().try_for_each(|request| Ok(qp.post_send(&[self.datagram(request)?])?))
    }

    fn datagram(&self, request: &Request) -> Result<UdSendWr<'_>, Errno> {
        let (immediate, solicited) = match request.op {
            SendOp::Send { solicited, invalidate: None } => (None, solicited),
            SendOp::SendImmediate { data, solicited } => (Some(data), solicited),
            _ => return Err(EINVAL),
        };
        let (ah, to) = request.to.ok_or(EINVAL)?;
        let data = self.data(&request.data).ok_or(EINVAL)?;
        let (wr_id, flags) = (request.wr_id, request.flags);
        Ok(UdSendWr { wr_id, data, flags, solicited, immediate, ah, to })
    }

    /// Posts the requests as one list.
    pub(crate) fn post(
        &self,
        post: impl Fn(&[SendWr<'_>]) -> Result<(), PostFailure>,
    ) -> Result<(), Errno> {
        let len = self.requests.len();
        if len <= POST_LIST {
            let few: [_; POST_LIST] = std::array::from_fn(|at| self.request(at).unwrap_or(NOTHING));
            return Ok(post(&few[..len])?);
        }
        let mut all = Vec::new();
        all.try_reserve_exact(len).map_err(|_| ENOMEM)?;
        all.extend((0..len).map(|at| self.request(at).unwrap_or(NOTHING)));
        Ok(post(&all)?)
    }
}

/// Fills an array.
const NOTHING: SendWr<'static> = SendWr {
    wr_id: 0,
    op: SendOp::Send { solicited: false, invalidate: None },
    data: Data::Sgl(&[]),
    flags: SendFlags::empty(),
};
