//! Every FPDU and stream vector fed to a QP: exact effects of valid ones, the exact Terminate of
//! invalid ones, whatever the chunking and the role.
//!
//! Owner of the state: each run its own; one thread. The peer is the vector.

use iwarp_proto::mpa::Rx;
use iwarp_proto::wire::ddp::{self, Header, TaggedRepr, UntaggedRepr};
use iwarp_proto::wire::rdmap::{AtomicResponseRepr, Control, Opcode, ReadRequestRepr};
use iwarp_proto::{
    Immediate, QpConfig, QpEvent, Receive, Role, SendOp, Stag, State, Status, StreamConfig,
    StreamPosition, TerminateCode,
};
use serde_json::Value;

use crate::common::{check_each, crc32c, load, number, octets};
use crate::craft::{add_slowly, decode_with, write};
use crate::sim::memory::{Received, Region, Rights, Work};
use crate::sim::{CONFIG, End, STREAM, plain};

/// A vector's receiver state: its context over the base context.
struct Context(Value);

impl Context {
    fn new(file: &Value, vector: &Value) -> Self {
        let own = &vector["context"];
        let base = own["base"].as_str().unwrap_or("rx0");
        let mut all = file["contexts"][base].clone();
        for (key, value) in own.as_object().into_iter().flatten() {
            all[key] = match (&all[key], value) {
                // Numbers by queue: only those named change
                (Value::Object(old), Value::Object(new)) => {
                    Value::Object(old.clone().into_iter().chain(new.clone()).collect())
                }
                _ => value.clone(),
            };
        }
        Self(all)
    }
    fn flag(&self, key: &str) -> bool {
        self.0[key] == Value::Bool(true)
    }
    fn number(&self, key: &str) -> u64 {
        number(&self.0[key]).unwrap_or(0)
    }
    fn list(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.0[key].as_array().into_iter().flatten()
    }
    fn next_msn(&self, queue: usize) -> u32 {
        number(&self.0["next_msn"][queue.to_string()]).unwrap_or(1) as u32
    }
    fn region(value: &Value) -> Region {
        let right = |name: &str| {
            value["access"].as_array().is_some_and(|all| all.iter().any(|a| a == name))
        };
        let len = number(&value["len"]).unwrap_or(0) as usize;
        Region {
            stag: Stag(number(&value["stag"]).unwrap_or(0) as u32),
            to: number(&value["to"]).unwrap_or(0),
            pd: number(&value["pd"]).unwrap_or(1),
            rights: Rights {
                local_write: right("local_write"),
                remote_read: right("remote_read"),
                remote_write: right("remote_write"),
                remote_atomic: right("remote_atomic"),
            },
            shared: value["shared"] == Value::Bool(true),
            valid: true,
            octets: (0..len).map(|i| (i * 13 + 5) as u8).collect(),
        }
    }
    /// A QP in the state that the vector requires, with its own requests sent.
    fn end(&self, role: Role) -> End {
        let (ird, ord) = (self.number("ird") as u16, self.number("ord") as u16);
        let extensions = self.flag("rfc7306");
        let config = QpConfig { max_ird: ird, max_ord: ord, extensions, ..CONFIG };
        let mut end = End::new(config);
        for region in self.list("mrs") {
            end.memory.regions.push(Self::region(region));
        }
        for len in self.list("rq") {
            end.receive(number(len).unwrap_or(0) as usize);
        }
        let first_id = self.list("outstanding_atomics").next().and_then(number);
        let position = StreamPosition {
            octets_received: self.number("stream_pos") as u32,
            receive_msn: [0, 1, 2, 3].map(|queue| self.next_msn(queue)),
            request_id: first_id.unwrap_or(1) as u32,
            ..StreamPosition::START
        };
        let stream = StreamConfig {
            role,
            crc: self.flag("crc"),
            markers_rx: self.flag("markers"),
            // Every response in one segment
            mulpdu: 64768,
            ird,
            ord,
            ..STREAM
        };
        end.qp.start_at(stream, position).expect("Idle");
        self.post_requests(&mut end);
        end
    }
    fn post_requests(&self, end: &mut End) {
        for read in self.list("outstanding_reads") {
            let field = |name: &str| number(&read[name]).unwrap_or(0);
            let sink = (field("sink_stag") as u32, field("sink_to"));
            end.read(sink, (0x77, 0), field("len") as u32);
        }
        for _ in self.list("outstanding_atomics") {
            let op = SendOp::FetchAdd { stag: Stag(0x77), to: 0, add: 1, mask: 0 };
            end.post(plain(op), Work { len: 8, ..Work::default() });
        }
        end.take();
    }
    /// Outstanding requests exist only after something was sent: not as a silent responder.
    fn roles(&self) -> &'static [Role] {
        let requests = self.list("outstanding_reads").chain(self.list("outstanding_atomics"));
        if requests.count() == 0 { &[Role::Responder, Role::Initiator] } else { &[Role::Initiator] }
    }
}

