//! Posted requests of one work queue: which request a completion ends, and which unsignalled ones before
//! it.
//!
//! Owner: an endpoint's face, under its lock; never more requests than the queue is deep. Requests are
//! numbered as they are posted; a place holds the request whose number maps to it. Any thread takes
//! completions, so they are looked up in another order than they came: each takes its own request and
//! never another signalled one; a number whose place is still occupied is skipped. When the peer dies
//! every request completes. When the queue is reused for another stream, numbers continue.
//!
//! A completion with an error shows of an unsignalled request before it only that it has ended: it
//! may have failed, too, and another thread may hold the completion that shows it. Such a request has no
//! slot any more and keeps its place until that thread comes, or until the stream is
//! [reset](Posted::ended) and it is known how many failed.

use vp_api::{VpResult, VpStatus, room};

/// The posted requests of a queue.
#[derive(Debug)]
pub struct Posted<T> {
    /// Their number is a power of two; none before the first request.
    places: Vec<Place<T>>,
    /// The next number.
    next: u64,
    /// Unsignalled requests before this number have been reported.
    reported: u64,
    /// Requests posted so far.
    posted: u64,
    /// Requests that occupy slots.
    slots: u32,
    depth: u32,
}

#[derive(Debug)]
struct Place<T> {
    number: u64,
    /// Requests that were posted before it.
    order: u64,
    kind: Kind,
    request: Option<T>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// No request.
    Free,
    /// It will have a completion.
    Signalled,
    /// It will have a completion if it fails.
    Silent,
    /// It ended and occupies no slot; it has a completion if it failed.
    Ended,
    /// It succeeded and occupies no slot; the next completion reports it.
    Done,
}

impl<T> Posted<T> {
    /// For a queue of `depth`. Memory is allocated with the first request, or by
    /// [`Posted::reserve`].
    pub const fn new(depth: u32) -> Self {
        Self { places: Vec::new(), next: 0, reported: 0, posted: 0, slots: 0, depth }
    }

    /// Allocates what a queue of `depth` needs, so that posting does not.
    pub fn reserve(&mut self, depth: u32) -> VpResult<()> {
        // With extra room for requests whose completions other threads hold.
        let wanted = (depth as usize + (depth as usize / 2).max(2)).next_power_of_two();
        if self.places.len() < wanted { self.widen(wanted) } else { Ok(()) }
    }

    /// Changes the depth, for requests from now on.
    pub fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// No request occupies a slot.
    pub fn is_idle(&self) -> bool {
        self.slots == 0
    }

    /// The number of the next request, and how many can be posted with consecutive numbers from there
    /// on, at least 1 and at most `wanted`. Errors: the queue is full, or there is no memory.
    pub fn room(&mut self, wanted: usize) -> Result<(u64, usize), VpStatus> {
        let slots = self.depth.saturating_sub(self.slots) as usize;
        if slots == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        self.find_place()?;
        let most = wanted.min(slots).min(self.places.len());
        let is_free = |n: &usize| self.is_free(self.next + *n as u64);
        Ok((self.next, (0..most).take_while(is_free).count()))
    }

    /// An upper bound of the unsignalled requests that are still to be reported.
    pub fn unreported(&self) -> usize {
        (self.next - self.reported) as usize
    }

    /// Stores a request; returns its number. Errors as for [`Posted::room`].
    pub fn hold(&mut self, request: T, signalled: bool) -> Result<u64, VpStatus> {
        self.room(1)?;
        Ok(self.push(request, signalled))
    }

    /// Stores a request for which there is [`Posted::room`].
    #[inline]
    pub fn push(&mut self, request: T, signalled: bool) -> u64 {
        let (number, order) = (self.next, self.posted);
        let kind = if signalled { Kind::Signalled } else { Kind::Silent };
        let at = self.at(number);
        self.places[at] = Place { number, order, kind, request: Some(request) };
        self.next += 1;
        self.posted += 1;
        self.slots += 1;
        number
    }

    /// The provider refused the request that was stored last.
    pub fn refused(&mut self, number: u64) -> Option<T> {
        let at = self.at(number);
        let place = self.places.get_mut(at).filter(|place| place.holds(number))?;
        self.posted -= 1;
        self.slots -= 1;
        place.free()
    }

    /// The full number of a request whose lower half came back.
    pub fn number(&self, half: u32) -> u64 {
        self.next.wrapping_sub(u64::from((self.next as u32).wrapping_sub(half)))
    }

