//! The FPDU stream: framing takes any octets in any pieces with the same result, a frame that is
//! taken can be sent again, and every header in it survives decoding and encoding.
//!
//! Set-up octets: flags (CRC, markers), stream position in units of 4 (two octets), chunk size.

use iwarp_proto::decode::{DecodeOptions, Start, explain};
use iwarp_proto::mpa::{Parsed, Rx, Tx};
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::{AtomicRequestRepr, AtomicResponseRepr, ReadRequestRepr};
use iwarp_proto::wire::terminate::TerminateRepr;
use iwarp_proto::{Crc32c, ProtocolError};

use crate::{crc32c, set_up};

/// Runs one input.
pub fn run(input: &[u8]) {
    let ([flags, high, low, chunk], octets) = set_up(input);
    let (crc, markers) = ((flags & 1 != 0).then_some(crc32c as Crc32c), flags & 2 != 0);
    let position = u64::from(u16::from_be_bytes([high, low])) * 4;
    let rx = Rx::at(crc, markers, position);
    let whole = receive(rx, octets, octets.len().max(1));
    assert_eq!(whole, receive(rx, octets, usize::from(chunk) + 1));

    let (mut tx, mut sent) = (Tx::at(crc, markers, position), Vec::new());
    for ulpdu in &whole.0 {
        sent.extend(send(&mut tx, ulpdu));
        headers(ulpdu);
    }
    let again = receive(rx, &sent, sent.len().max(1));
    assert_eq!((again.0, again.1), (whole.0, None));

    let options = DecodeOptions { crc, markers, start: Start::Fpdu { position } };
    let frames = explain(octets, options);
    assert_eq!(frames.iter().map(|frame| frame.length).sum::<usize>(), octets.len());
}

/// RFC 5044 4.1 and 4.3: length field, ULPDU, padding, CRC; a marker of 4 octets for each 508 of these, and one
/// more.
const LONGEST_FPDU: usize = 65_544 + 4 * (65_544 / 508 + 1);

type Received = (Vec<Vec<u8>>, Option<ProtocolError>);

/// All ULPDUs, `chunk` octets arriving at a time, and the error that ended the stream.
fn receive(mut rx: Rx, octets: &[u8], chunk: usize) -> Received {
    let (mut ulpdus, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        match rx.parse(&octets[start..end]) {
            Parsed::Fpdu(fpdu) => {
                let ulpdu: Vec<u8> = fpdu.pieces(0).flatten().copied().collect();
                let mut scratch = [0; 88];
                assert_eq!(fpdu.head(&mut scratch), &ulpdu[..ulpdu.len().min(88)]);
                assert_eq!(ulpdu.len(), usize::from(fpdu.ulpdu_len()));
                start += fpdu.wire_len();
                ulpdus.push(ulpdu);
            }
            Parsed::Bad(error) => return (ulpdus, Some(error)),
            Parsed::Need(need) => {
                assert!(need > end - start && need <= LONGEST_FPDU);
                if end == octets.len() {
                    return (ulpdus, None);
                }
                end = octets.len().min(end + chunk);
            }
        }
    }
}

fn send(tx: &mut Tx, ulpdu: &[u8]) -> Vec<u8> {
    let plan = tx.plan(ulpdu.len() as u16);
    let mut out = vec![0; plan.wire_len()];
    plan.encode(&plan.length_field(), &mut out, |at, to: &mut [u8]| {
        to.copy_from_slice(&ulpdu[at as usize..][..to.len()]);
        Ok::<(), ()>(())
    })
    .expect("no copy fails");
    out
}

fn headers(ulpdu: &[u8]) {
    let Ok(header) = Header::parse(ulpdu) else { return };
    let mut octets = vec![0; header.buffer_len()];
    assert_eq!(header.emit(&mut octets), Ok(octets.len()));
    assert!(ulpdu.starts_with(&octets));
    let payload = &ulpdu[octets.len()..];
    if let Ok(request) = ReadRequestRepr::parse(payload) {
        assert!(payload.starts_with(&request.emit()));
    }
    if let Ok(request) = AtomicRequestRepr::parse(payload) {
        assert_eq!(AtomicRequestRepr::parse(&request.emit()), Ok(request));
    }
    if let Ok(response) = AtomicResponseRepr::parse(payload) {
        assert!(payload.starts_with(&response.emit()));
    }
    if let Ok(terminate) = TerminateRepr::parse(payload) {
        let mut octets = vec![0; terminate.buffer_len()];
        assert_eq!(terminate.emit(&mut octets), Ok(octets.len()));
        assert_eq!(TerminateRepr::parse(&octets), Ok(terminate));
    }
}
