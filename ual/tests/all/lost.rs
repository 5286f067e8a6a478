//! Adapters whose device is lost.

use std::sync::{Arc, Mutex};

use ual::vp_api::{AsyncEvent, AsyncHandler, EventSource, Shortage};

use crate::common::{LOCALHOST, policy};
use crate::fake::{self, Behaviour};

#[test]
fn an_adapter_whose_device_is_lost_says_so_and_is_opened_again_once_for_all() {
    let told: Arc<Mutex<Option<Arc<dyn AsyncHandler>>>> = Arc::default();
    let ual = fake::ual(Behaviour::Told(told.clone()), policy());
    let tell = |event| {
        let handler = told.lock().unwrap().clone().unwrap();
        handler.on_event(EventSource::Rnic, event);
    };
    let first = ual.open("fake").unwrap();
    let shortage = AsyncEvent::ListenShortage {
        listener: (LOCALHOST, 1).into(),
        lacks: Shortage::Descriptors,
    };
    tell(shortage);
    assert!(!first.is_lost());
    tell(AsyncEvent::Catastrophic);
    warpline_patience::until("the loss", || first.is_lost());
    let (one, other) = (first.reopen().unwrap(), first.reopen().unwrap());
    assert!(Arc::ptr_eq(&one, &other));
    assert_eq!((one.is_lost(), one.device(), one.provider()), (false, first.device(), "fake"));
    // The second is lost, too: whoever has the first gets the third.
    tell(AsyncEvent::Catastrophic);
    warpline_patience::until("the second loss", || one.is_lost());
    let third = first.reopen().unwrap();
    assert!(!third.is_lost() && !Arc::ptr_eq(&one, &third));
    assert!(Arc::ptr_eq(&other.reopen().unwrap(), &third));
}
