//! A path with a delay between two namespaces, without help of the kernel: socat makes a TUN device in each, and passes
//! each packet as a datagram to this process, which sends it to the other one after the delay. It ends with the test. Both
//! have the highest priority where that is allowed: programs that poll would make the path slower than its delay.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use warpline_patience::Bound;

use crate::netns::Netns;

/// Octets of the largest packet.
const PACKET: usize = 2048;

/// The path: 10.77.0.1 and 10.77.0.2, /24, MTU 1500.
#[derive(Debug)]
pub struct DelayedPath {
    ends: Vec<Child>,
    directory: PathBuf,
}

impl DelayedPath {
    /// Joins two new namespaces; each packet takes `delay`. The error says why it is not possible here.
    pub fn join(a: &Netns, b: &Netns, delay: Duration) -> Result<Self, String> {
        let name = format!("delay-{}-{}", std::process::id(), a.name());
        let directory = std::env::temp_dir().join(name);
        let failed = |error: io::Error| format!("a path with a delay: {error}");
        std::fs::create_dir(&directory).map_err(failed)?;
        let mut path = Self { ends: Vec::new(), directory };
        let (at_a, to_a) = path.end(a, "10.77.0.1")?;
        let (at_b, to_b) = path.end(b, "10.77.0.2")?;
        // From each relay to the other device; replies come from the relay to which the device sends.
        let other = |of: &UnixDatagram| of.try_clone().map_err(failed);
        forward(other(&at_a)?, other(&at_b)?, to_b, delay);
        forward(at_b, at_a, to_a, delay);
        Ok(path)
    }

    /// Makes a device; returns the socket that gets its packets, and the address to which packets for it are sent.
    fn end(&mut self, host: &Netns, address: &str) -> Result<(UnixDatagram, PathBuf), String> {
        let bound = UnixDatagram::bind(self.at(address, "relay"));
        let relay = bound.map_err(|error| format!("a path with a delay: {error}"))?;
        self.add(host, address)?;
        Ok((relay, self.at(address, "tun")))
    }

    fn at(&self, address: &str, end: &str) -> PathBuf {
        self.directory.join(format!("{address}.{end}"))
    }

    fn add(&mut self, host: &Netns, address: &str) -> Result<(), String> {
        let (relay, tun) = (self.at(address, "relay"), self.at(address, "tun"));
        let device = format!("TUN:{address}/24,up,iff-no-pi");
        let datagrams = format!("UNIX-SENDTO:{},bind={}", relay.display(), tun.display());
        // It runs in any case: without the right `nice` only says so.
        let mut command = host.command("nice");
        command
            .args(["-n", "-19", "socat"])
            .args([device, datagrams])
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        self.ends.push(command.spawn().map_err(|error| format!("socat: {error}"))?);
        let bound = Bound::new("the device of a path");
        while !tun.exists() {
            bound.check();
            let end = self.ends.last_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = end {
                return Err(format!("socat cannot make a TUN device: {status}"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for DelayedPath {
    fn drop(&mut self) {
        for end in &mut self.ends {
            // It may have ended already.
            let _ = end.kill();
            let _ = end.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Forwards what `from` receives, `delay` later, until the device at `to` is gone. Its threads are left behind when the
/// other device ends; they end with the process.
fn forward(from: UnixDatagram, by: UnixDatagram, to: PathBuf, delay: Duration) {
    let (late, packets) = channel::<(Instant, Vec<u8>)>();
    // Not allowed to everybody.
    let first = || {
        let _ = setpriority_process(None, -19);
    };
    std::thread::spawn(move || {
        first();
        let mut packet = [0; PACKET];
        while let Ok(length) = from.recv(&mut packet) {
            if late.send((Instant::now() + delay, packet[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        first();
        for (due, packet) in packets {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if by.send_to(&packet, &to).is_err() {
                return;
            }
        }
    });
}