/// All state that a run can change.
#[derive(PartialEq, Debug)]
struct Effects {
    regions: Vec<(bool, Vec<u8>)>,
    received: Vec<Received>,
    flushed: Vec<u64>,
    completions: Vec<(u64, Status, u32)>,
    atomics: Vec<(u64, u64)>,
    events: Vec<QpEvent>,
    state: State,
    output: Vec<u8>,
}

fn effects(end: &mut End) -> Effects {
    let output = end.take();
    Effects {
        regions: end.memory.regions.iter().map(|r| (r.valid, r.octets.clone())).collect(),
        received: end.memory.received.clone(),
        flushed: end.memory.flushed.clone(),
        completions: end.memory.completions.clone(),
        atomics: end.memory.atomics.clone(),
        events: end.events.clone(),
        state: end.qp.state(),
        output,
    }
}

/// The FPDUs of a stream without markers: header and payload.
fn decode(stream: &[u8], crc: bool) -> Vec<(Header, Vec<u8>)> {
    decode_with(&mut Rx::new(crc.then_some(crc32c), false), stream)
}

/// A run of one vector.
struct Run<'a> {
    vector: &'a Value,
    context: Context,
    frame: Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(file: &Value, vector: &'a Value) -> Self {
        Self { vector, context: Context::new(file, vector), frame: octets(vector, "hex") }
    }
    fn name(&self) -> &str {
        self.vector["name"].as_str().unwrap_or("?")
    }
    fn action(&self) -> &str {
        self.vector["expected_action"].as_str().unwrap_or("accept")
    }
    fn end(&self, role: Role) -> End {
        let mut end = self.context.end(role);
        let memory = &self.vector["fields"]["memory"];
        if let Some(before) = number(&memory["before"]) {
            let fields = &self.vector["fields"];
            let to = number(&fields["remote_to"]).unwrap_or(0);
            let region = end.memory.region(number(&fields["remote_stag"]).unwrap_or(0) as u32);
            let at = (to - region.to) as usize;
            region.octets[at..at + 8].copy_from_slice(&before.to_ne_bytes());
        }
        end
    }
    fn feed(&self, role: Role, pieces: &[&[u8]]) -> (End, Effects) {
        let mut end = self.end(role);
        for piece in pieces {
            if end.direct { end.feed_direct(piece) } else { end.feed(piece) }
        }
        let effects = effects(&mut end);
        (end, effects)
    }

    fn check(&self) {
        for role in self.context.roles() {
            let (mut end, whole) = self.feed(*role, &[&self.frame]);
            match self.action() {
                "accept" | "accept_and_respond" | "accept_or_1_1_3" | "accept_or_terminate" => {
                    self.check_accepted(*role, &whole);
                }
                "report_terminate_and_close_no_terminate_back" => self.check_reported(&end, &whole),
                "close_tcp_report_local_error" => self.check_closed(&end, &whole),
                "send_terminate_then_close" => self.check_refused(*role, &end, &whole),
                other => panic!("{}: unknown action {other}", self.name()),
            }
            if whole.state == State::Terminate {
                self.check_deaf(&mut end, &whole);
            }
            self.check_chunkings(*role, &whole);
        }
    }

    /// [MPA-05, MPA-31] any chunking gives the same effects.
    fn check_chunkings(&self, role: Role, whole: &Effects) {
        let single: Vec<&[u8]> = self.frame.chunks(1).collect();
        assert_eq!(&self.feed(role, &single).1, whole, "{}: octet by octet", self.name());
        // Long frames are repetitive
        for at in (1..self.frame.len()).step_by(1 + self.frame.len() / 200) {
            let (front, back) = self.frame.split_at(at);
            assert_eq!(&self.feed(role, &[front, back]).1, whole, "{}: at {at}", self.name());
        }
    }

    /// The expected effects of decoded segments on an end that accepted them.
    fn check_accepted(&self, role: Role, found: &Effects) {
        let name = self.name();
        assert_eq!(found.state, State::Rts, "{name}: {:?}", found.events);
        assert_eq!(found.events, [QpEvent::Established], "{name}");
        let mut model = Model::new(self.end(role));
        let crc = self.context.flag("crc").then_some(crc32c as fn(u32, &[u8]) -> u32);
        let position = self.context.number("stream_pos");
        let mut rx = Rx::at(crc, self.context.flag("markers"), position);
        for (header, payload) in decode_with(&mut rx, &self.frame) {
            model.segment(header, &payload);
        }
        let regions: Vec<_> =
            model.end.memory.regions.iter().map(|r| (r.valid, r.octets.clone())).collect();
        assert!(found.regions == regions, "{name}: memory");
        let received: Vec<_> =
            found.received.iter().map(|r| (r.octets.clone(), r.receive)).collect();
        assert_eq!(received, model.received, "{name}: received");
        assert_eq!(found.atomics.len(), model.atomics.len(), "{name}");
        for ((_, original), expected) in found.atomics.iter().zip(&model.atomics) {
            assert_eq!(original, expected, "{name}: original value");
        }
        assert_eq!(found.completions.len(), model.completions, "{name}: completions");
        assert!(found.completions.iter().all(|c| c.1 == Status::Success), "{name}");
        let sent: Vec<_> = decode(&found.output, self.context.flag("crc"));
        assert_eq!(sent, model.responses, "{name}: responses");
        let memory = &self.vector["fields"]["memory"];
        if let Some(after) = number(&memory["after"]) {
            let (_, region) = &found.regions[0];
            assert!(region.windows(8).any(|w| w == after.to_ne_bytes()), "{name}: memory after");
        }
    }

    // [RDMAP-26, ERR-26] an event, FIN, and no reply
    fn check_reported(&self, end: &End, found: &Effects) {
        let name = self.name();
        let fields = &self.vector["fields"];
        let term = if fields["siw_meaning"].is_object() {
            &fields["siw_meaning"]
        } else {
            &fields["term"]
        };
        let part = |key: &str| number(&term[key]).unwrap_or(0) as u8;
        let code = TerminateCode::new(part("layer"), part("type"), part("code"));
        let expected = [QpEvent::Established, QpEvent::TerminateReceived(code)];
        assert_eq!(found.events, expected, "{name}");
        assert!(found.output.is_empty(), "{name}: nothing back");
        assert!(end.closing && !end.reset, "{name}: FIN, not RST");
        assert_eq!(end.qp.last_terminate(), Some((false, code)), "{name}");
    }

    // [RDMAP-32] no Terminate, the stream ends
    fn check_closed(&self, end: &End, found: &Effects) {
        assert!(found.output.is_empty() && end.closing, "{}", self.name());
        assert_eq!(found.state, State::Terminate, "{}", self.name());
        assert!(
            matches!(found.events[..], [_, QpEvent::TerminateSent(_)]),
            "{}: {:?}",
            self.name(),
            found.events
        );
    }

    fn check_refused(&self, role: Role, end: &End, found: &Effects) {
        let name = self.name();
        assert_eq!(found.state, State::Terminate, "{name}");
        assert!(end.closing && !end.reset, "{name}: FIN, not RST");
        let (header, payload) = decode(&found.output, self.context.flag("crc"))
            .pop()
            .unwrap_or_else(|| panic!("{name}: no Terminate"));
        assert_eq!(Control(header.ulp()).opcode(), Some(Opcode::Terminate), "{name}");
        let word = u16::from_be_bytes([payload[0], payload[1]]);
        let mdr = payload[2] >> 5;
        let expected = &self.vector["expected_error"];
        let canonical = (code_word(expected), header_bits(expected));
        if (word, mdr) == canonical {
            let hex = octets(self.vector, "expected_terminate_hex");
            if !hex.is_empty() {
                let crc_len = if self.context.flag("crc") { 0 } else { 4 };
                let sent = &found.output[found.output.len() - hex.len()..];
                assert_eq!(sent[..hex.len() - crc_len], hex[..hex.len() - crc_len], "{name}");
            }
        } else {
            let others = expected["also_acceptable"].as_array();
            let listed = others.into_iter().flatten().any(|other| code_word(other) == word);
            let foreign = std::env::var_os("IWARP_VECTORS").is_some();
            assert!(foreign && listed, "{name}: sent {word:04x}/{mdr:03b}, not {canonical:?}");
        }
        let code = end.qp.last_terminate().expect("kept for Query QP");
        assert_eq!((code.0, code.1.word()), (true, word), "{name}");
        self.check_nothing_placed(role, found);
    }

    /// [DDP-16] no octet of the refused segment, which is the last of the vector.
    fn check_nothing_placed(&self, role: Role, found: &Effects) {
        let untouched = self.end(role);
        let refused_first = self.vector["fields"]["fpdus"].as_array().is_none_or(|f| f.len() < 2);
        if refused_first {
            let before: Vec<_> =
                untouched.memory.regions.iter().map(|r| r.octets.clone()).collect();
            let after: Vec<_> = found.regions.iter().map(|r| r.1.clone()).collect();
            assert!(before == after, "{}: nothing placed", self.name());
            assert!(found.received.is_empty(), "{}", self.name());
            assert!(found.regions.iter().all(|r| r.0), "{}: nothing invalidated", self.name());
        }
    }

    /// [MPA-38, DDP-16, VERBS-10] a good frame after the end has no effect.
    fn check_deaf(&self, end: &mut End, before: &Effects) {
        end.feed(&write(0x1100, 0x1000, &[0xee; 8]));
        let after = effects(end);
        assert_eq!(after.regions, before.regions, "{}", self.name());
        assert_eq!(after.events, before.events, "{}: one event", self.name());
        assert!(after.output.is_empty(), "{}: nothing behind the end", self.name());
    }
}

