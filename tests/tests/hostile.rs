//! Tests of a hostile peer against a live server: every invalid vector, then 100,000 mutated frames. The server
//! responds as required, keeps serving others, and nothing outside the granted regions changes. [SEC-18,
//! SEC-03, SEC-01, SEC-10]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use warpline_tests::raw::{self, RawPeer};
use warpline_tests::target::Target;
use warpline_tests::vectors::{self, Vector};

fn target() -> Target {
    let mut command = Command::new(env!("CARGO_BIN_EXE_target"));
    command.arg("127.0.0.1:0");
    Target::start(command)
}

/// A granted region with its STag and address in the vectors and at the server.
struct Region {
    vector_stag: u32,
    vector_to: u64,
    stag: u32,
    to: u64,
}

/// The server's grants, from its reply's private data, in the order of the vectors' regions.
fn regions(private_data: &[u8]) -> Vec<Region> {
    let known = [(0x1100, 0x1000), (0x2200, 0x8000), (0x3300, 0x10000), (0x4400, 0x1000)];
    private_data
        .chunks_exact(20)
        .zip(known)
        .map(|(octets, (vector_stag, vector_to))| Region {
            vector_stag,
            vector_to,
            stag: u32::from_be_bytes(octets[..4].try_into().expect("4 octets")),
            to: u64::from_be_bytes(octets[4..12].try_into().expect("8 octets")),
        })
        .collect()
}

/// Replaces an STag of the vectors, and the TO after it, by the server's.
fn patch(ulpdu: &mut [u8], stag_at: usize, to_at: Option<usize>, regions: &[Region]) {
    let Some(stag) = ulpdu.get(stag_at..stag_at + 4) else { return };
    let stag = u32::from_be_bytes(stag.try_into().expect("4 octets"));
    // The key octet may be wrong on purpose, so compare indices.
    let Some(region) = regions.iter().find(|r| r.vector_stag >> 8 == stag >> 8) else { return };
    let key = (stag as u8).wrapping_sub(region.vector_stag as u8).wrapping_add(region.stag as u8);
    let patched = region.stag & !0xff | u32::from(key);
    ulpdu[stag_at..stag_at + 4].copy_from_slice(&patched.to_be_bytes());
    let Some(to) = to_at.and_then(|at| ulpdu.get_mut(at..at + 8)) else { return };
    let value = u64::from_be_bytes((&*to).try_into().expect("8 octets"));
    let value = value.wrapping_sub(region.vector_to).wrapping_add(region.to);
    to.copy_from_slice(&value.to_be_bytes());
}

/// The vector's octets with the server's STags and addresses, and a correct CRC if it had one.
fn for_server(octets: &[u8], regions: &[Region]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = octets;
    while rest.len() >= 2 {
        let len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let padded = (2 + len).next_multiple_of(4);
        let Some(frame) = rest.get(..padded + 4) else { break };
        let crc = crc32c::crc32c(&frame[..padded]).to_le_bytes();
        if frame[padded..] != crc {
            break;
        }
        let mut frame = frame.to_vec();
        let ulpdu = &mut frame[2..2 + len];
        if let [control, rdmap, ..] = *ulpdu {
            match (control & 0x80 != 0, rdmap & 0x0f) {
                (true, _) => patch(ulpdu, 2, Some(6), regions),
                (false, 1) => {
                    patch(ulpdu, 18, Some(22), regions);
                    patch(ulpdu, 34, Some(38), regions);
                }
                (false, 4 | 6) => patch(ulpdu, 2, None, regions),
                (false, 10) => patch(ulpdu, 26, Some(30), regions),
                _ => {}
            }
        }
        let crc = crc32c::crc32c(&frame[..padded]).to_le_bytes();
        frame[padded..].copy_from_slice(&crc);
        out.extend(frame);
        rest = &rest[padded + 4..];
    }
    out.extend(rest);
    out
}

/// Number of receives that the server needs, if a connection can request it.
fn receives(vector: &Vector) -> Option<u8> {
    let context = vector.context.as_object()?;
    let mut receives = 4;
    for (key, value) in context {
        match key.as_str() {
            "base" => {}
            "rq" => receives = value.as_array()?.len() as u8,
            "rfc7306" if value.as_bool()? => {}
            "outstanding_atomics" | "outstanding_reads" if value.as_array()?.is_empty() => {}
            _ => return None,
        }
    }
    Some(receives)
}

