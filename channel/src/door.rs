//! Where a listener whose sessions can be resumed takes requests.
//!
//! Owner: the listener and each of its sessions: as long as one lives, requests that resume one are taken by the adapter's
//! callback thread, whether or not anybody accepts. New ones wait here for the listener, at most [`WAITING`]; further ones, and
//! all once the listener is dropped, are rejected. When a caller dies, accepting it fails.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use itapi::{Ia, Listen, Request};

use crate::error::Result;
use crate::sessions;
use crate::wire::Greeting;

/// Most requests that wait.
const WAITING: usize = 128;

/// See the module.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listen: Listen,
    inside: Mutex<Inside>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    /// `None` once the listener is dropped.
    requests: Option<VecDeque<Request>>,
    wakers: Vec<Waker>,
}

impl Door {
    pub(crate) fn open(ia: &Ia, listen: Listen, ours: Greeting) -> Result<Arc<Self>> {
        let requests = Some(VecDeque::new());
        let inside = Mutex::new(Inside { requests, wakers: Vec::new() });
        let door = Arc::new(Self { listen, inside, came: Condvar::new() });
        let (weak, ia) = (Arc::downgrade(&door), ia.clone());
        door.listen.evd().on_event(move |requests| {
            while let Ok(Some(request)) = requests.poll() {
                let Some(door) = weak.upgrade() else { return };
                if let Some(request) = sessions::route(request, &ia, ours) {
                    door.came(request);
                }
            }
        })?;
        Ok(door)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Nothing panics while it is held.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn came(&self, request: Request) {
        let mut inside = self.inside();
        let Inside { requests, wakers } = &mut *inside;
        match requests {
            Some(requests) if requests.len() < WAITING => {
                requests.push_back(request);
                wakers.drain(..).for_each(Waker::wake);
                self.came.notify_one();
            }
            // Dropped, it is rejected.
            _ => {
                drop(inside);
                drop(request);
            }
        }
    }

    /// Waits for a new request, so long.
    pub(crate) fn request(&self, timeout: Duration) -> Option<Request> {
        let none = |inside: &mut Inside| inside.requests.as_ref().is_none_or(VecDeque::is_empty);
        let waited = self.came.wait_timeout_while(self.inside(), timeout, none);
        let (mut inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inside.requests.as_mut().and_then(VecDeque::pop_front)
    }

    /// A new request, if there is one; else the task is woken later.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Request> {
        let mut inside = self.inside();
        let request = inside.requests.as_mut().and_then(VecDeque::pop_front);
        if request.is_none() {
            inside.wakers.push(waker.clone());
        }
        request
    }

    /// The listener is dropped.
    pub(crate) fn close(&self) {
        let waiting = self.inside().requests.take();
        drop(waiting);
    }
}
