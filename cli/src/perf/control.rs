//! The control protocol of client and server: lines of JSON over a TCP connection of its own, next to the
//! connections that are measured. Owned by one thread at either side. A peer that sends something else, or
//! nothing, is an error within seconds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kal_os::Use;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::case::{Case, Reference};
use crate::error::{CliError, CliResult, Exit};

/// Port of the control connection, unless another is named.
pub(super) const PORT: u16 = 18_515;

/// The protocol version: both ends must have the same cases.
const VERSION: u32 = 1;

/// For connecting, and for the first reply.
const GREETING: Duration = Duration::from_secs(5);

/// For every other reply: a measurement starts and ends with connections only.
const ANSWER: Duration = Duration::from_secs(60);

/// For the server's reason after a failure, which may be that it hangs.
const REASON: Duration = Duration::from_secs(2);

/// No line of this protocol is longer.
const LONGEST_LINE: u64 = 4096;

/// A request of the client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// The first one.
    Hello { warpline_perf: u32 },
    /// Serve a measurement: the reply is `Ready`.
    Case(Case),
    /// Serve a measurement of raw TCP: the reply is `Ready`.
    Raw(Reference),
    /// Processor time so far: the reply is `Used`.
    Used,
    /// The measurement is over: the reply is `Done`.
    End,
}

/// A reply of the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// To `Hello`.
    Hello { warpline_perf: u32 },
    /// The port to connect to, of the address that the control connection goes to.
    Ready { port: u16 },
    /// Processor time of the process in microseconds, and its octets in memory.
    Used { cpu_us: f64, resident: u64 },
    /// The measurement is over.
    Done,
    /// Why not.
    Failed { why: String },
}

/// One end.
#[derive(Debug)]
pub(super) struct Control {
    stream: BufReader<TcpStream>,
    peer: SocketAddr,
}

impl Control {
    /// The client's end, greeted.
    pub(super) fn connect(host: &str) -> CliResult<Self> {
        let addresses = ual::resolve(host, PORT)
            .map_err(|error| CliError::unresolved(&error).at("perf run"))?;
        let mut failure = CliError::new(Exit::Network, format!("{host} has no address"));
        for address in addresses {
            match TcpStream::connect_timeout(&address, GREETING) {
                Ok(stream) => return Self::greet(stream, address),
                Err(error) => {
                    failure = unreached(&error, &address);
                }
            }
        }
        Err(failure)
    }

    fn greet(stream: TcpStream, address: SocketAddr) -> CliResult<Self> {
        let mut control = Self::new(stream, address)?;
        let hello = control.ask_within(GREETING, &Request::Hello { warpline_perf: VERSION });
        match hello {
            Ok(Answer::Hello { warpline_perf: VERSION }) => Ok(control),
            Ok(Answer::Hello { warpline_perf: theirs }) => Err(control
                .failed(format!("it speaks version {theirs} of the protocol, we {VERSION}"))
                .hint("use the same version of warpline at both ends")),
            Ok(_) => Err(control.stranger("it does not send its greeting")),
            Err(error) => Err(error),
        }
    }

    /// The server's end; `None`: the peer does not speak this protocol.
    pub(super) fn accept(stream: TcpStream, peer: SocketAddr) -> CliResult<Option<Self>> {
        let mut control = Self::new(stream, peer)?;
        control.patience(Some(GREETING))?;
        let Ok(Some(Request::Hello { .. })) = control.receive() else { return Ok(None) };
        control.say(&Answer::Hello { warpline_perf: VERSION })?;
        control.patience(None)?;
        Ok(Some(control))
    }

    fn new(stream: TcpStream, peer: SocketAddr) -> CliResult<Self> {
        let control = Self { stream: BufReader::new(stream), peer };
        let set = control.stream.get_ref().set_nodelay(true);
        set.map_err(|error| control.failed(error.to_string()))?;
        Ok(control)
    }

