//! Loom tests of event queues: no wake-up is lost, and none is given twice for one event, in every order of
//! a few steps.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use vp_api::{VpStatus, WorkCompletion};

use super::*;
use crate::event::pump::{CompletionSource, Pump};
use crate::event::staging_mode::StagingMode;
use crate::event::{Event, NOTIFY};

/// A model of a few threads; more preemptions than this find nothing new.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn wait<T>(queue: &EventQueue<T>) -> Result<T> {
    queue.wait(&queue.begin(None), State::take)
}

#[test]
fn loom_a_waiter_at_threshold_two_wakes_with_the_second_push() {
    model(|| {
        let queue = Arc::new(EventQueue::new(4, 2));
        let pushers = [1, 2].map(|number| {
            let queue = queue.clone();
            thread::spawn(move || queue.push_always(number))
        });
        let first = wait(&queue).unwrap();
        let second = queue.take().unwrap().unwrap();
        assert_eq!(first + second, 3);
        assert!(queue.take().unwrap().is_none());
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

#[test]
fn loom_two_waiters_get_one_event_each() {
    model(|| {
        let queue = Arc::new(EventQueue::new(4, 1));
        let other = {
            let queue = queue.clone();
            thread::spawn(move || wait(&queue).unwrap())
        };
        queue.push_always(1);
        queue.push_always(2);
        let mine = wait(&queue).unwrap();
        assert_eq!(mine + other.join().unwrap(), 3);
    });
}

#[test]
fn loom_enabling_wakes_a_thread_that_slept_through_a_push() {
    model(|| {
        let queue = Arc::new(EventQueue::new(4, 1));
        queue.configure(&mut |settings| settings.enabled = false);
        let pusher = {
            let queue = queue.clone();
            thread::spawn(move || queue.push_always(7))
        };
        let enabler = {
            let queue = queue.clone();
            thread::spawn(move || queue.configure(&mut |settings| settings.enabled = true))
        };
        assert_eq!(wait(&queue).unwrap(), 7);
        pusher.join().unwrap();
        enabler.join().unwrap();
    });
}

#[test]
fn loom_disabling_keeps_the_event() {
    model(|| {
        let queue = Arc::new(EventQueue::new(4, 1));
        let waiter = {
            let queue = queue.clone();
            thread::spawn(move || wait(&queue))
        };
        let switcher = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.configure(&mut |settings| settings.enabled = false);
                queue.configure(&mut |settings| settings.enabled = true);
            })
        };
        queue.push_always(7);
        assert_eq!(waiter.join().unwrap().unwrap(), 7);
        switcher.join().unwrap();
    });
}

#[test]
fn loom_aborts_and_interrupts_end_every_wait() {
    model(|| {
        let queue = Arc::new(EventQueue::<u64>::new(4, 1));
        let waiter = {
            let queue = queue.clone();
            thread::spawn(move || wait(&queue))
        };
        queue.abort();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Aborted)));
    });
}

/// A child that adds its number to an aggregate.
fn feed(child: &EventQueue<u64>, number: usize, list: &Arc<EventQueue<usize>>) {
    let list = list.clone();
    let set_listed = Box::new(move |listed| match listed {
        true => list.push_always(number),
        false => list.take_with(|state| state.remove(|&child| child == number)),
    });
    child.set_feed(Some(Feed { set_listed, drained: false, listed: false }));
}

#[test]
fn loom_a_child_wakes_the_waiter_of_its_aggregate() {
    model(|| {
        let list = Arc::new(EventQueue::new(usize::MAX, 1));
        let child = Arc::new(EventQueue::new(4, 1));
        feed(&child, 0, &list);
        let pusher = {
            let child = child.clone();
            thread::spawn(move || {
                child.push_always(1);
                child.push_always(2);
            })
        };
        let mut sum = 0;
        while sum < 3 {
            let number = list.wait(&list.begin(None), |s| Ok(s.rotate().copied())).unwrap();
            assert_eq!(number, 0);
            while let Some(event) = child.take().unwrap() {
                sum += event;
            }
        }
        pusher.join().unwrap();
        assert_eq!(list.len(), 0, "nothing is left over");
    });
}

#[test]
fn loom_a_child_that_leaves_is_not_listed_any_more() {
    model(|| {
        let list = Arc::new(EventQueue::new(usize::MAX, 1));
        let child = Arc::new(EventQueue::new(4, 1));
        feed(&child, 0, &list);
        let pusher = {
            let child = child.clone();
            thread::spawn(move || child.push_always(1))
        };
        child.set_feed(None);
        pusher.join().unwrap();
        assert_eq!(list.len(), 0);
        assert_eq!(child.len(), 1);
    });
}

/// A provider's queue with the arm rule: publish, then check the arming; arm, then look.
struct Fake {
    published: AtomicUsize,
    taken: AtomicUsize,
    armed: AtomicBool,
    /// Requests to the dispatch thread.
    rings: EventQueue<()>,
    /// Ends the sleep of a waiter inside.
    gate: Gate,
}

impl Fake {
    fn new() -> Self {
        Self {
            published: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            rings: EventQueue::new(64, 1),
            gate: Gate::default(),
        }
    }

    /// The provider adds a completion; returns true if the armed notification fired.
    fn complete(&self) -> bool {
        self.published.fetch_add(1, Ordering::SeqCst);
        self.gate.open();
        let fired = self.armed.swap(false, Ordering::SeqCst);
        if fired {
            self.rings.push_always(());
        }
        fired
    }

