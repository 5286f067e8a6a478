//! Layout of a state page: records of atomics for writers, and the same fields as plain values for readers.
//!
//! Fields are only appended at the end of a record; the test `layout_is_append_only` checks their offsets. Only
//! the process that owns the page writes, each record under its lock; readers validate everything.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// First octets of a page: it is complete.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"WARPLINE");
/// Version of the layout; appending a field does not change it.
pub const VERSION: u32 = 1;
/// Offset of the [`Device`] records.
pub const DEVICES_AT: usize = 1024;
/// Number of [`Device`] records.
pub const DEVICES: usize = 16;
/// Octets of the header and of the device records: where [`Slot`]s begin.
pub const SLOTS_AT: usize = 12 << 10;
/// Counters of connection management in a [`Device`].
pub const CM_COUNTERS: usize = 16;

/// Why an adapter drops packets: malformed, or of no queue pair, key or peer; with a wrong invariant CRC; a datagram for
/// which no receive was posted that is long enough.
pub const DROP_REASONS: [&str; 4] = ["stray", "damaged", "unready", "overrun"];

/// Text of another process for a terminal: `?` for each character that controls it, or changes the direction or the line
/// of what follows.
pub fn printable(text: &str) -> String {
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if controls(c) { '?' } else { c }).collect()
}

/// A field of a record, as an atomic for writers and a plain value for readers.
pub trait Field {
    /// The plain value.
    type Plain;
    /// Reads the value; missing octets are zero.
    fn read(octets: &[u8]) -> Self::Plain;
}

fn octets<const N: usize>(from: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let most = from.len().min(N);
    out[..most].copy_from_slice(&from[..most]);
    out
}

impl Field for AtomicU32 {
    type Plain = u32;
    fn read(from: &[u8]) -> u32 {
        u32::from_ne_bytes(octets(from))
    }
}

impl Field for AtomicU64 {
    type Plain = u64;
    fn read(from: &[u8]) -> u64 {
        u64::from_ne_bytes(octets(from))
    }
}

impl<const N: usize> Field for [AtomicU64; N] {
    type Plain = [u64; N];
    fn read(from: &[u8]) -> [u64; N] {
        std::array::from_fn(|n| AtomicU64::read(from.get(8 * n..).unwrap_or_default()))
    }
}

/// Text of up to `8 * WORDS` octets, filled up with zeros.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Default for Text<WORDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const WORDS: usize> Text<WORDS> {
    /// Stores as much of `text` as fits.
    pub fn set(&self, text: &str) {
        let mut rest = text.as_bytes();
        for word in &self.0 {
            let (now, later) = rest.split_at(rest.len().min(8));
            word.store(u64::from_ne_bytes(octets(now)), Relaxed);
            rest = later;
        }
    }
}

impl<const WORDS: usize> Field for Text<WORDS> {
    type Plain = String;
    fn read(from: &[u8]) -> String {
        let from = &from[..from.len().min(8 * WORDS)];
        let text = from.split(|octet| *octet == 0).next().unwrap_or_default();
        printable(&String::from_utf8_lossy(text))
    }
}

/// An address and a port, or none.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Address {
    /// 4 or 6, in the lower half; the port above.
    kind: AtomicU64,
    octets: [AtomicU64; 2],
}

impl Address {
    /// Sets it.
    pub fn set(&self, address: Option<SocketAddr>) {
        let (kind, octets) = match address.map(|address| (address.ip().to_canonical(), address)) {
            None => (0, 0),
            Some((IpAddr::V4(ip), address)) => {
                (4 | u64::from(address.port()) << 32, u128::from(u32::from(ip)))
            }
            Some((IpAddr::V6(ip), address)) => {
                (6 | u64::from(address.port()) << 32, u128::from(ip))
            }
        };
        self.octets[0].store(octets as u64, Relaxed);
        self.octets[1].store((octets >> 64) as u64, Relaxed);
        self.kind.store(kind, Relaxed);
    }
}

impl Field for Address {
    type Plain = Option<SocketAddr>;
    fn read(from: &[u8]) -> Option<SocketAddr> {
        let [kind, low, high] = <[AtomicU64; 3]>::read(from);
        let octets = u128::from(low) | u128::from(high) << 64;
        let port = (kind >> 32) as u16;
        match kind as u32 {
            4 => Some(SocketAddr::new(IpAddr::V4((octets as u32).into()), port)),
            6 => Some(SocketAddr::new(IpAddr::V6(octets.into()), port)),
            _ => None,
        }
    }
}

