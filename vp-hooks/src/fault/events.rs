//! Delay queue of connection events. Owned by the hook of one RNIC, under a lock. The provider is polled under this
//! lock, so that the order is kept. Any thread.

use std::collections::VecDeque;
use std::sync::Mutex;

use vp_api::NativeEvent;

use super::lock;
use super::spec::Fate;

/// Events that were taken from the provider and not yet returned to the consumer, each with the number of polls
/// that it still has to wait.
#[derive(Default)]
pub(super) struct Events(Mutex<VecDeque<(u32, NativeEvent)>>);

impl Events {
    /// One poll of the consumer: events that are held back come first, and events after them wait.
    pub(super) fn next(
        &self,
        poll: impl Fn() -> Option<NativeEvent>,
        fate: impl Fn(&NativeEvent) -> Fate,
    ) -> Option<NativeEvent> {
        let mut held = lock(&self.0);
        if let Some((left, _)) = held.front_mut() {
            *left = left.saturating_sub(1);
            return if *left == 0 { held.pop_front().map(|(_, event)| event) } else { None };
        }
        loop {
            let event = poll()?;
            match fate(&event) {
                Fate::Drop => {}
                Fate::Twice => {
                    held.push_back((0, event.clone()));
                    return Some(event);
                }
                Fate::Later(polls) if polls > 0 => {
                    held.push_back((polls, event));
                    return None;
                }
                Fate::Pass | Fate::Later(_) => return Some(event),
            }
        }
    }

    /// Whether no event is held back.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use vp_api::QpId;

    use super::*;

    /// The QPs of the events that twelve polls return.
    fn polled(fates: &[Fate]) -> Vec<u32> {
        let all = (1..=4).map(|qp| NativeEvent::Disconnected { qp: QpId(qp) }).collect();
        let source: RefCell<VecDeque<NativeEvent>> = RefCell::new(all);
        let fates: RefCell<VecDeque<Fate>> = RefCell::new(fates.iter().copied().collect());
        let events = Events::default();
        let poll = || source.borrow_mut().pop_front();
        let fate = |_: &NativeEvent| fates.borrow_mut().pop_front().unwrap_or(Fate::Pass);
        let qp = |event| match event {
            Some(NativeEvent::Disconnected { qp }) => qp.0,
            _ => 0,
        };
        let out = (0..8).map(|_| qp(events.next(poll, fate))).collect();
        assert!(events.is_empty());
        out
    }

    #[test]
    fn events_are_lost_repeated_and_late_and_stay_in_order() {
        assert_eq!(polled(&[]), [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(polled(&[Fate::Pass, Fate::Drop]), [1, 3, 4, 0, 0, 0, 0, 0]);
        assert_eq!(polled(&[Fate::Twice]), [1, 1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(polled(&[Fate::Later(1)]), [0, 1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(polled(&[Fate::Pass, Fate::Later(3)]), [1, 0, 0, 0, 2, 3, 4, 0]);
    }
}
