//! No wake-up is lost, and none comes twice for one event: every order of a few steps, by loom.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use vp_api::{VpStatus, WorkCompletion};

use super::*;
use crate::event::pump::{Pump, Spring};
use crate::event::staging_mode::StagingMode;
use crate::event::{Event, NOTIFY};

/// A model of a few threads; more switches than this at once find nothing new.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn wait<T>(core: &Core<T>) -> Result<T> {
    core.wait(&core.begin(None), State::take)
}

#[test]
fn loom_a_waiter_at_threshold_two_wakes_with_the_second_push() {
    model(|| {
        let core = Arc::new(Core::new(4, 2));
        let pushers = [1, 2].map(|number| {
            let core = core.clone();
            thread::spawn(move || core.push_always(number))
        });
        let first = wait(&core).unwrap();
        let second = core.take().unwrap().unwrap();
        assert_eq!(first + second, 3);
        assert!(core.take().unwrap().is_none());
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

#[test]
fn loom_two_waiters_get_one_event_each() {
    model(|| {
        let core = Arc::new(Core::new(4, 1));
        let other = {
            let core = core.clone();
            thread::spawn(move || wait(&core).unwrap())
        };
        core.push_always(1);
        core.push_always(2);
        let mine = wait(&core).unwrap();
        assert_eq!(mine + other.join().unwrap(), 3);
    });
}

#[test]
fn loom_enabling_wakes_whoever_slept_through_a_push() {
    model(|| {
        let core = Arc::new(Core::new(4, 1));
        core.configure(&mut |settings| settings.enabled = false);
        let pusher = {
            let core = core.clone();
            thread::spawn(move || core.push_always(7))
        };
        let enabler = {
            let core = core.clone();
            thread::spawn(move || core.configure(&mut |settings| settings.enabled = true))
        };
        assert_eq!(wait(&core).unwrap(), 7);
        pusher.join().unwrap();
        enabler.join().unwrap();
    });
}

#[test]
fn loom_disabling_keeps_the_event() {
    model(|| {
        let core = Arc::new(Core::new(4, 1));
        let waiter = {
            let core = core.clone();
            thread::spawn(move || wait(&core))
        };
        let switcher = {
            let core = core.clone();
            thread::spawn(move || {
                core.configure(&mut |settings| settings.enabled = false);
                core.configure(&mut |settings| settings.enabled = true);
            })
        };
        core.push_always(7);
        assert_eq!(waiter.join().unwrap().unwrap(), 7);
        switcher.join().unwrap();
    });
}

#[test]
fn loom_aborts_and_interrupts_end_every_wait() {
    model(|| {
        let core = Arc::new(Core::<u64>::new(4, 1));
        let waiter = {
            let core = core.clone();
            thread::spawn(move || wait(&core))
        };
        core.abort();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Aborted)));
    });
}

/// A child that feeds an aggregate with its number.
fn feed(child: &Core<u64>, number: usize, list: &Arc<Core<usize>>) {
    let list = list.clone();
    let tell = Box::new(move |met| match met {
        true => list.push_always(number),
        false => list.take_with(|state| state.remove(|&child| child == number)),
    });
    child.set_feed(Some(Feed { tell, drained: false, listed: false }));
}