macro_rules! record {
    ($(#[$of:meta])+ $live:ident, $(#[$seen:meta])+ $plain:ident { $($(#[$doc:meta])+ $field:ident: $type:ty,)+ }) => {
        $(#[$of])+
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct $live {
            $($(#[$doc])+ pub $field: $type,)+
        }

        $(#[$seen])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $plain {
            $($(#[$doc])+ pub $field: <$type as Field>::Plain,)+
        }

        impl $plain {
            /// Reads the record; missing octets are zero.
            pub fn read(octets: &[u8]) -> Self {
                Self {
                    $($field: <$type>::read(
                        octets.get(offset_of!($live, $field)..).unwrap_or_default(),
                    ),)+
                }
            }
        }

        #[cfg(test)]
        impl $live {
            fn places() -> Vec<(&'static str, usize)> {
                vec![$((stringify!($field), offset_of!($live, $field)),)+]
            }
        }
    };
}

record! {
    /// Header of a page: the process, and the offsets and sizes of the records.
    Header,
    /// A process, from its page.
    Process {
        /// [`MAGIC`], stored last.
        magic: AtomicU64,
        /// [`VERSION`].
        version: AtomicU32,
        /// Octets of a header.
        header_size: AtomicU32,
        /// Offset of the device records.
        devices_at: AtomicU32,
        /// Octets of each.
        device_size: AtomicU32,
        /// Number of device records.
        devices: AtomicU32,
        /// Offset of the slots.
        slots_at: AtomicU32,
        /// Octets of each.
        slot_size: AtomicU32,
        /// Number of slots now; it grows.
        slots: AtomicU32,
        /// The process.
        pid: AtomicU32,
        /// User id of the process.
        uid: AtomicU32,
        /// When it started, in clock ticks since the machine did (proc(5): `starttime`).
        start: AtomicU64,
        /// Inode of its namespace of process ids.
        pid_namespace: AtomicU64,
        /// The run of the machine (`/proc/sys/kernel/random/boot_id`).
        boot_id: [AtomicU64; 2],
        /// Queue pairs without a slot, because the page is full.
        unpublished: AtomicU64,
        /// Version of the library.
        library: Text<4>,
        /// The program.
        exe: Text<32>,
    }
}

record! {
    /// An adapter: an open device.
    Device,
    /// An adapter, from its record.
    DeviceState {
        /// Generation, as that of a [`Slot`].
        generation: AtomicU64,
        /// 1: the record is in use.
        used: AtomicU32,
        /// Its creator: 1 IT-API's access layer, 2 the verbs libraries.
        face: AtomicU32,
        /// Name of the device.
        name: Text<8>,
        /// Name of its provider.
        provider: Text<8>,
        /// Counts of connection management, in the order of its counters.
        cm: [AtomicU64; CM_COUNTERS],
        /// Memory regions.
        regions: AtomicU64,
        /// Octets in them; memory that is registered twice counts twice.
        region_octets: AtomicU64,
        /// Completion queues.
        cqs: AtomicU64,
        /// Queue pairs.
        qps: AtomicU64,
        /// Times that a thread slept because there were no completions, events or octets.
        sleeps: AtomicU64,
        /// Times that the engine's own thread served a stream.
        engine_served: AtomicU64,
        /// Packets that arrived and were dropped, in the order of [`DROP_REASONS`].
        dropped: [AtomicU64; DROP_REASONS.len()],
        /// Polls that found no completion.
        vain_polls: AtomicU64,
        /// Times that a program asked to be notified of completions.
        arms: AtomicU64,
        /// Threads of the program that wait for completions or events at this moment.
        waiting: AtomicU64,
    }
}

record! {
    /// A queue pair.
    Slot,
    /// A queue pair, from its record.
    QueuePair {
        /// Even, and different for each queue pair; odd while the record is assigned or released.
        generation: AtomicU64,
        /// 1: the record is in use.
        used: AtomicU32,
        /// Its id.
        qp: AtomicU32,
        /// The index of its adapter's record.
        device: AtomicU32,
        /// [`flag`]s of the present or last stream.
        flags: AtomicU32,
        /// When the stream began, in nanoseconds of CLOCK_MONOTONIC; 0: there was none.
        began: AtomicU64,
        /// Address of this end.
        local: Address,
        /// Of the peer.
        remote: Address,
        /// Requests that the send queue takes.
        send_depth: AtomicU32,
        /// Requests that the receive queue takes; 0: a shared one.
        recv_depth: AtomicU32,
        /// IRD in the lower half, ORD in the upper half.
        ird_ord: AtomicU32,
        /// Octets of payload and header in the largest FPDU; of RoCE the path MTU.
        mulpdu: AtomicU32,
        /// The rule that decided about the connection, counted from 1; 0: none.
        rule: AtomicU32,
        /// RoCE: RNR NAKs of the peer, which had no receive.
        not_ready: AtomicU32,
        /// A [`state`].
        state: AtomicU32,
        /// The last Terminate: 1 sent, 2 received, in the highest octet, then layer, type and code; 0: none. Of RoCE
        /// an [`end`].
        terminate: AtomicU32,
        /// Outstanding requests of the send queue.
        sends_outstanding: AtomicU32,
        /// Receives that wait for a message; 0 with a shared receive queue.
        recvs_posted: AtomicU32,
        /// RoCE: how often requests were sent again after a time-out or a report of loss.
        repeats: AtomicU32,
        /// Requests that a full queue refused.
        posts_refused: AtomicU32,
        /// FPDUs; of RoCE packets, those that are sent again included.
        fpdus_sent: AtomicU64,
        /// FPDUs; of RoCE packets, repeated ones included.
        fpdus_received: AtomicU64,
        /// Payload.
        octets_sent: AtomicU64,
        /// Payload.
        octets_received: AtomicU64,
        /// Messages of the send queue: Sends, Writes, Read Requests, atomics. Of RoCE those that the peer
        /// acknowledged, and the zero-length Writes by which this end asks whether it lives.
        messages_sent: AtomicU64,
        /// Messages of the peer, Read Responses included, and the zero-length Writes by which its stack begins a
        /// stream and asks whether this end lives.
        messages_received: AtomicU64,
        /// Read and atomic Responses to the peer.
        responses_sent: AtomicU64,
        /// Times that the send queue waited because ORD was used up.
        ord_stalls: AtomicU64,
        /// Calls that sent.
        send_calls: AtomicU64,
        /// Calls that received; 0 of RoCE, where one socket receives for all queue pairs.
        recv_calls: AtomicU64,
        /// Times that the socket was full.
        send_stalls: AtomicU64,
        /// Times that a thread served the stream and sent or received octets.
        visits: AtomicU64,
        /// Messages that had to wait for a receive.
        waited_for_receive: AtomicU64,
        /// Why the stream of two processes on one host uses TCP: the reason's code; empty: it does not, or the
        /// reason is not known.
        why_tcp: Text<2>,
        /// RoCE: number of this queue pair in the lower half, that of the peer's in the upper half.
        numbers: AtomicU64,
        /// What the program says of the connection: of a channel its session.
        note: Text<32>,
    }
}

/// Bits of [`QueuePair::flags`].
pub mod flag {
    /// FPDUs have a CRC.
    pub const CRC: u32 = 1 << 0;
    /// Outbound FPDUs have markers.
    pub const MARKERS_SENT: u32 = 1 << 1;
    /// Inbound FPDUs have markers.
    pub const MARKERS_RECEIVED: u32 = 1 << 2;
    /// This end initiated the stream. Neither this nor [`RESPONDER`]: neither end did, as with bring-up by path.
    pub const INITIATOR: u32 = 1 << 3;
    /// The stream uses shared memory instead of TCP.
    pub const LOCAL_STREAM: u32 = 1 << 4;
    /// The provider updates the record; otherwise it only shows that the queue pair exists.
    pub const WRITTEN: u32 = 1 << 5;
    /// The transport is RoCE v2.
    pub const ROCE: u32 = 1 << 6;
    /// The peer initiated the stream.
    pub const RESPONDER: u32 = 1 << 7;
}

/// Why a connection on RoCE ended: values of [`QueuePair::terminate`]. 0: one of its ends disconnected.
pub mod end {
    /// The peer did not acknowledge a request.
    pub const NO_REPLY: u32 = 3 << 24 | 1;
    /// The peer had no receive for longer than the limit.
    pub const NOT_READY: u32 = 3 << 24 | 2;
    /// The peer refused a request of this end.
    pub const REFUSED_BY_PEER: u32 = 3 << 24 | 3;
    /// This end refused a request of the peer.
    pub const REFUSED: u32 = 3 << 24 | 4;
    /// Memory of a request of this end could not be used.
    pub const LOCAL_FAULT: u32 = 3 << 24 | 5;
    /// A packet is too long for the path.
    pub const TOO_LONG: u32 = 3 << 24 | 6;

    /// What it means; `None`: not one of these.
    pub fn name(end: u32) -> Option<&'static str> {
        Some(match end {
            NO_REPLY => "the peer did not acknowledge a request",
            NOT_READY => "the peer had no receive for too long",
            REFUSED_BY_PEER => "the peer refused a request",
            REFUSED => "this end refused a request of the peer",
            LOCAL_FAULT => "memory of a request could not be used",
            TOO_LONG => "a packet was too long for the path",
            _ => return None,
        })
    }
}

/// Values of [`QueuePair::state`].
pub mod state {
    /// No stream yet.
    pub const IDLE: u32 = 0;
    /// Ready to send.
    pub const RTS: u32 = 1;
    /// It is being closed in order.
    pub const CLOSING: u32 = 2;
    /// It ends by a Terminate.
    pub const TERMINATE: u32 = 3;
    /// It has ended.
    pub const ERROR: u32 = 4;

    /// Its name.
    pub fn name(state: u32) -> &'static str {
        match state {
            IDLE => "Idle",
            RTS => "RTS",
            CLOSING => "Closing",
            TERMINATE => "Terminate",
            ERROR => "Error",
            _ => "?",
        }
    }
}

/// Octets of a [`Slot`].
pub const SLOT: usize = size_of::<Slot>();
/// Octets of the shortest [`Slot`] of version 1: the fields behind these were appended.
pub const SHORTEST_SLOT: usize = 256;
/// Octets of a [`Device`].
pub const DEVICE: usize = size_of::<Device>();
const _: () = assert!(SLOT == 512 && size_of::<Header>() <= DEVICES_AT);
// The section grows by pages, which slots fill.
const _: () = assert!(4096 % SLOT == 0);
const _: () = assert!(DEVICES_AT + DEVICES * DEVICE <= SLOTS_AT && SLOTS_AT.is_multiple_of(4096));

/// Reassigns a record: `change` runs while its generation is odd.
pub fn change(generation: &AtomicU64, change: impl FnOnce()) {
    use std::sync::atomic::{Ordering, fence};
    let now = generation.load(Relaxed) | 1;
    generation.store(now, Relaxed);
    fence(Ordering::Release);
    change();
    generation.store(now.wrapping_add(1), Ordering::Release);
}

impl Device {
    /// Clears the record and marks it free.
    pub fn clear(&self) {
        change(&self.generation, || {
            self.used.store(0, Relaxed);
            self.name.set("");
            self.provider.set("");
            let counts = [
                &self.regions,
                &self.region_octets,
                &self.cqs,
                &self.qps,
                &self.sleeps,
                &self.engine_served,
                &self.vain_polls,
                &self.arms,
                &self.waiting,
            ];
            let lists = self.cm.iter().chain(&self.dropped);
            counts.into_iter().chain(lists).for_each(|count| count.store(0, Relaxed));
        });
    }
}

impl Device {
    /// Counts a poll that found no completion. A hint, so that threads that poll do not wait for one another.
    pub fn count_vain_poll(&self) {
        self.vain_polls.store(self.vain_polls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts the calling thread as one that waits, until the result is dropped.
    pub fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(self)
    }
}

/// A thread that waits ([`Device::wait`]).
#[derive(Debug)]
pub struct Waiting<'a>(&'a Device);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Slot {
    /// Clears the record and marks it free.
    pub fn clear(&self) {
        let fresh = Self::default();
        change(&self.generation, || {
            for (to, from) in self.words().into_iter().zip(fresh.words()) {
                to.store(from.load(Relaxed), Relaxed);
            }
            for to in self.halves() {
                to.store(0, Relaxed);
            }
            self.local.set(None);
            self.remote.set(None);
            self.why_tcp.set("");
            self.note.set("");
        });
    }

    fn words(&self) -> [&AtomicU64; 15] {
        [
            &self.began,
            &self.fpdus_sent,
            &self.fpdus_received,
            &self.octets_sent,
            &self.octets_received,
            &self.messages_sent,
            &self.messages_received,
            &self.responses_sent,
            &self.ord_stalls,
            &self.send_calls,
            &self.recv_calls,
            &self.send_stalls,
            &self.visits,
            &self.waited_for_receive,
            &self.numbers,
        ]
    }

    fn halves(&self) -> [&AtomicU32; 16] {
        [
            &self.used,
            &self.qp,
            &self.device,
            &self.flags,
            &self.send_depth,
            &self.recv_depth,
            &self.ird_ord,
            &self.mulpdu,
            &self.rule,
            &self.not_ready,
            &self.state,
            &self.terminate,
            &self.sends_outstanding,
            &self.recvs_posted,
            &self.repeats,
            &self.posts_refused,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_append_only() {
        let header = Header::places();
        let begin = [("magic", 0), ("version", 8), ("header_size", 12), ("devices_at", 16)];
        assert_eq!(header[..4], begin);
        assert_eq!(
            header[13..],
            [("boot_id", 64), ("unpublished", 80), ("library", 88), ("exe", 120)]
        );
        let device = Device::places();
        assert_eq!(
            device[..6],
            [
                ("generation", 0),
                ("used", 8),
                ("face", 12),
                ("name", 16),
                ("provider", 80),
                ("cm", 144)
            ]
        );
        assert_eq!(
            device[6..],
            [
                ("regions", 272),
                ("region_octets", 280),
                ("cqs", 288),
                ("qps", 296),
                ("sleeps", 304),
                ("engine_served", 312),
                ("dropped", 320),
                ("vain_polls", 352),
                ("arms", 360),
                ("waiting", 368)
            ]
        );
        let slot = Slot::places();
        assert_eq!(
            slot[..8],
            [
                ("generation", 0),
                ("used", 8),
                ("qp", 12),
                ("device", 16),
                ("flags", 20),
                ("began", 24),
                ("local", 32),
                ("remote", 56)
            ]
        );
        assert_eq!(
            slot[8..14],
            [
                ("send_depth", 80),
                ("recv_depth", 84),
                ("ird_ord", 88),
                ("mulpdu", 92),
                ("rule", 96),
                ("not_ready", 100)
            ]
        );
        assert_eq!(
            slot[14..20],
            [
                ("state", 104),
                ("terminate", 108),
                ("sends_outstanding", 112),
                ("recvs_posted", 116),
                ("repeats", 120),
                ("posts_refused", 124)
            ]
        );
        assert_eq!(slot[20], ("fpdus_sent", 128));
        assert_eq!(
            slot[32..],
            [("waited_for_receive", 224), ("why_tcp", 232), ("numbers", 248), ("note", 256)]
        );
    }

    #[test]
    fn fields_that_are_set_are_read() {
        let address = Address::default();
        for text in ["1.2.3.4:5", "[::1]:65535", "[fe80::1]:0"] {
            let set: SocketAddr = text.parse().unwrap();
            address.set(Some(set));
            assert_eq!(Address::read(&dump(&address_words(&address))), Some(set));
        }
        address.set(Some("[::ffff:1.2.3.4]:5".parse().unwrap()));
        assert_eq!(
            Address::read(&dump(&address_words(&address))),
            Some("1.2.3.4:5".parse().unwrap())
        );
        address.set(None);
        assert_eq!(Address::read(&dump(&address_words(&address))), None);
        let text = Text::<2>::default();
        for (set, read) in [
            ("a", "a"),
            ("0123456789abcdefg", "0123456789abcdef"),
            ("", ""),
            ("x\u{1b}[2Jy", "x?[2Jy"),
            ("x\u{9b}2J\u{202e}y", "x?2J?y"),
        ] {
            text.set(set);
            assert_eq!(Text::<2>::read(&dump(&text.0.each_ref().map(|w| w.load(Relaxed)))), read);
        }
    }

    #[test]
    fn a_cleared_slot_keeps_only_its_generation() {
        let slot = Slot::default();
        slot.words().iter().for_each(|word| word.store(7, Relaxed));
        slot.halves().iter().for_each(|half| half.store(7, Relaxed));
        slot.local.set(Some("1.2.3.4:5".parse().unwrap()));
        slot.remote.set(Some("1.2.3.4:5".parse().unwrap()));
        assert_eq!(
            15 * 8 + 16 * 4 + 8 + 2 * 24 + 16 + 256,
            SLOT,
            "a new field is to be cleared, too"
        );
        slot.clear();
        assert_eq!(slot.generation.load(Relaxed), 2);
        assert!(slot.words().iter().all(|word| word.load(Relaxed) == 0));
        assert!(slot.halves().iter().all(|half| half.load(Relaxed) == 0));
        assert_eq!(address_words(&slot.local)[0], 0);
    }

    fn address_words(address: &Address) -> [u64; 3] {
        let Address { kind, octets: [low, high] } = address;
        [kind, low, high].map(|word| word.load(Relaxed))
    }

    fn dump(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