fn code_word(error: &Value) -> u16 {
    let part = |key: &str| number(&error[key]).unwrap_or(0) as u8;
    TerminateCode::new(part("layer"), part("type"), part("code")).word()
}
fn header_bits(error: &Value) -> u8 {
    let bit = |key: &str| number(&error["hdrct"][key]).unwrap_or(0) as u8;
    bit("M") << 2 | bit("D") << 1 | bit("R")
}

/// The events of a message whose last segment this is, by the numbers on the wire (RFC 5040 Figure 4, RFC 7306
/// Figure 1).
fn receive(last: &UntaggedRepr, octets: usize) -> Receive {
    let number = last.ulp & 0x0f;
    Receive {
        octets: octets as u32,
        solicited: matches!(number, 5 | 6 | 9),
        invalidated: matches!(number, 4 | 6).then_some(Stag(last.ulp_word)),
        immediate: None,
    }
}

/// The effects of valid segments: a second implementation, simpler than the QP.
struct Model {
    end: End,
    received: Vec<(Vec<u8>, Receive)>,
    partial: Vec<u8>,
    /// Octets of the Write before the present segment.
    written: usize,
    atomics: Vec<u64>,
    completions: usize,
    responses: Vec<(Header, Vec<u8>)>,
}

impl Model {
    fn new(end: End) -> Self {
        Self {
            end,
            received: Vec::new(),
            partial: Vec::new(),
            written: 0,
            atomics: Vec::new(),
            completions: 0,
            responses: Vec::new(),
        }
    }
    fn segment(&mut self, header: Header, payload: &[u8]) {
        let opcode = Control(header.ulp()).opcode().expect("a known opcode");
        let last = header.control().last();
        let written = std::mem::take(&mut self.written);
        match (header, opcode) {
            (Header::Tagged(h), _) => {
                if !payload.is_empty() {
                    let region = self.end.memory.region(h.stag.0);
                    let at = (h.to - region.to) as usize;
                    region.octets[at..at + payload.len()].copy_from_slice(payload);
                }
                if opcode == Opcode::Write {
                    self.written = written + payload.len();
                }
                self.completions += usize::from(last && opcode == Opcode::ReadResponse);
            }
            (Header::Untagged(h), Opcode::Immediate | Opcode::ImmediateSolicited) => {
                let data = u64::from_be_bytes(payload.try_into().expect("eight octets"));
                let immediate = Some(Immediate::Alone(data));
                let receive = Receive { immediate, ..receive(&h, written) };
                self.received.push((Vec::new(), receive));
            }
            (Header::Untagged(_), Opcode::ReadRequest) => self.read(payload),
            (Header::Untagged(_), Opcode::AtomicRequest) => self.atomic(payload),
            (Header::Untagged(_), Opcode::AtomicResponse) => {
                let response = AtomicResponseRepr::parse(payload).expect("long enough");
                self.atomics.push(response.original);
                self.completions += 1;
            }
            (Header::Untagged(h), _) => {
                self.partial.extend(payload);
                if last {
                    let octets = std::mem::take(&mut self.partial);
                    let receive = receive(&h, octets.len());
                    self.received.push((octets, receive));
                    if opcode.invalidates() {
                        self.end.memory.region(h.ulp_word).valid = false;
                    }
                }
            }
        }
    }
    fn read(&mut self, payload: &[u8]) {
        let request = ReadRequestRepr::parse(payload).expect("long enough");
        let octets = if request.size == 0 {
            Vec::new()
        } else {
            let source = (request.source_stag, request.source_to, request.size);
            self.end.memory.source(source.0, source.1, source.2).expect("readable").to_vec()
        };
        // One segment: the context's MULPDU holds it
        let header = TaggedRepr {
            control: ddp::Control::new(true, true),
            ulp: Control::new(Opcode::ReadResponse).0,
            stag: request.sink_stag,
            to: request.sink_to,
        };
        self.responses.push((Header::Tagged(header), octets));
    }
    fn atomic(&mut self, payload: &[u8]) {
        use iwarp_proto::wire::rdmap::{AtomicRequestRepr, atomic};
        let r = AtomicRequestRepr::parse(payload).expect("long enough");
        let region = self.end.memory.region(r.stag.0);
        let at = (r.to - region.to) as usize;
        let cell = &mut region.octets[at..at + 8];
        let old = u64::from_ne_bytes((&*cell).try_into().expect("eight"));
        let new = if r.operation == atomic::FETCH_ADD {
            add_slowly(old, r.data, r.mask)
        } else if (r.compare ^ old) & r.compare_mask == 0 {
            (old & !r.mask) | (r.data & r.mask)
        } else {
            old
        };
        cell.copy_from_slice(&new.to_ne_bytes());
        let msn = self.responses.len() as u32 + 1;
        let header = UntaggedRepr {
            control: ddp::Control::new(false, true),
            ulp: Control::new(Opcode::AtomicResponse).0,
            ulp_word: 0,
            qn: 3,
            msn,
            mo: 0,
        };
        let response = AtomicResponseRepr { request_id: r.request_id, original: old };
        self.responses.push((Header::Untagged(header), response.emit().to_vec()));
    }
}

