//! TCP connections of a capture: both directions of each, of which either tells how the other is read. Owns all
//! reassembly state.

use std::collections::HashMap;

use super::direction::{Direction, Flags, Key};
use super::packet::Segment;
use super::render::{Renderer, Stamp};
use crate::error::CliResult;

/// A method of a direction, with the flags of the other one.
type Step = fn(&mut Direction, Key, Option<Flags>, &mut Renderer<'_>) -> CliResult<()>;

/// All connections.
#[derive(Default)]
pub(super) struct Connections {
    directions: HashMap<Key, Direction>,
}

impl Connections {
    /// Takes a segment and explains the frames that it completes.
    pub(super) fn push(
        &mut self,
        segment: &Segment<'_>,
        stamp: Stamp,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        let (key, reverse) = ((segment.from, segment.to), (segment.to, segment.from));
        let mut seq = segment.seq;
        if segment.syn {
            if self.directions.get(&key).is_some_and(|d| !d.stream.began_at(seq)) {
                self.apply(key, renderer, Direction::finish)?;
                self.directions.remove(&key);
            }
            self.directions.entry(key).or_default().stream.syn(seq);
            seq = seq.wrapping_add(1);
        }
        if segment.wire_len == 0 {
            return Ok(());
        }
        let mut pieces = Vec::new();
        let direction = self.directions.entry(key).or_default();
        direction.stream.push(seq, segment.payload, segment.wire_len, stamp, &mut pieces);
        direction.queue(pieces);
        self.apply(key, renderer, Direction::advance)?;
        // A start-up frame also determines how to read the other direction.
        self.apply(reverse, renderer, Direction::advance)
    }

    fn apply(&mut self, key: Key, renderer: &mut Renderer<'_>, step: Step) -> CliResult<()> {
        let peer = self.directions.get(&(key.1, key.0)).and_then(Direction::flags);
        match self.directions.get_mut(&key) {
            Some(direction) => step(direction, key, peer, renderer),
            None => Ok(()),
        }
    }

    /// Explains what is left at the end of the capture.
    pub(super) fn finish(mut self, renderer: &mut Renderer<'_>) -> CliResult<()> {
        let mut keys: Vec<_> = self.directions.keys().copied().collect();
        keys.sort_unstable();
        // What one direction has waiting may tell how the other is read.
        for step in [Direction::release as Step, Direction::finish] {
            keys.iter().try_for_each(|key| self.apply(*key, renderer, step))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::{ipv4_packet, segment};
    use super::*;

    const THERE: (u16, u16) = (1, 2);
    const BACK: (u16, u16) = (2, 1);
    const DATA: u8 = 0x10;

    fn startup(key: &[u8; 16], flags: u8) -> Vec<u8> {
        [&key[..], &[flags, 1, 0, 0]].concat()
    }

    /// A Send in one segment, with its CRC.
    fn fpdu(msn: u8, payload: &[u8]) -> Vec<u8> {
        let mut fpdu = vec![0, 18 + payload.len() as u8, 0x41, 0x43];
        fpdu.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0]);
        fpdu.extend(payload);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        fpdu.extend(crc32c::crc32c(&fpdu).to_le_bytes());
        fpdu
    }

    /// A connection whose ends sent these octets in these packets, from sequence number 10 and 100 on.
    struct Talk {
        packets: Vec<(Vec<u8>, usize)>,
        next: [u32; 2],
    }

    impl Talk {
        fn new() -> Self {
            let syns = [ipv4_packet(THERE, 9, 2, b""), ipv4_packet(BACK, 99, 0x12, b"")];
            Self { packets: syns.map(|syn| (syn, usize::MAX)).into(), next: [10, 100] }
        }

        /// With start-up frames of these flags.
        fn started(request: u8, reply: u8) -> Self {
            let mut talk = Self::new();
            talk.says(THERE, &startup(b"MPA ID Req Frame", request));
            talk.says(BACK, &startup(b"MPA ID Rep Frame", reply));
            talk
        }

        fn says(&mut self, ports: (u16, u16), octets: &[u8]) -> &mut Self {
            let next = &mut self.next[usize::from(ports == BACK)];
            self.packets.push((ipv4_packet(ports, *next, DATA, octets), usize::MAX));
            *next += octets.len() as u32;
            self
        }

        /// The last packet was not captured.
        fn lost(&mut self) -> &mut Self {
            self.packets.pop();
            self
        }

        /// Of the last packet so many octets of payload were captured.
        fn cut(&mut self, octets: usize) -> &mut Self {
            self.packets.last_mut().unwrap().1 = 40 + octets;
            self
        }

        fn decoded(&self) -> String {
            let mut out = Vec::new();
            let mut renderer = Renderer::new(&mut out, false, true);
            let mut connections = Connections::default();
            for (number, (packet, captured)) in self.packets.iter().enumerate() {
                let mut segment = segment(101, packet).unwrap();
                let captured = captured.saturating_sub(40).min(segment.payload.len());
                segment.payload = &segment.payload[..captured];
                let stamp = Stamp { number: number as u64 + 1, time: None };
                connections.push(&segment, stamp, &mut renderer).unwrap();
            }
            connections.finish(&mut renderer).unwrap();
            renderer.finish().unwrap();
            String::from_utf8(out).unwrap()
        }
    }

    fn last(text: &str) -> &str {
        text.lines().last().unwrap()
    }

    #[test]
    fn a_connection_is_recognised_and_read_whatever_the_segments() {
        let request = startup(b"MPA ID Req Frame", 0x40);
        let stream = [fpdu(1, b"abcd"), fpdu(2, b"efgh"), fpdu(3, b"")[..5].to_vec()].concat();
        let mut talk = Talk::new();
        talk.says(THERE, &request[..7]).says(THERE, &request[7..]);
        talk.says(THERE, &stream[..30]).says(THERE, &stream[30..]);
        let last_two = talk.packets.len() - 2;
        talk.packets.swap(last_two, last_two + 1);
        talk.says(BACK, &startup(b"MPA ID Rep Frame", 0));
        let text = talk.decoded();
        assert!(text.contains("MPA Request") && text.contains("MPA Reply"), "{text}");
        assert_eq!(text.matches("Send").count(), 2, "{text}");
        assert!(text.contains("#3  packet 6  127.0.0.1:1 > 127.0.0.1:2  octet 20: Send"), "{text}");
        assert!(text.contains("the capture ends 5 octets into a frame"), "{text}");
        assert_eq!(last(&text), "4 frames, 0 broken requirements; 5 octets skipped");
    }

    #[test]
    fn connections_without_mpa_are_ignored() {
        let mut talk = Talk::new();
        talk.says(THERE, b"GET /")
            .says(BACK, b"")
            .says(THERE, b"\0\x12\x41\x43 and no CRC, 20 octets");
        assert_eq!(talk.decoded(), "0 frames, 0 broken requirements\n");
    }

    #[test]
    fn a_repeated_syn_and_another_connection_of_the_same_ports() {
        let mut talk = Talk::started(0x40, 0x40);
        talk.packets.push(talk.packets[0].clone());
        talk.says(THERE, &fpdu(1, b"abcd")).says(THERE, &fpdu(2, b"abcd")[..9]);
        let again = [ipv4_packet(THERE, 999, 2, b""), ipv4_packet(BACK, 5_000, 0x12, b"")];
        talk.packets.extend(again.map(|syn| (syn, usize::MAX)));
        talk.next = [1_000, 5_001];
        talk.says(THERE, &startup(b"MPA ID Req Frame", 0x40));
        let text = talk.decoded();
        assert_eq!(text.matches("MPA Request").count(), 2, "{text}");
        assert!(text.contains("the capture ends 9 octets into a frame"), "{text}");
    }

    #[test]
    fn behind_a_lost_packet_the_next_frame_is_found() {
        // A whole FPDU; the end of one and the beginning of the next; the front of one.
        for (from, to) in [(24, 48), (30, 60), (20, 30), (25, 27)] {
            let stream: Vec<_> = (1..=5).flat_map(|msn| fpdu(msn, b"")).collect();
            let mut talk = Talk::started(0x40, 0x40);
            talk.says(THERE, &stream[..from]).says(THERE, &stream[from..to]).lost();
            talk.says(THERE, &stream[to..]).says(BACK, &fpdu(1, b"back"));
            let text = talk.decoded();
            let whole = from / 24 + (stream.len() - to) / 24;
            // The one whose length was captured is shown, too.
            let shown = whole + usize::from(from % 24 >= 2) + 1;
            assert_eq!(text.matches("Send").count(), shown, "{from} {to}: {text}");
            let lost = to - from;
            assert!(last(&text).contains(&format!("; {lost} octets not captured")), "{text}");
            assert!(last(&text).contains(", 0 broken requirements"), "{text}");
        }
    }

    #[test]
    fn without_crc_the_next_header_or_segment_shows_a_frame() {
        let long = fpdu(3, &[0x41; 200]);
        let mut talk = Talk::started(0, 0);
        talk.says(THERE, &fpdu(1, b"ab")).says(THERE, &fpdu(2, b"cd")).lost();
        talk.says(THERE, &[&long[..], &fpdu(4, b"ef")].concat());
        talk.says(THERE, &fpdu(5, b"gh")).lost().says(THERE, &fpdu(6, b""));
        let text = talk.decoded();
        assert_eq!(text.matches("Send").count(), 4, "{text}");
        assert_eq!(last(&text), "6 frames, 0 broken requirements; 56 octets not captured");
    }

    #[test]
    fn of_cut_packets_the_headers_are_shown() {
        let mut talk = Talk::started(0x40, 0x40);
        talk.cut(20);
        talk.says(THERE, &fpdu(1, &[1; 100])).cut(30);
        talk.says(THERE, &[fpdu(2, &[1; 100]), fpdu(3, b"")].concat()).cut(22);
        talk.says(THERE, &fpdu(4, &[1; 100])).cut(60);
        let text = talk.decoded();
        assert_eq!(text.matches(" of 124 octets").count(), 3, "{text}");
        assert!(!text.contains("missing") && !text.contains("!!"), "{text}");
        assert_eq!(last(&text), "5 frames, 0 broken requirements; 284 octets not captured");
    }

    #[test]
    fn without_the_start_up_a_connection_is_found_by_its_crcs() {
        let mut talk = Talk::new();
        talk.packets.clear();
        talk.says(THERE, &fpdu(8, b"abcd")[7..]).says(BACK, &fpdu(5, b"back"));
        talk.says(THERE, &[fpdu(9, b"efgh"), fpdu(10, b"ijkl")].concat());
        let text = talk.decoded();
        assert_eq!(text.matches("Send").count(), 3, "{text}");
        assert_eq!(text.matches("found by its CRC").count(), 2, "{text}");
    }

    #[test]
    fn a_lost_reply_does_not_hide_the_request() {
        let mut talk = Talk::started(0x40, 0x40);
        talk.lost().says(THERE, &fpdu(1, b"abcd")).says(BACK, &fpdu(1, b"back"));
        let text = talk.decoded();
        assert_eq!(text.matches("Send").count(), 2, "{text}");
        // Nothing of the other direction.
        let mut talk = Talk::started(0x40, 0x40);
        talk.lost().says(THERE, &fpdu(1, b"abcd"));
        assert_eq!(talk.decoded().matches("Send").count(), 1);
    }

    #[test]
    fn mpa_may_begin_behind_a_dialogue() {
        let mut talk = Talk::new();
        talk.says(THERE, b"STARTRDMA").says(BACK, b"ok");
        talk.says(THERE, &startup(b"MPA ID Req Frame", 0x40));
        talk.says(BACK, &startup(b"MPA ID Rep Frame", 0x40)).says(THERE, &fpdu(1, b"abcd"));
        assert_eq!(talk.decoded().matches("Send").count(), 1);
    }

    #[test]
    fn markers_are_where_the_position_says_behind_a_gap() {
        use iwarp_proto::mpa::Tx;
        let mut tx = Tx::new(None, true);
        let stream: Vec<u8> = (0..40)
            .flat_map(|msn| {
                let send = fpdu(msn, b"0123456789");
                let plan = tx.plan(28);
                let mut out = vec![0; plan.wire_len()];
                plan.encode(&send[..30], &mut out, |_, _| Ok::<_, ()>(())).unwrap();
                out
            })
            .collect();
        let mut talk = Talk::started(0, 0x80);
        talk.says(THERE, &stream[..700]).says(THERE, &stream[700..800]).lost();
        talk.says(THERE, &stream[800..]);
        let text = talk.decoded();
        // Of the frames that the lost octets touch the first is shown.
        assert_eq!(text.matches("Send").count(), 40 - 2, "{text}");
        assert!(last(&text).contains("40 frames, 0 broken requirements"), "{text}");
    }
}
