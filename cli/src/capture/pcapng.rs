//! Writes pcapng: one section, one interface of raw IP packets with nanoseconds, and its statistics at the end
//! (draft-ietf-opsawg-pcapng).

use std::io::{self, Write};

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const COMMENT: u16 = 1;
const TIME_RESOLUTION: u16 = 9;
const RECEIVED: u16 = 4;
const DROPPED: u16 = 5;

/// LINKTYPE_RAW: packets begin with their IP header.
const RAW: u16 = 101;

/// A file being written.
pub(super) struct Pcapng<W: Write> {
    out: W,
    /// Nanoseconds of the last packet.
    last: u64,
}

impl<W: Write> Pcapng<W> {
    pub(super) fn begin(mut out: W, comment: &str) -> io::Result<Self> {
        let mut body = 0x1A2B_3C4D_u32.to_le_bytes().to_vec();
        body.extend_from_slice(&[1, 0, 0, 0]);
        // The length of the section is not known.
        body.extend_from_slice(&[0xFF; 8]);
        option(&mut body, COMMENT, comment.as_bytes());
        end_of_options(&mut body);
        block(&mut out, SECTION, &body)?;
        let mut body = RAW.to_le_bytes().to_vec();
        body.extend_from_slice(&[0; 6]);
        option(&mut body, TIME_RESOLUTION, &[9]);
        end_of_options(&mut body);
        block(&mut out, INTERFACE, &body)?;
        out.flush()?;
        Ok(Self { out, last: 0 })
    }

    /// A packet of `len` octets, of which the first were captured.
    pub(super) fn packet(&mut self, time: u64, len: usize, front: &[u8]) -> io::Result<()> {
        self.last = time;
        let mut body = Vec::with_capacity(20 + front.len().next_multiple_of(4));
        body.extend_from_slice(&0_u32.to_le_bytes());
        put_time(&mut body, time);
        body.extend_from_slice(&(front.len() as u32).to_le_bytes());
        body.extend_from_slice(&(len as u32).to_le_bytes());
        body.extend_from_slice(front);
        pad(&mut body);
        block(&mut self.out, PACKET, &body)
    }

    /// The statistics, which end the file.
    pub(super) fn end(mut self, received: u64, dropped: u64) -> io::Result<()> {
        let mut body = 0_u32.to_le_bytes().to_vec();
        put_time(&mut body, self.last);
        option(&mut body, RECEIVED, &(received + dropped).to_le_bytes());
        option(&mut body, DROPPED, &dropped.to_le_bytes());
        end_of_options(&mut body);
        block(&mut self.out, STATISTICS, &body)?;
        self.out.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&len)?;
    out.write_all(body)?;
    out.write_all(&len)
}

fn put_time(body: &mut Vec<u8>, time: u64) {
    body.extend_from_slice(&((time >> 32) as u32).to_le_bytes());
    body.extend_from_slice(&(time as u32).to_le_bytes());
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend_from_slice(&[0; 4]);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}
