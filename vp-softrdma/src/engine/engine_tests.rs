//! Tests of the engine: what it reports about sockets, that it keeps nothing of closed ones, its wake-up
//! descriptor, and when its thread backs off.

use std::cell::Cell;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use vp_api::{Cq, Qp, QpChange, WorkCompletion};
use warpline_patience::{until, within};

use super::{Engine, Member, Ready, Timer, Waited, Watched};
use crate::stream::socket::Stream;
use crate::sync::lock;
use crate::testing::end::{End, pair};
use crate::testing::services;
use kal_os::progress::Mode;

/// Records what it is called with.
#[derive(Default)]
struct Seen(Mutex<Vec<Ready>>);

impl Member for Seen {
    fn on_ready(&self, ready: Ready) {
        self.0.lock().unwrap().push(ready);
    }

    fn on_timer(&self, _: u32, _: Timer) {}
}

const ID: u32 = 7;
const OCTETS: Ready = Ready { writable: false, over: false, life_line: false };
const OVER: Ready = Ready { over: true, ..OCTETS };
const ROOM: Ready = Ready { writable: true, ..OCTETS };

/// An engine that only the test's thread serves.
fn engine() -> Arc<Engine> {
    let engine = Engine::start(services(0), "reports").expect("an engine");
    within("the engine's thread to end", || engine.stop());
    engine
}

impl Watched for UnixStream {}
impl Watched for std::io::PipeWriter {}

/// The same, with a member that has this socket.
fn serving(socket: &impl Watched) -> (Arc<Engine>, Arc<Seen>) {
    let (engine, seen) = (engine(), Arc::new(Seen::default()));
    engine.attach(ID, seen.clone(), socket).expect("room in the set");
    (engine, seen)
}

/// What one poll of the engine reports to the member.
fn reports(engine: &Engine, seen: &Seen) -> Vec<Ready> {
    engine.poll();
    std::mem::take(&mut seen.0.lock().unwrap())
}

#[test]
fn octets_are_reported_once_and_the_end_as_such() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (engine, seen) = serving(&near);
    assert_eq!(reports(&engine, &seen), [], "room to send is no event at first");
    far.write_all(b"x").unwrap();
    assert_eq!(reports(&engine, &seen), [OCTETS]);
    assert_eq!(reports(&engine, &seen), []);
    far.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reports(&engine, &seen), [OVER]);
}

/// A pipe without writers reports HUP, one without readers an error; neither is the end of a direction.
#[test]
fn a_hang_up_and_an_error_are_ends_too() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (engine, seen) = serving(&reader);
    drop(writer);
    assert_eq!(reports(&engine, &seen), [OVER]);
    let (reader, writer) = std::io::pipe().unwrap();
    let (engine, seen) = serving(&writer);
    drop(reader);
    assert_eq!(reports(&engine, &seen), [OVER]);
}

#[test]
fn a_socket_that_is_reported_anew_is_so_with_its_room() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (engine, seen) = serving(&near);
    engine.rearm(ID, &near);
    assert_eq!(reports(&engine, &seen), [ROOM]);
    far.write_all(b"x").unwrap();
    assert_eq!(reports(&engine, &seen), [ROOM], "and octets are reported from then on as well");
    engine.rearm(ID, &near);
    assert_eq!(reports(&engine, &seen), [ROOM]);
}

#[test]
fn a_socket_that_is_put_back_is_reported() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let near = Stream::of(near);
    let (engine, seen) = serving(&*near);
    for (room, expected) in [(false, OCTETS), (true, ROOM)] {
        engine.end_back_off(true, &mut Vec::new());
        assert!(engine.unregister(ID, &near));
        far.write_all(b"x").unwrap();
        assert_eq!(reports(&engine, &seen), [], "it is unregistered");
        assert!(engine.register_again(ID, &near, room));
        assert_eq!(reports(&engine, &seen), [expected]);
    }
}

#[test]
fn no_state_is_kept_of_a_closed_socket() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let near = Stream::of(near);
    let (engine, seen) = (engine(), Arc::new(Seen::default()));
    let stream = engine.attach(ID, seen.clone(), &*near).expect("room in the set");
    engine.set_timer(1, ID, stream, Timer::Close);
    engine.detach(ID, &near);
    assert_eq!((Arc::strong_count(&seen), engine.next_timer()), (1, None));
    engine.attach(ID + 1, seen.clone(), &*near).expect("it is not in the set any more");
    far.write_all(b"x").unwrap();
    assert_eq!(reports(&engine, &seen), [OCTETS]);
}