    fn has_any(&self) -> bool {
        self.published.load(Ordering::SeqCst) > self.taken.load(Ordering::SeqCst)
    }
}

impl CompletionSource for &Fake {
    fn poll(&self, out: &mut [WorkCompletion]) -> std::result::Result<usize, VpStatus> {
        let taken = self.taken.load(Ordering::SeqCst);
        if self.published.load(Ordering::SeqCst) <= taken || out.is_empty() {
            return Ok(0);
        }
        let swap = Ordering::SeqCst;
        if self.taken.compare_exchange(taken, taken + 1, swap, swap).is_err() {
            return Ok(0);
        }
        out[0] = WorkCompletion { wr_id: NOTIFY, ..WorkCompletion::BLANK };
        Ok(1)
    }

    fn arm(&self) -> std::result::Result<(), VpStatus> {
        self.armed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// The dispatch thread: pumps after every request until `pumped` completions went through.
fn dispatch(fake: &Arc<Fake>, pump: &Arc<Pump>, queue: &Arc<EventQueue<Event>>, pumped: usize) {
    while fake.taken.load(Ordering::SeqCst) < pumped {
        assert!(wait(&fake.rings).is_ok());
        pump.run(&&**fake, queue);
    }
}

#[test]
fn loom_the_pump_never_waits_with_a_completion_left() {
    model(|| {
        let (fake, pump) = (Arc::new(Fake::new()), Arc::new(Pump::new()));
        let queue = Arc::new(EventQueue::<Event>::new(8, 1));
        pump.run(&&*fake, &queue);
        let provider = {
            let fake = fake.clone();
            thread::spawn(move || {
                fake.complete();
                fake.complete();
            })
        };
        let dispatcher = {
            let (fake, pump, queue) = (fake.clone(), pump.clone(), queue.clone());
            thread::spawn(move || dispatch(&fake, &pump, &queue, 2))
        };
        wait(&queue).unwrap();
        wait(&queue).unwrap();
        provider.join().unwrap();
        dispatcher.join().unwrap();
    });
}

#[test]
fn loom_a_stalled_pump_goes_on_when_there_is_room() {
    model(|| {
        let (fake, pump) = (Arc::new(Fake::new()), Arc::new(Pump::new()));
        let queue = Arc::new(EventQueue::<Event>::new(1, 1));
        fake.complete();
        fake.complete();
        let pumper = {
            let (fake, pump, queue) = (fake.clone(), pump.clone(), queue.clone());
            thread::spawn(move || pump.run(&&*fake, &queue))
        };
        wait(&queue).unwrap();
        if pump.is_stalled() {
            pump.run(&&*fake, &queue);
        }
        pumper.join().unwrap();
        assert!(queue.take().unwrap().is_some());
    });
}

/// A waiter inside the provider's queue, like `Completions::wait`.
fn wait_directly(mode: &StagingMode, fake: &Fake) -> Option<()> {
    let _inside = mode.enter()?;
    loop {
        let ticket = fake.gate.ticket();
        let mut one = [WorkCompletion::BLANK];
        if (&fake).poll(&mut one) == Ok(1) {
            return Some(());
        }
        if !mode.is_direct() {
            return None;
        }
        if !fake.has_any() {
            fake.gate.wait(ticket, None);
        }
    }
}

#[test]
fn loom_a_waiter_moves_when_the_mode_changes() {
    model(|| {
        let (fake, pump) = (Arc::new(Fake::new()), Arc::new(Pump::new()));
        let queue = Arc::new(EventQueue::<Event>::new(8, 1));
        let mode = Arc::new(StagingMode::new(true));
        let waiter = {
            let (fake, queue, mode) = (fake.clone(), queue.clone(), mode.clone());
            thread::spawn(move || match wait_directly(&mode, &fake) {
                Some(()) => {}
                None => {
                    wait(&queue).unwrap();
                }
            })
        };
        let begin = || {
            pump.run(&&*fake, &queue);
            Ok::<_, ()>(())
        };
        assert!(mode.stage(|| fake.gate.open(), begin).is_ok());
        if fake.complete() {
            pump.run(&&*fake, &queue);
        }
        waiter.join().unwrap();
    });
}

#[test]
fn loom_no_thread_sleeps_inside_once_it_is_unsettled() {
    model(|| {
        let (fake, mode) = (Arc::new(Fake::new()), Arc::new(StagingMode::new(true)));
        let queue = Arc::new(EventQueue::<Event>::new(8, 1));
        let waiter = {
            let (fake, queue, mode) = (fake.clone(), queue.clone(), mode.clone());
            thread::spawn(move || {
                if wait_directly(&mode, &fake).is_none() {
                    let staged = mode.stage(|| fake.gate.open(), || Ok::<_, ()>(()));
                    assert!(staged.is_ok());
                    assert!(matches!(wait(&queue), Err(Error::Aborted)));
                } else {
                    panic!("a completion that does not count ended a wait");
                }
            })
        };
        let allowed = mode.allow_uncounted(|| false, || fake.gate.open(), || Ok::<_, ()>(()));
        assert!(allowed.is_ok() && mode.allows_uncounted());
        fake.complete();
        queue.abort();
        waiter.join().unwrap();
    });
}