    /// Removes a request that completed; `good`: with success. Each unsignalled request before it that
    /// has ended is passed to `earlier`, once, oldest first.
    #[inline]
    pub fn complete(
        &mut self,
        number: u64,
        good: bool,
        mut earlier: impl FnMut(&mut T),
    ) -> Option<T> {
        let at = self.at(number);
        self.places.get(at).filter(|place| place.holds(number))?;
        if self.reported != number {
            self.report_up_to(number, good, &mut earlier);
        }
        self.reported = self.reported.max(number + 1);
        let place = &mut self.places[at];
        self.slots -= u32::from(place.kind.occupies());
        place.free()
    }

    #[inline(never)]
    fn report_up_to(&mut self, number: u64, good: bool, earlier: &mut impl FnMut(&mut T)) {
        (self.reported..number).for_each(|earlier_one| self.report(earlier_one, good, earlier));
    }

    fn report(&mut self, number: u64, good: bool, earlier: &mut impl FnMut(&mut T)) {
        let at = self.at(number);
        let place = &mut self.places[at];
        if !place.holds(number) || !matches!(place.kind, Kind::Silent | Kind::Done) {
            return;
        }
        self.slots -= u32::from(place.kind.occupies());
        place.request.iter_mut().for_each(earlier);
        if place.kind == Kind::Silent && !good {
            place.kind = Kind::Ended;
        } else {
            place.free();
        }
    }

    /// The stream is over, and the last `failed` of all requests have completions with errors: the
    /// unsignalled ones before those have succeeded. `keep`: whether this one is still to be reported.
    pub fn ended(&mut self, failed: u32, keep: impl Fn(&T) -> bool) {
        let good = self.posted.saturating_sub(failed.into());
        for place in &mut self.places {
            let occupied = place.kind.occupies();
            match place.kind {
                Kind::Silent if place.order >= good => place.kind = Kind::Signalled,
                Kind::Silent if place.request.as_ref().is_some_and(&keep) => {
                    place.kind = Kind::Done;
                }
                Kind::Silent => drop(place.free()),
                Kind::Ended if place.order < good => drop(place.free()),
                _ => {}
            }
            self.slots -= u32::from(occupied && !place.kind.occupies());
        }
    }

    /// Calls `f` for each request that waits for its completion.
    pub fn for_each(&mut self, f: impl FnMut(&mut T)) {
        self.places.iter_mut().filter_map(|place| place.request.as_mut()).for_each(f);
    }

    #[inline]
    fn is_free(&self, number: u64) -> bool {
        self.places[self.at(number)].kind == Kind::Free
    }

    #[inline]
    fn at(&self, number: u64) -> usize {
        number as usize & self.places.len().wrapping_sub(1)
    }

    /// Skips numbers whose places are occupied.
    #[inline]
    fn find_place(&mut self) -> Result<(), VpStatus> {
        loop {
            for _ in 0..self.places.len() {
                if self.is_free(self.next) {
                    return Ok(());
                }
                self.next += 1;
            }
            self.widen_more().map_err(|error| error.status)?;
        }
    }

    #[cold]
    fn widen_more(&mut self) -> VpResult<()> {
        match self.places.len() {
            0 => self.reserve(self.depth),
            held => self.widen(2 * held),
        }
    }

    /// Requests then have other places, and the same numbers.
    fn widen(&mut self, len: usize) -> VpResult<()> {
        let mut places = room::list("requests of an endpoint's queue", len)?;
        let free = || Place { number: 0, order: 0, kind: Kind::Free, request: None };
        places.resize_with(len, free);
        let held = std::mem::replace(&mut self.places, places);
        for place in held.into_iter().filter(|place| place.kind != Kind::Free) {
            let at = self.at(place.number);
            self.places[at] = place;
        }
        Ok(())
    }
}

impl<T> Place<T> {
    #[inline]
    fn holds(&self, number: u64) -> bool {
        self.number == number && self.kind != Kind::Free
    }

    #[inline]
    fn free(&mut self) -> Option<T> {
        self.kind = Kind::Free;
        self.request.take()
    }
}

impl Kind {
    fn occupies(self) -> bool {
        matches!(self, Self::Signalled | Self::Silent)
    }
}

#[cfg(all(test, loom))]
#[path = "posted_loom_tests.rs"]
mod loom_tests;
#[cfg(all(test, not(loom)))]
#[path = "posted_tests.rs"]
mod tests;
