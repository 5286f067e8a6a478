//! Start-up frames of raw peers, and raw peers that send requests and replies.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::common::{HANG, Side};

/// A start-up frame: key, flags, revision, private data.
pub(crate) fn frame(kind: &str, flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let mut octets = format!("MPA ID {kind} Frame").into_bytes();
    octets.extend([flags, revision]);
    octets.extend((private_data.len() as u16).to_be_bytes());
    octets.extend(private_data);
    octets
}

pub(crate) fn request(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    frame("Req", flags, revision, private_data)
}

pub(crate) fn reply(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    frame("Rep", flags, revision, private_data)
}

pub(crate) const CRC: u8 = 0x40;
pub(crate) const REJECT: u8 = 0x20;
pub(crate) const ENHANCED: u8 = 0x10;

/// All octets until the peer closes or resets.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut octets = Vec::new();
    match stream.read_to_end(&mut octets) {
        Ok(_) => octets,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => octets,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn raw(address: SocketAddr, octets: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(octets).unwrap();
    stream
}

/// A raw connection whose request the application has received, and the id of the request.
pub(crate) fn asking(server: &Side, listen: &ual::Listen) -> (TcpStream, ual::RequestId) {
    let stream = raw(listen.addresses()[0], &request(CRC, 1, b""));
    stream.set_read_timeout(Some(HANG)).unwrap();
    (stream, server.request().request)
}

/// A server that sends each connection the next of these replies, and records the requests.
pub(crate) fn scripted(answers: Vec<Option<Vec<u8>>>) -> (SocketAddr, Scripted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            let mut request = vec![0; 20];
            stream.read_exact(&mut request).unwrap();
            let mut data = vec![0; u16::from_be_bytes([request[18], request[19]]).into()];
            stream.read_exact(&mut data).unwrap();
            request.extend(data);
            if let Some(answer) = answer {
                stream.write_all(&answer).unwrap();
                // A peer that connects again from the same port has reset this connection by then.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                request.extend(read_to_end(&mut stream));
            }
            asked.push(request);
        }
        asked
    };
    (address, Scripted(std::thread::spawn(script)))
}

/// The server's thread.
pub(crate) struct Scripted(std::thread::JoinHandle<Vec<Vec<u8>>>);

impl Scripted {
    /// The requests of all connections for which it had replies.
    pub(crate) fn asked(self) -> Vec<Vec<u8>> {
        warpline_patience::within("the server to get a request for each reply", || {
            self.0.join().unwrap()
        })
    }
}
