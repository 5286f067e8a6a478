//! Asynchronous events (ibv_get_async_event(3)).

use std::ffi::c_int;

use ibv_sys::*;

use crate::errno;
use crate::events::Element;
use crate::object;
use crate::verbs::context::context_of;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    errno::minus(context.and_then(|context| {
        let next = context.events().take(context.adapter()?.rnic())?;
        let element = match next.element {
            Element::Handle(at) => event_element { qp: std::ptr::with_exposed_provenance_mut(at) },
            Element::Port(port_num) => event_element { port_num },
        };
        // SAFETY: the caller's structure.
        unsafe { event.write(ibv_async_event { element, event_type: next.kind }) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's structure.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    match event.event_type {
        IBV_EVENT_CQ_ERR => {
            // SAFETY: such events are of a completion queue.
            let cq = unsafe { event.element.cq };
            // SAFETY: it lives until the event is acknowledged.
            if let Ok(cq) = unsafe { object::with(cq) } {
                cq.acks().acked(1);
            }
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: such events are of a shared receive queue.
            let srq = unsafe { event.element.srq };
            // SAFETY: it lives until the event is acknowledged.
            if let Ok(srq) = unsafe { object::with(srq) } {
                srq.acks().acked(1);
            }
        }
        IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
            // SAFETY: such events are of a queue pair.
            let qp = unsafe { event.element.qp };
            // SAFETY: it lives until the event is acknowledged.
            if let Ok(qp) = unsafe { object::with(qp) } {
                qp.acks().acked(1);
            }
        }
        // Not about an object: no destruction waits for it.
        _ => {}
    }
}
