//! Two ends that cannot have a local stream send the same octets over TCP, whether their policies allow one or
//! not. A relay between them, which is the peer of each end, records the octets.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use ual_cm::{
    AcceptParams, ConnectParams, Crc, Disconnect, LocalStreams, Markers, NotLocal, PeerToPeer,
    Policy,
};
use vp_api::{
    Access, Addressing, Data, MemRange, MrInit, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge,
    Stag,
};

use crate::common::{Machine, TestEndpoint, as_connectee, next};
use crate::local::established;

/// Octets of a message: one FPDU. The sizes of several FPDUs would depend on the room in the socket.
const LEN: usize = 1000;

/// Octets of one direction, until its end.
fn copy(mut from: TcpStream, mut to: TcpStream) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut all, mut octets) = (Vec::new(), [0; 65_536]);
        // A reset is an end, too.
        while let Ok(len @ 1..) = from.read(&mut octets) {
            all.extend_from_slice(&octets[..len]);
            let _ = to.write_all(&octets[..len]);
        }
        let _ = to.shutdown(Shutdown::Write);
        all
    })
}

/// Relays one connection; returns its address, and the octets of both directions.
fn relay(to: SocketAddr) -> (SocketAddr, JoinHandle<[Vec<u8>; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let recorded = std::thread::spawn(move || {
        let (near, far) = (listener.accept().unwrap().0, TcpStream::connect(to).unwrap());
        let there = copy(near.try_clone().unwrap(), far.try_clone().unwrap());
        let back = copy(far, near);
        [there, back].map(|one| one.join().unwrap())
    });
    (address, recorded)
}

/// Memory of an end that its peer may read and write, addressed from 0.
fn memory(of: &Machine) -> Stag {
    let octets = (0..LEN as u64 / 8).map(|n| AtomicU64::new(n.wrapping_mul(0x9e37_79b9)));
    let octets: Arc<Vec<AtomicU64>> = Arc::new(octets.collect());
    let addr = std::ptr::NonNull::new(octets.as_ptr().cast_mut().cast()).unwrap();
    // SAFETY: the atomics live as long as the range.
    let range = unsafe { MemRange::owned(addr, LEN, octets) };
    let init = MrInit {
        pd: of.pd,
        range,
        addressing: Addressing::ZeroBased,
        access: Access::LOCAL | Access::REMOTE,
        key: 0x5a,
        pin: false,
    };
    of.rnic.register_mr(&init).unwrap()
}

fn post(at: &Machine, from: &TestEndpoint, op: SendOp, sge: Sge) {
    let flags = SendFlags::SIGNALED;
    from.qp.post_send(&[SendWr { wr_id: 1, op, data: Data::Sgl(&[sge]), flags }]).unwrap();
    assert_eq!(at.completion().wr_id, 1);
}

/// An adapter with a protection domain and memory, so that STags are the same under every policy.
struct Adapter {
    machine: Machine,
    stag: Stag,
}

impl Adapter {
    fn new() -> Self {
        let machine = Machine::new();
        let stag = memory(&machine);
        Self { machine, stag }
    }

    fn with(&self, policy: &Policy) -> Machine {
        let Machine { rnic, pd, .. } = &self.machine;
        Machine { pd: *pd, ..Machine::of(rnic.clone(), policy.clone()) }
    }
}

/// One connection with an operation of every kind in each direction; returns the octets of both directions.
fn carried(adapters: &[Adapter; 2], policies: [&Policy; 2]) -> [Vec<u8>; 2] {
    let due = policies.map(|own| match own.local {
        LocalStreams::Off => NotLocal::Policy,
        _ => NotLocal::PeerPlain,
    });
    let [near, far] = [0, 1].map(|end: usize| adapters[end].with(policies[end]));
    let [mine, theirs] = adapters.each_ref().map(|adapter| adapter.stag);
    let listener = far.listener();
    let (address, recorded) = relay(listener.address);
    let (active, events) = near.endpoint();
    let (passive, passive_events) = far.endpoint();
    let params = ConnectParams { private_data: b"hello".to_vec(), ..ConnectParams::new(address) };
    near.cm.connect(&as_connectee(&active), params).unwrap();
    let request = next(&listener.requests, "request");
    let params = AcceptParams { private_data: b"welcome".to_vec(), ..AcceptParams::default() };
    far.cm.accept(&as_connectee(&passive), request.request, params).unwrap();
    let made = [next(&events, "event"), next(&passive_events, "event")].map(established);
    assert_eq!(made.map(|made| made.local), due.map(Err));
    for (at, from, own, to_at, to, peers) in [
        (&near, &active, mine, &far, &passive, theirs),
        (&far, &passive, theirs, &near, &active, mine),
    ] {
        let all = Sge { stag: own, len: LEN as u32, to: 0 };
        let remote = Remote { stag: peers, to: 0 };
        post(at, from, SendOp::Write { remote }, all);
        post(at, from, SendOp::Read { remote, invalidate_sink: false }, all);
        to.qp.post_recv(&[RecvWr { wr_id: 2, sgl: &[Sge { stag: peers, ..all }] }]).unwrap();
        post(at, from, SendOp::Send { solicited: false, invalidate: None }, all);
        assert_eq!(to_at.completion().wr_id, 2);
    }
    near.cm.disconnect(&as_connectee(&active), Disconnect::Graceful).unwrap();
    next(&events, "end");
    next(&passive_events, "end");
    recorded.join().unwrap()
}

#[test]
fn a_plain_peer_gets_the_same_octets_of_a_whole_connection() {
    let adapters = [Adapter::new(), Adapter::new()];
    let rtr = |send, write, read| PeerToPeer { send, write, read };
    for (revision, peer_to_peer, crc) in [
        (1, PeerToPeer::default(), Crc::Prefer),
        (1, PeerToPeer::default(), Crc::Off),
        (2, PeerToPeer::default(), Crc::Prefer),
        (2, rtr(true, false, false), Crc::Require),
        (2, rtr(false, true, false), Crc::Prefer),
        (2, rtr(false, false, true), Crc::Off),
    ] {
        let policy = |local| Policy {
            revision,
            peer_to_peer,
            crc,
            markers: Markers::Off,
            // What depends on time.
            kick_after: None,
            probe_after: None,
            local,
            ..Policy::default()
        };
        let (auto, off) = (policy(LocalStreams::Auto), policy(LocalStreams::Off));
        let due = carried(&adapters, [&off, &off]);
        assert!(due.iter().all(|way| way.len() > 3 * LEN), "{:?}", due.map(|way| way.len()));
        for (near, far) in [(&auto, &off), (&off, &auto), (&auto, &auto)] {
            let seen = carried(&adapters, [near, far]);
            for (way, (seen, due)) in ["there", "back"].into_iter().zip(seen.iter().zip(&due)) {
                let differs = seen.iter().zip(due).position(|(one, other)| one != other);
                let lengths = (seen.len(), due.len());
                assert!(
                    differs.is_none() && lengths.0 == lengths.1,
                    "revision {revision}, {peer_to_peer:?}, {way}: {differs:?} of {lengths:?}"
                );
            }
        }
    }
}
