//! Tests of events in either layout, and of their texts.

use std::ffi::c_char;

use crate::completion::{IMMEDIATE, Resolved};
use crate::event::write::{Abi, Standard, Zurich};
use crate::event::{Fields, itw_event_text, itw_event_text_zrl};
use crate::ptr::{self, Out, Plain};
use crate::types::*;

fn write<A: Abi>(fields: &Fields) -> A::Event {
    let mut event = A::Event::zeroed();
    // SAFETY: room for an event.
    let out = unsafe { Out::new(&raw mut event, "event") }.unwrap();
    A::write(&out, 0xe, fields);
    event
}

fn receive(immediate: Option<u64>) -> Fields {
    Fields::Dto(Resolved {
        event: IT_DTO_RC_RECV_CMPL_EVENT,
        ep: 0xa,
        cookie: [1, 2, 3],
        status: IT_DTO_SUCCESS,
        length: 44,
        unlinked: 0xb,
        immediate,
    })
}

fn say(describe: impl FnOnce(*mut c_char, usize) -> usize) -> String {
    let mut buf = [0; 300];
    assert!(describe(buf.as_mut_ptr(), buf.len()) < 300);
    // SAFETY: the buffer holds a NUL.
    unsafe { ptr::text(buf.as_ptr(), buf.len(), "buf") }.unwrap()
}

fn text(event: &std_abi::it_event_t) -> String {
    // SAFETY: an event as dequeued, and room for 300 octets.
    say(|buf, len| unsafe { itw_event_text(event, buf, len) })
}

#[test]
fn a_completion_carries_the_cookie_of_its_layout() {
    let event = write::<Standard>(&receive(None));
    // SAFETY: plain data; this member was written.
    let dto = unsafe { event.dto_cmpl };
    assert_eq!((dto.evd.addr(), dto.ep.addr(), dto.cookie), (0xe, 0xa, 1));
    assert_eq!((dto.transferred_length, dto.unlinked_mr_handle.addr()), (44, 0xb));
    let event = write::<Zurich>(&receive(None));
    // SAFETY: plain data; this member was written.
    let dto = unsafe { event.dto_cmpl };
    assert_eq!((dto.cookie.first, dto.cookie.second, dto.cookie.extend), (1, 2, 3));
    assert_eq!((dto.transferred_length, dto.unlinked_mr_handle.addr()), (44, 0xb));
}

#[test]
fn immediate_data_stands_where_datagrams_have_their_path() {
    let event = write::<Standard>(&receive(Some(7)));
    // SAFETY: plain data; these members were written.
    let all = unsafe { event.all_dto_cmpl };
    assert_eq!((all.flags, all.src_path.timeout), (IMMEDIATE, 7));
    let event = write::<Zurich>(&receive(None));
    // SAFETY: plain data; these members were written.
    assert_eq!(unsafe { event.all_dto_cmpl }.flags, 0);
}

// [itw_event_text]
#[test]
fn each_event_has_a_text() {
    let event = write::<Standard>(&receive(None));
    let expected = "IT_DTO_RC_RECV_CMPL_EVENT: receive: endpoint 0xa, 44 octets: done";
    assert_eq!(text(&event), expected);
    let event = write::<Zurich>(&receive(None));
    // SAFETY: an event as dequeued, and room for 300 octets.
    let zurich = say(|buf, len| unsafe { itw_event_text_zrl(&raw const event, buf, len) });
    assert_eq!(zurich, expected);
    let number = IT_ASYNC_AFF_SRQ_LOW_WATERMARK;
    let event = write::<Standard>(&Fields::Affiliated { number, cause: 0x77 });
    assert!(text(&event).ends_with("below its low watermark: object 0x77"), "{}", text(&event));
    let number = IT_ASYNC_UNAFF_SPIGOT_OFFLINE;
    let event = write::<Standard>(&Fields::Unaffiliated { number, ia: 1, spigot_id: 3 });
    assert!(text(&event).ends_with("spigot 3 of 0x1"), "{}", text(&event));
    assert!(text(&write::<Standard>(&Fields::Software(5))).ends_with("data 0x5"));
    let notification = write::<Standard>(&Fields::Notification { sevd: 9 });
    assert!(text(&notification).ends_with("event dispatcher 0x9"));
    let strange = std_abi::it_event_t { event_number: 0x1234_5678 };
    assert_eq!(text(&strange), "0x12345678 is no event of this library");
    // SAFETY: NULL is allowed by the contract.
    let nothing = say(|buf, len| unsafe { itw_event_text(std::ptr::null(), buf, len) });
    assert_eq!(nothing, "no event: the pointer is NULL");
}