/// State of this process's thread with this name: R or S.
fn state_of_thread(name: &str) -> Option<char> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let mut states = stats.filter_map(|stat| {
        let (_, rest) = stat.split_once(&format!("({name}) "))?;
        rest.chars().next()
    });
    states.next()
}

#[test]
fn the_thread_sleeps_again_after_it_was_woken() {
    let engine = Engine::start(services(0), "sleeper").expect("an engine");
    let sleeps = || state_of_thread("sleeper") == Some('S');
    until("the thread to sleep", sleeps);
    let before = engine.back_off();
    engine.alarm.set(0, 0);
    until("the thread to decide again", || engine.back_off() != before);
    until("the thread to sleep again", sleeps);
    within("the engine's thread to end", || engine.stop());
    // A joined thread may still be listed for a moment.
    until("the thread to be gone", || state_of_thread("sleeper").is_none());
}

/// The part of a CQ that waiting threads need.
struct Queue(u32);

impl Waited for Queue {
    fn id(&self) -> u32 {
        self.0
    }
    fn announce(&self) {}
    fn withdraw(&self) {}
}

fn is_wakeup_set(engine: &Engine) -> bool {
    let mut fds = [PollFd::new(&engine.leadership.waker().0, PollFlags::IN)];
    poll(&mut fds, Some(&kal_os::timespec(Duration::ZERO))) == Ok(1)
}

// [VERBS-21]
#[test]
fn the_wakeup_stays_set_until_the_leader_has_seen_it() {
    let (engine, mine, other) = (engine(), Queue(1), Queue(2));
    let checks = Cell::new(0);
    assert!(!engine.leadership.has_leader());
    let done = || {
        assert!(engine.leadership.has_leader());
        if checks.replace(checks.get() + 1) == 0 {
            engine.wake(&other);
            assert!(!is_wakeup_set(&engine), "no thread waits for that one");
            engine.wake(&mine);
            engine.poll();
            assert!(is_wakeup_set(&engine), "a poll leaves it to the leader");
        }
        checks.get() == 2
    };
    within("a wait that is done when it checks for the second time", || {
        engine.wait(&mine, None, done, || ())
    });
    assert!(!engine.leadership.has_leader() && !is_wakeup_set(&engine));
    engine.wake(&mine);
    assert!(!is_wakeup_set(&engine), "no thread waits any more");
}

/// The wake-up was for a leader that has already returned.
#[test]
fn a_poller_clears_a_wakeup_without_a_leader() {
    let engine = engine();
    let wakeup = engine.leadership.waker();
    super::Waker::wake(wakeup);
    assert!(is_wakeup_set(&engine));
    engine.poll();
    assert!(!is_wakeup_set(&engine));
    // Reading a wake-up that another thread has cleared must not block.
    assert!(rustix::fs::fcntl_getfl(&wakeup.0).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    assert!(rustix::io::fcntl_getfd(&wakeup.0).unwrap().contains(FdFlags::CLOEXEC));
}

#[test]
fn the_thread_backs_off_while_a_consumer_polls_and_none_relies_on_it() {
    let (end, _peer) = pair(64);
    let decide = || {
        end.cq.poll(&mut [WorkCompletion::BLANK]).unwrap();
        end.engine.progress.decide(|| false)
    };
    assert_eq!(decide(), Mode::BackOff);
    assert_eq!(end.engine.progress.decide(|| false), Mode::Watch, "no thread has polled since");
    end.cq.arm(false).unwrap();
    assert_eq!(decide(), Mode::Watch);
}

/// Both directions have ended.
#[test]
fn a_stream_that_lingers_ends_with_the_peers_fin() {
    let (end, far) = End::against_a_socket(64);
    end.qp.modify(QpChange::Closing).unwrap();
    end.qp.destroy();
    end.engine.poll();
    assert_eq!(lock(&end.engine.lingering).len(), 1);
    far.shutdown(Shutdown::Write).unwrap();
    until("the stream to end", || {
        end.engine.poll();
        lock(&end.engine.lingering).is_empty()
    });
}
