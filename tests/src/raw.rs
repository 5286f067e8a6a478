//! Raw iWARP peer: builds and parses frames octet by octet, also malformed ones. Shares no code with the stack
//! under test.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time-out of a raw peer's wait for a response.
const PATIENCE: Duration = Duration::from_secs(20);

/// MPA Request, revision 1, CRC on, with private data.
pub fn mpa_request(crc: bool, private_data: &[u8]) -> Vec<u8> {
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([if crc { 0x40 } else { 0 }, 1]);
    frame.extend((private_data.len() as u16).to_be_bytes());
    frame.extend(private_data);
    frame
}

/// FPDU around a ULPDU: length, pad, CRC (RFC 5044 section 4).
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
    frame.extend(ulpdu);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let crc = crc32c::crc32c(&frame);
    frame.extend(crc.to_le_bytes());
    frame
}

/// Untagged ULPDU: control octets, RsvdULP, QN, MSN, MO, payload.
pub fn untagged(opcode: u8, last: bool, qn: u32, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![if last { 0x41 } else { 0x01 }, 0x40 | opcode];
    for field in [0, qn, msn, mo] {
        ulpdu.extend(field.to_be_bytes());
    }
    ulpdu.extend(payload);
    ulpdu
}

/// Tagged ULPDU: control octets, STag, TO, payload.
pub fn tagged(opcode: u8, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![if last { 0xc1 } else { 0x81 }, 0x40 | opcode];
    ulpdu.extend(stag.to_be_bytes());
    ulpdu.extend(to.to_be_bytes());
    ulpdu.extend(payload);
    ulpdu
}

/// The peer's responses before its FIN or reset.
#[derive(Debug, Default)]
pub struct Answer {
    /// ULPDUs of the valid FPDUs, in order.
    pub ulpdus: Vec<Vec<u8>>,
    /// The stream ended with a reset instead of a FIN.
    pub reset: bool,
}

impl Answer {
    /// Layer, type and code of each Terminate.
    pub fn terminates(&self) -> Vec<(u8, u8, u8)> {
        self.ulpdus
            .iter()
            .filter(|u| u.len() >= 20 && u[1] & 0x0f == 7)
            .map(|u| (u[18] >> 4, u[18] & 0x0f, u[19]))
            .collect()
    }
}

/// A connected raw peer, after the start-up.
#[derive(Debug)]
pub struct RawPeer {
    stream: TcpStream,
    /// Private data of the peer's MPA Reply.
    pub private_data: Vec<u8>,
}

impl RawPeer {
    /// Connects and completes a revision 1 start-up as initiator.
    pub fn connect(addr: SocketAddr, crc: bool, private_data: &[u8]) -> io::Result<Self> {
        let mut stream = Self::open(addr)?;
        stream.write_all(&mpa_request(crc, private_data))?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        if &head[..16] != b"MPA ID Rep Frame" || head[16] & 0x20 != 0 {
            return Err(io::Error::other(format!("not an accepting reply: {head:02x?}")));
        }
        let mut private_data = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
        stream.read_exact(&mut private_data)?;
        Ok(Self { stream, private_data })
    }

    /// Opens the TCP connection only.
    pub fn open(addr: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// The socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends octets; a peer that has closed already is not an error.
    pub fn send(&mut self, octets: &[u8]) {
        let _ = self.stream.write_all(octets);
    }

    /// Reads one FPDU and returns its ULPDU; checks length, pad and CRC.
    pub fn read_fpdu(&mut self) -> io::Result<Vec<u8>> {
        let mut len = [0; 2];
        self.stream.read_exact(&mut len)?;
        let ulpdu_len = usize::from(u16::from_be_bytes(len));
        let padded = (2 + ulpdu_len).next_multiple_of(4);
        let mut frame = vec![0; padded + 4];
        frame[..2].copy_from_slice(&len);
        self.stream.read_exact(&mut frame[2..])?;
        let crc = u32::from_le_bytes([
            frame[padded],
            frame[padded + 1],
            frame[padded + 2],
            frame[padded + 3],
        ]);
        if crc != crc32c::crc32c(&frame[..padded]) {
            return Err(io::Error::other("the peer's FPDU has a bad CRC"));
        }
        Ok(frame[2..2 + ulpdu_len].to_vec())
    }

    /// Reads FPDUs until the stream ends.
    pub fn drain(&mut self) -> io::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            match self.read_fpdu() {
                Ok(ulpdu) => answer.ulpdus.push(ulpdu),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(answer),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    answer.reset = true;
                    return Ok(answer);
                }
                Err(e) => return Err(e),
            }
        }
    }
}
