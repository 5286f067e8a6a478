//! Which socket of an address gets a packet: the program that the kernel runs for each.
//!
//! Pure functions. Processes of one user share port 4791 of an address. Each has a *slot*, and the address has a socket for
//! each slot. The numbers that a process chooses begin with its slot: queue pair numbers, and the ids of its exchanges and
//! lookups. So the kernel finds the socket in the packet. Requests, which have no number of this end, go to the process
//! that listens for the service; requests for unknown services go to the process that changed the program last, which
//! refuses them.

use kal_os::udp::Instruction;
use vp_api::{VpResult, room};

/// Slots of a user.
pub(crate) const SLOTS: u8 = 16;

/// Descriptors that an address takes: a socket for each slot, and a copy of this process's.
pub(crate) const DESCRIPTORS: u64 = SLOTS as u64 + 1;

/// Bits of a slot.
const SLOT_BITS: u32 = SLOTS.trailing_zeros();

/// A random queue pair number of a slot.
pub(crate) fn number(slot: u8, random: u32) -> u32 {
    const BITS: u32 = 24 - SLOT_BITS;
    u32::from(slot) << BITS | random & ((1 << BITS) - 1)
}

/// The slot of a queue pair number.
pub(crate) fn slot(number: u32) -> u8 {
    (number >> (24 - SLOT_BITS)) as u8
}

/// A random id of a slot.
pub(crate) fn id(slot: u8, random: u32) -> u32 {
    const BITS: u32 = 32 - SLOT_BITS;
    u32::from(slot) << BITS | random & ((1 << BITS) - 1)
}

// Offsets in the UDP payload: BTH 12, DETH 8, header of a management datagram 24, then the message.
const NUMBER_AT: u32 = 4;
const ATTRIBUTE_AT: u32 = 20 + 16;
const MESSAGE_AT: u32 = 20 + 24;
const OWN_ID_AT: u32 = MESSAGE_AT;
const OTHER_ID_AT: u32 = MESSAGE_AT + 4;
/// The lower half of the service id of both kinds of requests.
const SERVICE_AT: u32 = MESSAGE_AT + 12;

// Attributes of messages (InfiniBand volume 1, 16.7).
const REQ: u32 = 0x10;
const SIDR_REQ: u32 = 0x17;
const SIDR_REP: u32 = 0x18;

// Classes and modes of instructions (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const IF_EQUAL: u16 = 0x15;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;
const RETURN_RESULT: u16 = 0x16;

const fn plain(code: u16, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

const fn if_equal(operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code: IF_EQUAL, if_true, if_false, operand }
}

/// Most services of an address: a program has at most 4096 instructions.
pub(crate) const MAX_SERVICES: usize = 2000;

/// The program for services, each with the slot that listens for it. A packet that is too short goes to slot 0.
pub(crate) fn program(services: &[(u32, u8)], others: u8) -> VpResult<Vec<Instruction>> {
    let head = [
        plain(LOAD_WORD, NUMBER_AT),
        plain(AND, 0xff_ffff),
        if_equal(roce_proto::cm::QPN, 2, 0),
        plain(SHIFT_RIGHT, 24 - SLOT_BITS),
        plain(RETURN_RESULT, 0),
        plain(LOAD_HALF, ATTRIBUTE_AT),
        if_equal(REQ, 7, 0),
        if_equal(SIDR_REQ, 6, 0),
        if_equal(SIDR_REP, 2, 0),
        plain(LOAD_WORD, OTHER_ID_AT),
        plain(JUMP, 1),
        plain(LOAD_WORD, OWN_ID_AT),
        plain(SHIFT_RIGHT, 32 - SLOT_BITS),
        plain(RETURN_RESULT, 0),
        plain(LOAD_WORD, SERVICE_AT),
    ];
    let services = &services[..services.len().min(MAX_SERVICES)];
    let len = head.len() + 2 * services.len() + 1;
    let mut program = room::list("instructions that steer packets", len)?;
    program.extend(head);
    for (service, slot) in services {
        program.extend([if_equal(*service, 0, 1), plain(RETURN, (*slot).into())]);
    }
    program.push(plain(RETURN, others.into()));
    Ok(program)
}