/// Runs the vectors whose expectation is one of `actions`.
fn run(actions: &[&str]) -> usize {
    let file = load();
    let vectors = file["vectors"].as_array().expect("a list of vectors");
    let mine = |v: &&Value| {
        let of = |key: &str, among: &[&str]| v[key].as_str().is_some_and(|s| among.contains(&s));
        of("kind", &["fpdu", "stream"]) && of("expected_action", actions)
    };
    check_each(vectors.iter().filter(mine), |v| Run::new(&file, v).check())
}

// [DDP-01, DDP-03, DDP-10, DDP-13, EXT-01, EXT-09, EXT-10, RDMAP-02, RDMAP-03, RDMAP-05, RDMAP-06]
// [MPA-04, MPA-06, MPA-10, MPA-11, MPA-15, MPA-25, MPA-27, IOP-13]
#[test]
fn valid_vectors_have_exactly_their_effects() {
    let actions = ["accept", "accept_and_respond", "accept_or_1_1_3", "accept_or_terminate"];
    assert!(run(&actions) > 0);
}

// [DDP-04, DDP-14, DDP-15, DDP-16, DDP-24, RDMAP-01, RDMAP-02, RDMAP-07, RDMAP-12, RDMAP-13]
// [RDMAP-20, RDMAP-21, RDMAP-22, RDMAP-31, VERBS-14, EXT-02, EXT-05, EXT-08, EXT-14, EXT-15]
// [EXT-17, ERR-02, ERR-03, ERR-04, ERR-05, ERR-06, ERR-07, ERR-08, ERR-09, ERR-10, ERR-11]
// [ERR-12, ERR-13, ERR-14, ERR-17, ERR-18, ERR-21, ERR-22, ERR-25, ERR-30, SEC-01, SEC-06]
#[test]
fn invalid_vectors_cause_exactly_their_terminate() {
    assert!(run(&["send_terminate_then_close"]) > 0);
}

// [RDMAP-26, RDMAP-32, ERR-26, VERBS-08, IOP-10]
#[test]
fn received_terminates_are_reported_and_get_no_response() {
    let actions = ["report_terminate_and_close_no_terminate_back", "close_tcp_report_local_error"];
    assert!(run(&actions) > 0);
}

// Every kind of vector that the file has is run by one of the tests above
#[test]
fn no_vector_is_left_out() {
    let file = load();
    let known = [
        "accept",
        "accept_and_respond",
        "accept_or_1_1_3",
        "accept_or_terminate",
        "send_terminate_then_close",
        "report_terminate_and_close_no_terminate_back",
        "close_tcp_report_local_error",
    ];
    check_each(file["vectors"].as_array().expect("a list of vectors"), |vector| {
        let of = |key: &str| vector[key].as_str().unwrap_or_default();
        if ["fpdu", "stream"].contains(&of("kind")) {
            let action = of("expected_action");
            assert!(known.contains(&action), "action {action} is unknown");
        }
    });
}
