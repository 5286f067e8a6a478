//! A queue pair of RoCE v2 and a peer that sends anything: memory is touched only where the host allows it,
//! every request completes once, and what is owed stays bounded.
//!
//! Set-up octets: path MTU, window, which requests are posted. Then packets, each after an octet that says
//! how far its PSN is from the first (signed), and one that says how many octets it has.

use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::Message;
use roce_proto::decode::{explain, explain_front};
use roce_proto::psn::Psn;
use roce_proto::rc::{
    Access, AccessError, AtomicOp, Delivered, Host, Mtu, Post, Qp, RcConfig, SendOp, Transmit,
};
use roce_proto::wire::packet::Packet;

use crate::set_up;

const FIRST: Psn = Psn::new(0xff_fffc);
const RKEY: u32 = 0x0101_0101;
const REGION: u64 = 1 << 12;
const RECEIVE: u64 = 600;
const POSTS: u32 = 8;
const RESOURCES: u8 = 2;

/// Runs one input.
pub fn run(input: &[u8]) {
    let ([mtu, window, kinds], mut packets) = set_up(input);
    let _ = explain(packets, None);
    let _ = explain_front(packets, packets.len() + usize::from(kinds));
    let _ = Mad::parse(packets).map(|mad| Message::parse(&mad));
    let config = RcConfig {
        destination: 0x11,
        mtu: if mtu & 1 == 0 { Mtu::Octets256 } else { Mtu::Octets1024 },
        send_psn: FIRST,
        receive_psn: FIRST,
        retry_count: 3,
        rnr_retry: 3,
        rnr_limit: Some(1_000),
        ack_timeout: Some(100),
        count_after: 250,
        min_rnr_timer: 1,
        initiator_depth: RESOURCES,
        responder_resources: RESOURCES,
        window: 1 + u16::from(window & 15),
        send_depth: POSTS,
    };
    let Ok(mut qp) = Qp::new(config) else { return };
    let mut host = Grants::default();
    for slot in 0..POSTS {
        let post = Post { slot, op: operation(kinds.rotate_left(slot)), len: 8, solicited: false };
        assert_eq!(qp.post(post), Ok(()));
    }
    let (mut now, mut done) = (0, Vec::new());
    while let [offset, len, rest @ ..] = packets {
        let (octets, rest) = rest.split_at(rest.len().min(usize::from(*len) + 4));
        packets = rest;
        let mut octets = octets.to_vec();
        let offset = i32::from(*offset as i8);
        let psn =
            if offset < 0 { FIRST.minus(offset.unsigned_abs()) } else { FIRST.plus(offset as u32) };
        if let Some(place) = octets.get_mut(9..12) {
            place.copy_from_slice(&psn.get().to_be_bytes()[1..]);
        }
        if let Ok(packet) = Packet::parse(&octets) {
            qp.handle_packet(now, &packet, &mut host);
        }
        drain(&mut qp, now);
        now += 40;
        qp.handle_timeout(now);
        done.extend(std::iter::from_fn(|| qp.poll_completion()));
    }
    qp.flush();
    done.extend(std::iter::from_fn(|| qp.poll_completion()));
    let slots: Vec<_> = done.iter().map(|completion| completion.slot).collect();
    assert_eq!(slots, (0..POSTS).collect::<Vec<_>>());
}

fn operation(kinds: u8) -> SendOp {
    match kinds & 3 {
        0 => SendOp::Send { immediate: None, invalidate: None },
        1 => SendOp::Write { address: 0, rkey: RKEY, immediate: Some(1) },
        2 => SendOp::Read { address: 0, rkey: RKEY },
        _ => SendOp::Atomic { address: 0, rkey: RKEY, op: AtomicOp::FetchAdd { add: 1 } },
    }
}

/// What is sent between two packets of the peer is bounded: the window, and replies.
fn drain(qp: &mut Qp, now: u64) {
    let responses = REGION as usize / 256 * usize::from(RESOURCES);
    let most = 16 + responses + 2 * usize::from(RESOURCES) + 4;
    let sent = std::iter::from_fn(|| qp.poll_transmit(now)).take(most + 1);
    let sent: Vec<Transmit> = sent.collect();
    assert!(sent.len() <= most, "{} packets at once", sent.len());
}

/// Grants [`REGION`] octets under [`RKEY`], and never runs out of receives.
#[derive(Default)]
struct Grants {
    granted: Option<(u64, u64)>,
    taken: u32,
    given: u32,
}

impl Host for Grants {
    fn take_receive(&mut self) -> Option<u64> {
        assert_eq!(self.taken, self.given, "two receives at once");
        self.taken += 1;
        Some(RECEIVE)
    }
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        assert!(self.taken > self.given && u64::from(offset) + octets.len() as u64 <= RECEIVE);
        Ok(())
    }
    fn complete_receive(&mut self, _: Delivered) {
        self.given += 1;
    }
    fn fail_receive(&mut self) {
        self.given += 1;
    }
    fn allows(&mut self, _: Access, _: &roce_proto::wire::extended::Reth) -> bool {
        true
    }
    fn check(
        &mut self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), AccessError> {
        assert_ne!(len, 0);
        let end = address.checked_add(u64::from(len)).ok_or(AccessError)?;
        if rkey != RKEY || end > REGION {
            return Err(AccessError);
        }
        if access == Access::Write {
            self.granted = Some((address, end));
        }
        Ok(())
    }
    fn place(&mut self, rkey: u32, address: u64, octets: &[u8]) -> Result<(), AccessError> {
        let (start, end) = self.granted.expect("a Write that was not checked");
        assert!(rkey == RKEY && address >= start && address + octets.len() as u64 <= end);
        Ok(())
    }
    fn atomic(&mut self, rkey: u32, address: u64, _: AtomicOp) -> Result<u64, AccessError> {
        assert!(rkey == RKEY && address + 8 <= REGION && address.is_multiple_of(8));
        Ok(address)
    }
    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        if rkey == RKEY { Ok(()) } else { Err(AccessError) }
    }
    fn place_response(&mut self, slot: u32, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        assert!(slot < POSTS && offset as usize + octets.len() <= 8);
        Ok(())
    }
}
