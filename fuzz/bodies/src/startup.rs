//! Start-up frames, both roles: any chunking gives the same result, and what one machine of ours
//! sends the other one takes.
//!
//! Set-up octets: flags, kinds of RTR, IRD, ORD, highest IRD, chunk size.

use iwarp_proto::decode::{DecodeOptions, Start, explain};
use iwarp_proto::mpa::startup::{
    Answer, Initiator, Responder, RtrSet, StartupConfig, StartupError, Step,
};
use iwarp_proto::wire::mpa::{NO_NEGOTIATION, StartupRepr};

use crate::{crc32c, set_up};

/// Runs one input.
pub fn run(input: &[u8]) {
    let ([flags, kinds, ird, ord, max_ird, chunk], octets) = set_up(input);
    let config = config(flags, kinds, [ird, ord, max_ird]);
    let chunk = usize::from(chunk) % 32 + 1;
    responder(config, octets, chunk);
    initiator(config, octets, chunk);
    let options = DecodeOptions { crc: Some(crc32c), markers: false, start: Start::Startup };
    let frames = explain(octets, options);
    assert_eq!(frames.iter().map(|frame| frame.length).sum::<usize>(), octets.len());
}

fn config(flags: u8, kinds: u8, limits: [u8; 3]) -> StartupConfig {
    let bit = |n: u8| flags >> n & 1 == 1;
    let [ird, ord, max_ird] =
        limits.map(|limit| if limit == 0xff { NO_NEGOTIATION } else { limit.into() });
    StartupConfig {
        revision: 1 + u8::from(!bit(0)),
        crc: bit(1),
        refuse_crc: bit(2),
        markers: bit(3),
        refuse_markers: bit(4),
        ird,
        ord,
        max_ird,
        enhanced: !bit(5),
        rtr: RtrSet { send: kinds & 1 != 0, write: kinds & 2 != 0, read: kinds & 4 != 0 },
    }
}

fn responder(config: StartupConfig, octets: &[u8], chunk: usize) {
    let (mut whole, mut pieces) = (Responder::new(config), Responder::new(config));
    let result = feed(&[octets], |o| whole.handle(o));
    assert_eq!(result, feed(&octets.chunks(chunk).collect::<Vec<_>>(), |o| pieces.handle(o)));
    match result {
        Ok(Some((consumed, request))) => {
            assert!(consumed <= octets.len() && request.private_data.len() <= 512);
            let reply = whole.accept(config.ird, config.ord, b"ok").expect("an answer fits");
            reply_is_sound(&reply.0, request.enhanced);
            reply_is_sound(&whole.reject(b"no").expect("a reject fits"), request.enhanced);
        }
        Ok(None) => assert!(whole.accept(0, 0, b"").is_err()),
        Err(error) => {
            if let Some(reply) = whole.reply_for(error) {
                assert!(StartupRepr::parse(&reply).expect("a frame").rejected);
            }
        }
    }
}

fn reply_is_sound(reply: &[u8], enhanced: bool) {
    let fixed = StartupRepr::parse(reply).expect("a frame");
    assert_eq!(fixed.enhanced, enhanced);
    assert_eq!(reply.len(), StartupRepr::LEN + usize::from(fixed.private_data_len));
}

fn initiator(config: StartupConfig, octets: &[u8], chunk: usize) {
    let fresh = || Initiator::new(config, b"hello").expect("a request fits");
    let (mut whole, mut pieces) = (fresh(), fresh());
    let result = feed(&[octets], |o| whole.handle(o));
    assert_eq!(result, feed(&octets.chunks(chunk).collect::<Vec<_>>(), |o| pieces.handle(o)));
    match result {
        Ok(Some((_, Answer::Accepted { negotiated, .. }))) => {
            assert!(whole.terminate_for(StartupError::Local, crc32c).is_some());
            assert_eq!(negotiated.markers_rx, config.markers);
            assert!(negotiated.crc || !config.crc);
            if let Some((ird, ord)) = negotiated.peer_ird_ord {
                let free = |ours: u16, theirs: u16| [ours, theirs].contains(&NO_NEGOTIATION);
                assert!(negotiated.ord <= ird || free(config.ord, ird));
                assert!(negotiated.ird >= ord || free(config.ird, ord));
            }
        }
        Ok(_) => assert_eq!(whole.terminate_for(StartupError::Local, crc32c), None),
        Err(error) => {
            whole.terminate_for(error, crc32c);
        }
    }
}

type Outcome<T> = Result<Option<(usize, T)>, StartupError>;

/// The result, and where the frame ended.
fn feed<T>(
    chunks: &[&[u8]],
    mut handle: impl FnMut(&[u8]) -> Result<Step<T>, StartupError>,
) -> Outcome<T> {
    let mut before = 0;
    for chunk in chunks {
        if let Step::Done { consumed, value } = handle(chunk)? {
            return Ok(Some((before + consumed, value)));
        }
        before += chunk.len();
    }
    Ok(None)
}
