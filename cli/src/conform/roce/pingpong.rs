//! Connections by path with ibv_rc_pingpong of rdma-core: both ends write LID, queue pair number, first PSN and GID to a
//! TCP connection. Main thread only; the server serves one connection and ends, and the caller starts it again.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::bench::Bench;
use super::link::{Link, Terms};
use super::packet::MASK;
use super::wire::wide;
use crate::conform::verdict::{Play, fail, skip};
use crate::signals;

/// Octets of the message: three numbers and a GID, with colons between them and a zero at the end.
const MESSAGE: usize = 52;
/// How long a server may take to start again.
const RESTART: Duration = Duration::from_secs(10);

impl Bench {
    /// A connection with the server. Its path MTU is 1024 unless it was told otherwise.
    pub(super) fn by_path(&mut self) -> Play<Link> {
        let (qpn, ours) = (self.qpn(), self.random() & MASK);
        let mut stream = self.dial(self.address)?;
        let gid: String = wide(self.wire.here).iter().map(|octet| format!("{octet:02x}")).collect();
        let mut words = format!("0000:{qpn:06x}:{ours:06x}:{gid}").into_bytes();
        words.resize(MESSAGE, 0);
        let mut reply = [0; MESSAGE];
        self.wire.open(qpn);
        let told = stream
            .write_all(&words)
            .and_then(|()| stream.read_exact(&mut reply))
            .and_then(|()| stream.write_all(b"done\0"));
        if let Err(error) = told {
            return fail(format!("ibv_rc_pingpong's exchange failed: {error}"));
        }
        let text = String::from_utf8_lossy(&reply).into_owned();
        let mut parts = text.split(':').skip(1).map(|part| u32::from_str_radix(part, 16).ok());
        let (Some(Some(peer_qpn)), Some(Some(theirs))) = (parts.next(), parts.next()) else {
            return fail(format!("ibv_rc_pingpong sent {text:?}"));
        };
        self.meet_gid(gid_of(&text))?;
        let terms = Terms {
            qpn,
            peer_qpn,
            ours,
            theirs,
            mtu: 1024,
            resources: 1,
            ids: None,
            private: Vec::new(),
            writes: false,
        };
        Ok(Link::new(self.wire.clone(), terms, self.patience))
    }

    /// The server's packets come from the address of its GID, which is that of the TCP connection only if it was told so.
    fn meet_gid(&self, gid: Option<IpAddr>) -> Play {
        match gid {
            Some(address) if address == self.wire.there() => Ok(()),
            Some(address) => fail(format!(
                "the server's GID is that of {address}, not of {}: choose another with its option -g",
                self.wire.there()
            )),
            None => fail("the server sent no GID: it needs its option -g"),
        }
    }

    fn dial(&self, address: SocketAddr) -> Play<TcpStream> {
        let until = Instant::now() + RESTART;
        loop {
            match TcpStream::connect_timeout(&address, self.patience) {
                Ok(stream) => {
                    // The exchange is short; without a bound the read ends with the server.
                    let _ = stream.set_read_timeout(Some(self.patience));
                    return Ok(stream);
                }
                Err(error) if Instant::now() > until || signals::caught() => {
                    return skip(format!("no TCP connection with {address}: {error}"));
                }
                // Nothing tells when the server is started again.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// The address of the GID in a message.
fn gid_of(text: &str) -> Option<IpAddr> {
    let digits = text.trim_end_matches(['\0', '\n']).rsplit(':').next()?;
    let number = u128::from_str_radix(digits.get(..32)?, 16).ok()?;
    Some(std::net::Ipv6Addr::from(number).to_canonical())
}
