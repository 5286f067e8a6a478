//! Tries each start-up of RFC 5044 and RFC 6581 with a peer, on a connection of its own. Each wait for a reply
//! has a time-out; nothing is sent after the start-up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kal_os::Use;

use super::Finding;
use crate::error::{CliError, CliResult, Exit};

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;

/// A kind of start-up request.
struct Way {
    name: &'static str,
    revision: u8,
    flags: u8,
}

// RFC 5044 7.1, RFC 6581 9.2
const WAYS: &[Way] = &[
    Way { name: "revision 2, CRC", revision: 2, flags: CRC },
    Way { name: "revision 2, no CRC", revision: 2, flags: 0 },
    Way { name: "revision 1, CRC", revision: 1, flags: CRC },
    Way { name: "revision 1, no CRC", revision: 1, flags: 0 },
    Way { name: "revision 1, CRC, markers", revision: 1, flags: CRC | MARKERS },
];

pub(super) fn findings(peer: &str, limit: Duration) -> CliResult<Vec<Finding>> {
    let usage = |why: String| {
        CliError::new(Exit::Usage, format!("`{peer}` cannot be looked at: {why}"))
            .at("doctor HOST:PORT")
            .hint("name a host and a port, e.g. 10.1.0.7:7174 or [::1]:7174")
    };
    if peer.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(usage("it has no port".into()));
    }
    let addresses = ual::resolve(peer, 0).map_err(|error| usage(error.to_string()))?;
    let Some(&address) = addresses.first() else {
        return Err(usage("the name has no address".into()));
    };
    let begin = Instant::now();
    if let Err(error) = TcpStream::connect_timeout(&address, limit) {
        let remedy = match kal_os::address_remedy(&error, &address, Use::Connect) {
            Some(remedy) => remedy,
            None if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                "start the server there, or name its port"
            }
            None => "see whether the way is open: ip route get, and firewalls at both ends",
        };
        return Ok(vec![Finding::fail("reach", format!("{address}: {error}"), remedy)]);
    }
    let took = begin.elapsed().as_micros();
    let reach = format!("{address} accepts TCP connections, in {took} us");
    let (mut all, mut works, mut silent) = (Vec::new(), false, 0);
    for way in WAYS {
        let finding = match ask(address, way, limit) {
            Ok(reply) => describe(way, reply),
            Err(Unusable::Silent) => {
                silent += 1;
                avoid(way, Unusable::Silent.says(limit))
            }
            Err(why) => avoid(way, why.says(limit)),
        };
        works |= finding.state == super::State::Ok;
        all.push(finding);
        // Its system accepts connections, but its process does not run.
        if silent == ENOUGH && all.len() == ENOUGH {
            let says =
                format!("{reach}, but replies to no start-up within {} s", limit.as_secs_f64());
            let remedy = "at the peer, see whether the process is stopped or hangs: `warpline doctor` there names stopped \
                          processes, `kill -CONT PID` continues one";
            return Ok(vec![Finding::fail("peer", says, remedy)]);
        }
    }
    all.insert(0, Finding::ok("reach", reach));
    if !works {
        all.push(Finding::fail(
            "peer",
            "it starts up in no way",
            "see whether what listens there speaks iWARP; `warpline conform` tests it in detail",
        ));
    }
    Ok(all)
}

/// So many first start-ups without a reply show that there is no reply to any.
const ENOUGH: usize = 3;

/// Why a start-up failed.
enum Unusable {
    /// There is no reply in time.
    Silent,
    Other(String),
}

impl Unusable {
    fn says(self, limit: Duration) -> String {
        match self {
            Self::Silent => format!("no reply within {} s", limit.as_secs_f64()),
            Self::Other(why) => why,
        }
    }
}

fn avoid(way: &Way, why: String) -> Finding {
    Finding::warn(way.name, why, "avoid it: `[policy.peers]` of the configuration")
}

/// Flags and revision of the reply.
fn ask(address: SocketAddr, way: &Way, limit: Duration) -> Result<(u8, u8), Unusable> {
    let failure = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Unusable::Silent,
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            Unusable::Other("the peer closes the connection".to_owned())
        }
        _ => Unusable::Other(error.to_string()),
    };
    let mut stream = TcpStream::connect_timeout(&address, limit).map_err(failure)?;
    stream.set_read_timeout(Some(limit)).map_err(failure)?;
    // RFC 6581 9.2: IRD and ORD of one each, before private data.
    let enhanced: &[u8] = if way.revision == 2 { &[0, 1, 0, 1] } else { &[] };
    let mut request = b"MPA ID Req Frame".to_vec();
    request.extend([way.flags | if enhanced.is_empty() { 0 } else { 0x10 }, way.revision]);
    request.extend((enhanced.len() as u16).to_be_bytes());
    request.extend(enhanced);
    stream.write_all(&request).map_err(failure)?;
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).map_err(failure)?;
    if &reply[..16] != b"MPA ID Rep Frame" {
        return Err(Unusable::Other("what replies there does not speak MPA".into()));
    }
    Ok((reply[16], reply[17]))
}

fn describe(way: &Way, (flags, revision): (u8, u8)) -> Finding {
    let mut says = vec![format!("revision {revision}")];
    says.push(if flags & CRC != 0 { "wants CRC" } else { "no CRC" }.into());
    if flags & MARKERS != 0 {
        says.push("wants markers".into());
    }
    let says = says.join(", ");
    match flags & REJECT {
        0 => Finding::ok(way.name, format!("accepted: {says}")),
        _ => Finding::warn(
            way.name,
            format!("rejected: {says}"),
            "see what the server's application accepts; it may be full, or want private data",
        ),
    }
}
