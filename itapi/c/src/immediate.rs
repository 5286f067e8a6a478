//! Immediate Data that a receive brought (RFC 7306 6): taken out of the event, where dequeuing put
//! it. No state.

use super::boundary;
use super::completion::IMMEDIATE;
use super::failure::{Failure, Outcome};
use super::ptr::{self, Out};
use super::status::{self, Status};
use super::types::*;

fn data_of(number: it_event_type_t, flags: it_dto_ud_flags_t, path: it_path_t) -> Outcome<u64> {
    if number != IT_DTO_RC_RECV_CMPL_EVENT {
        let text = format!("event {number:#x} is no completion of a receive");
        return Err(Failure::new(status::IT_ERR_INVALID_EVD_TYPE, text));
    }
    if flags & IMMEDIATE == 0 {
        let text = "the receive brought no immediate data";
        return Err(Failure::new(status::IT_ERR_QUEUE_EMPTY, text));
    }
    Ok(path.timeout)
}

/// One entry point for each layout of events.
macro_rules! event_immediate {
    ($name:ident, $layout:ident) => {
        /// # Safety
        /// Pointers obey the contract of a C caller (see `ptr`).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            event: *const $layout::it_event_t,
            data: *mut u64,
        ) -> Status {
            boundary::call(|| {
                // SAFETY: contract of a C caller.
                let event = unsafe { ptr::read(event, "event") }?;
                // SAFETY: contract of a C caller.
                let out = unsafe { Out::new(data, "data") }?;
                // SAFETY: plain data: every pattern of bits is a value.
                let number = unsafe { event.event_number };
                // SAFETY: plain data, as above.
                let dto = unsafe { event.all_dto_cmpl };
                out.write(data_of(number, dto.flags, dto.src_path)?);
                Ok(())
            })
        }
    };
}

event_immediate! { itw_event_immediate, std_abi }
event_immediate! { itw_event_immediate_zrl, zrl }