    /// The other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end.
    pub(super) fn local(&self) -> CliResult<SocketAddr> {
        let local = self.stream.get_ref().local_addr();
        local.map_err(|error| self.failed(error.to_string()))
    }

    /// Sends a request and waits for the reply; a failure at the server is an error.
    pub(super) fn ask(&mut self, request: &Request) -> CliResult<Answer> {
        self.ask_within(ANSWER, request)
    }

    fn ask_within(&mut self, patience: Duration, request: &Request) -> CliResult<Answer> {
        self.patience(Some(patience))?;
        self.say(request)?;
        match self.receive()? {
            Some(Answer::Failed { why }) => Err(self.failed(why)),
            Some(answer) => Ok(answer),
            None => Err(self.failed("the server ended the connection".into())),
        }
    }

    /// After a failure of a measurement: ends it, and returns the server's reason if the server's part failed, too.
    pub(super) fn why_ended(&mut self) -> Option<String> {
        self.patience(Some(REASON)).ok()?;
        self.say(&Request::End).ok()?;
        match self.receive().ok()? {
            Some(Answer::Failed { why }) => Some(why),
            _ => None,
        }
    }

    /// Sends a line.
    pub(super) fn say(&mut self, what: &impl Serialize) -> CliResult<()> {
        let mut line = serde_json::to_vec(what).map_err(|error| self.failed(error.to_string()))?;
        line.push(b'\n');
        let written = self.stream.get_mut().write_all(&line);
        written.map_err(|error| self.failed(error.to_string()))
    }

    /// The next line; `None` after the last one.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> CliResult<Option<T>> {
        let mut line = Vec::new();
        let read = Read::by_ref(&mut self.stream).take(LONGEST_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(0) => Ok(None),
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(message) => Ok(Some(message)),
                Err(_) => Err(self.stranger("what it sends does not belong to this protocol")),
            },
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                Err(self.stranger("it says nothing"))
            }
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn patience(&self, patience: Option<Duration>) -> CliResult<()> {
        let set = self.stream.get_ref().set_read_timeout(patience);
        set.map_err(|error| self.failed(error.to_string()))
    }

    /// The error of a reply that was not requested.
    pub(super) fn confused(&self, answer: &Answer) -> CliError {
        self.failed(format!("it sent {answer:?}, which was not requested"))
    }

    fn failed(&self, what: String) -> CliError {
        CliError::new(Exit::Network, what).at(format!("control connection with {}", self.peer))
    }

    fn stranger(&self, what: &str) -> CliError {
        self.failed(what.into())
            .because("the peer is not `warpline perf serve`, or another version")
            .hint(format!("`warpline perf serve ADDR:{}` there", self.peer.port()))
    }
}

fn unreached(error: &std::io::Error, address: &SocketAddr) -> CliError {
    let failure = CliError::new(Exit::Network, format!("cannot connect: {error}"))
        .at(format!("control connection to {address}"));
    match kal_os::address_remedy(error, address, Use::Connect) {
        Some(remedy) => failure.hint(remedy),
        None => failure
            .because("no `warpline perf serve` listens there, or a firewall is between")
            .hint(format!("`warpline perf serve ADDR:{}` there", address.port())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The error of a request on a control connection whose other end does not reply.
    fn unanswered(beyond: impl FnOnce(&mut TcpStream)) -> CliError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        beyond(&mut far);
        let mut control = Control::new(near, address).unwrap();
        control.ask_within(Duration::from_millis(1), &Request::Used).unwrap_err()
    }

    #[test]
    fn a_server_that_stops_responding_is_a_time_out() {
        for (written, beyond) in [("", "it says nothing"), ("{\"do", "it says nothing")] {
            let error = unanswered(|far| far.write_all(written.as_bytes()).unwrap());
            assert!(error.render(80).contains(beyond), "{}", error.render(80));
        }
        let error = unanswered(|far| far.shutdown(std::net::Shutdown::Write).unwrap());
        assert!(error.render(80).contains("ended the connection"), "{}", error.render(80));
    }
}