/// Vectors that need regions that the server does not have (shared, at the top of the address space).
fn needs_other_region(vector: &Vector) -> bool {
    ["00005500", "00006600", "00008800"].iter().any(|stag| vector.hex.contains(stag))
}

/// Sends one invalid FPDU or stream and compares the response with the vector's.
fn frame_is_refused(address: SocketAddr, vector: &Vector, receives: u8) {
    let name = &vector.name;
    let mut peer = RawPeer::connect(address, true, &[receives]).expect("the server accepts");
    let regions = regions(&peer.private_data);
    peer.send(&for_server(&vector.octets(), &regions));
    // A valid message after it must have no effect. An atomic is executed when its response is due (RFC 7306
    // 5.4): a message after it could be handled first.
    if !name.starts_with("bad_atomic") {
        peer.send(&raw::fpdu(&raw::untagged(3, true, 0, 2, 0, b"good")));
    }
    let _ = peer.stream().shutdown(std::net::Shutdown::Write);
    let answer = peer.drain().unwrap_or_else(|e| panic!("{name}: {e}"));
    let echoes = answer.ulpdus.iter().filter(|u| u[1] & 0x0f == 3).count();
    let terminates = answer.terminates();
    match &vector.expected_error {
        Some(expected) => {
            let codes: Vec<_> = std::iter::once(&expected.code)
                .chain(&expected.also_acceptable)
                .map(|c| (c.layer, c.etype, c.code))
                .collect();
            assert_eq!(terminates.len(), 1, "{name}: {terminates:?}");
            assert!(codes.contains(&terminates[0]), "{name}: {terminates:?}, not one of {codes:?}");
        }
        None => assert_eq!(terminates, [], "{name}: no Terminate may be sent"),
    }
    // Streams may begin with valid messages; after a single bad frame there is nothing to echo.
    assert!(vector.kind == "stream" || echoes == 0, "{name}: the frame after it was delivered");
}

/// Sends a malformed start-up frame: the server must close and not accept.
fn start_up_is_refused(address: SocketAddr, vector: &Vector) {
    let name = &vector.name;
    let mut stream = RawPeer::open(address).expect("connects");
    stream.write_all(&vector.octets()).expect("sends");
    stream.shutdown(std::net::Shutdown::Write).expect("still connected");
    let mut answer = Vec::new();
    // It may end with a reset or a FIN.
    let _ = stream.read_to_end(&mut answer);
    let accepted =
        answer.len() >= 20 && &answer[..16] == b"MPA ID Rep Frame" && answer[16] & 0x20 == 0;
    assert!(
        !accepted || vector.expected_action.contains("reply"),
        "{name} was accepted: {answer:02x?}"
    );
}

/// Echoes a message through the server.
fn is_served(address: SocketAddr) {
    let mut peer = RawPeer::connect(address, true, &[]).expect("the server accepts");
    peer.send(&raw::fpdu(&raw::untagged(3, true, 0, 1, 0, b"are you there?")));
    let ulpdu = peer.read_fpdu().expect("the server answers");
    assert_eq!(&ulpdu[18..], b"are you there?");
}

/// How a vector was sent.
enum Played {
    StartUp,
    Frame,
    LivedThrough,
}

/// Sends an invalid vector to the server and checks the outcome.
fn play(address: SocketAddr, vector: &Vector) -> Played {
    let name = &vector.name;
    match (vector.kind.as_str(), receives(vector)) {
        ("mpa_req", _) => {
            start_up_is_refused(address, vector);
            Played::StartUp
        }
        ("fpdu" | "stream", Some(receives)) if !needs_other_region(vector) => {
            frame_is_refused(address, vector, receives);
            Played::Frame
        }
        // A vector for initiators, sent to a listener.
        ("mpa_rep", _) => {
            let mut stream = RawPeer::open(address).expect("connects");
            stream.write_all(&vector.octets()).expect("sends");
            stream.shutdown(std::net::Shutdown::Write).expect("still connected");
            // It must end, whatever it sends.
            let _ = stream.read_to_end(&mut Vec::new());
            Played::LivedThrough
        }
        // Markers, foreign regions and outstanding Reads need a prepared QP: the tests of the protocol core
        // check the exact response. Here the server must only survive.
        _ => {
            let mut peer = RawPeer::connect(address, true, &[]).expect("accepted");
            peer.send(&for_server(&vector.octets(), &regions(&peer.private_data)));
            let _ = peer.stream().shutdown(std::net::Shutdown::Write);
            let answer = peer.drain().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(answer.terminates().len() <= 1, "{name}");
            Played::LivedThrough
        }
    }
}