#[test]
fn loom_a_child_wakes_the_waiter_of_its_aggregate() {
    model(|| {
        let list = Arc::new(Core::new(usize::MAX, 1));
        let child = Arc::new(Core::new(4, 1));
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
        let list = Arc::new(Core::new(usize::MAX, 1));
        let child = Arc::new(Core::new(4, 1));
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

/// A provider's queue by the arm rule: publish, then look at the arming; arm, then look.
struct Fake {
    published: AtomicUsize,
    taken: AtomicUsize,
    armed: AtomicBool,
    /// Rings of the dispatch thread.
    rings: Core<()>,
    /// What ends the sleep of a waiter inside.
    door: Gate,
}

impl Fake {
    fn new() -> Self {
        Self {
            published: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            rings: Core::new(64, 1),
            door: Gate::default(),
        }
    }

    /// The provider completes something; true if the armed notification fired.
    fn complete(&self) -> bool {
        self.published.fetch_add(1, Ordering::SeqCst);
        self.door.open();
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

impl Spring for &Fake {
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

/// The dispatch thread: pumps after every ring until `pumped` completions went through.
fn dispatch(fake: &Arc<Fake>, pump: &Arc<Pump>, core: &Arc<Core<Event>>, pumped: usize) {
    while fake.taken.load(Ordering::SeqCst) < pumped {
        assert!(wait(&fake.rings).is_ok());
        pump.run(&&**fake, core);
    }
}

#[test]
fn loom_the_pump_never_rests_over_a_completion() {
    model(|| {
        let (fake, pump) = (Arc::new(Fake::new()), Arc::new(Pump::new()));
        let core = Arc::new(Core::<Event>::new(8, 1));
        pump.run(&&*fake, &core);
        let provider = {
            let fake = fake.clone();
            thread::spawn(move || {
                fake.complete();
                fake.complete();
            })
        };
        let dispatcher = {
            let (fake, pump, core) = (fake.clone(), pump.clone(), core.clone());
            thread::spawn(move || dispatch(&fake, &pump, &core, 2))
        };
        wait(&core).unwrap();
        wait(&core).unwrap();
        provider.join().unwrap();
        dispatcher.join().unwrap();
    });
}

#[test]
fn loom_a_stalled_pump_goes_on_when_there_is_room() {
    model(|| {
        let (fake, pump) = (Arc::new(Fake::new()), Arc::new(Pump::new()));
        let core = Arc::new(Core::<Event>::new(1, 1));
        fake.complete();
        fake.complete();
        let pumper = {
            let (fake, pump, core) = (fake.clone(), pump.clone(), core.clone());
            thread::spawn(move || pump.run(&&*fake, &core))
        };
        wait(&core).unwrap();
        if pump.is_stalled() {
            pump.run(&&*fake, &core);
        }
        pumper.join().unwrap();
        assert!(core.take().unwrap().is_some());
    });
}

/// A waiter inside the provider's queue, as `Completions::wait` does it.
fn wait_directly(mode: &StagingMode, fake: &Fake) -> Option<()> {
    let _inside = mode.enter()?;
    loop {
        let ticket = fake.door.ticket();
        let mut one = [WorkCompletion::BLANK];
        if (&fake).poll(&mut one) == Ok(1) {
            return Some(());
        }
        if !mode.is_direct() {
            return None;
        }
        if !fake.has_any() {
            fake.door.wait(ticket, None);
        }
    }
}

#[test]
fn loom_a_waiter_goes_over_when_the_mode_turns() {
    model(|| {
        let (fake, pump) = (Arc::new(Fake::new()), Arc::new(Pump::new()));
        let core = Arc::new(Core::<Event>::new(8, 1));
        let mode = Arc::new(StagingMode::new(true));
        let waiter = {
            let (fake, core, mode) = (fake.clone(), core.clone(), mode.clone());
            thread::spawn(move || match wait_directly(&mode, &fake) {
                Some(()) => {}
                None => {
                    wait(&core).unwrap();
                }
            })
        };
        let begin = || {
            pump.run(&&*fake, &core);
            Ok::<_, ()>(())
        };
        assert!(mode.stage(|| fake.door.open(), begin).is_ok());
        if fake.complete() {
            pump.run(&&*fake, &core);
        }
        waiter.join().unwrap();
    });
}

#[test]
fn loom_nobody_sleeps_inside_once_it_is_unsettled() {
    model(|| {
        let (fake, mode) = (Arc::new(Fake::new()), Arc::new(StagingMode::new(true)));
        let core = Arc::new(Core::<Event>::new(8, 1));
        let waiter = {
            let (fake, core, mode) = (fake.clone(), core.clone(), mode.clone());
            thread::spawn(move || {
                if wait_directly(&mode, &fake).is_none() {
                    let staged = mode.stage(|| fake.door.open(), || Ok::<_, ()>(()));
                    assert!(staged.is_ok());
                    assert!(matches!(wait(&core), Err(Error::Aborted)));
                } else {
                    panic!("a completion that does not count ended a wait");
                }
            })
        };
        let unsettled = mode.unsettle(|| false, || fake.door.open(), || Ok::<_, ()>(()));
        assert!(unsettled.is_ok() && mode.is_settled());
        fake.complete();
        core.abort();
        waiter.join().unwrap();
    });
}