#[test]
fn every_invalid_vector_gets_its_response() {
    let mut target = target();
    let (mut frames, mut start_ups, mut lived_through) = (0, 0, Vec::new());
    let mut failed = Vec::new();
    for vector in vectors::load().into_iter().filter(|v| !v.valid) {
        // Go on after a failure, to report all.
        let played = std::panic::catch_unwind(|| play(target.address, &vector));
        match played {
            Ok(Played::StartUp) => start_ups += 1,
            Ok(Played::Frame) => frames += 1,
            Ok(Played::LivedThrough) => lived_through.push(vector.name),
            Err(_) => failed.push(vector.name),
        }
        is_served(target.address);
    }
    target.check();
    println!("{frames} frames and {start_ups} start-ups refused; survived: {lived_through:?}");
    assert!(failed.is_empty(), "these failed, see above: {failed:?}");
    assert!(frames >= 40 && start_ups >= 4, "{frames} frames, {start_ups} start-ups");
}

/// A reproducible random generator: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Damages a frame: flips bits, truncates, repeats; corrects the CRC two times out of three, so that the frame
/// passes it.
fn mutate(frame: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = frame.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(out.len());
        match random.below(5) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out[at] = random.next() as u8,
            2 => out[at..].iter_mut().take(4).for_each(|o| *o = 0xff),
            3 => out[at..].iter_mut().take(4).for_each(|o| *o = 0),
            _ => out.truncate(at.max(8)),
        }
    }
    if random.below(3) > 0 && out.len() > 8 {
        let len = (usize::from(u16::from_be_bytes([out[0], out[1]])) % 2048).min(out.len() - 6);
        let padded = (2 + len).next_multiple_of(4);
        out.resize(padded + 4, 0);
        out[..2].copy_from_slice(&(len as u16).to_be_bytes());
        let crc = crc32c::crc32c(&out[..padded]).to_le_bytes();
        out[padded..].copy_from_slice(&crc);
    }
    out
}

#[test]
fn a_hundred_thousand_mutated_frames_do_no_harm() {
    const CONNECTIONS: usize = 5_000;
    const FRAMES: usize = 20;
    let mut target = target();
    let before = target.check();
    let vectors: Vec<_> =
        vectors::load().into_iter().filter(|v| v.kind == "fpdu" || v.kind == "stream").collect();
    let seed = std::env::var("WARPLINE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x1dea);
    println!("WARPLINE_SEED={seed}");
    let mut random = Random(seed);
    let address = target.address;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another client is served meanwhile.
        let bystander = scope.spawn(|| {
            let mut served = 0_u64;
            while !done.load(Ordering::Relaxed) {
                is_served(address);
                served += 1;
            }
            served
        });
        for _ in 0..CONNECTIONS {
            let mut peer = RawPeer::connect(address, true, &[]).expect("the server accepts");
            let regions = regions(&peer.private_data);
            let mut octets = Vec::new();
            for _ in 0..FRAMES {
                let vector = &vectors[random.below(vectors.len())];
                octets.extend(mutate(&for_server(&vector.octets(), &regions), &mut random));
            }
            peer.send(&octets);
            let _ = peer.stream().shutdown(std::net::Shutdown::Write);
            if let Ok(answer) = peer.drain() {
                assert!(answer.terminates().len() <= 1, "two Terminates [RDMAP-24]");
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(bystander.join().expect("the bystander was served") > 0);
    });
    let after = target.check();
    let grown = after.rss.saturating_sub(before.rss);
    assert!(grown < 64 << 20, "the server grew by {grown} octets");
}
