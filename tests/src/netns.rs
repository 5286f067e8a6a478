//! Network namespaces for a test: separate hosts on this machine, removed when the test ends.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace with its loopback up.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes one; the error has the reason why it is not possible here.
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("wl-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let netns = Self { name };
        netns.exec(&["ip", "link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// Two namespaces joined by a veth pair: 10.77.0.1 and 10.77.0.2, /24, interface `veth`.
    pub fn pair(mtu: u32) -> Result<(Self, Self), String> {
        let (a, b) = (Self::new()?, Self::new()?);
        a.exec(&[
            "ip", "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", &b.name,
        ])?;
        for (ns, addr) in [(&a, "10.77.0.1/24"), (&b, "10.77.0.2/24")] {
            ns.exec(&["ip", "addr", "add", addr, "dev", "veth"])?;
            ns.exec(&["ip", "link", "set", "veth", "mtu", &mtu.to_string(), "up"])?;
        }
        Ok((a, b))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command to run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a command inside; the error carries what it printed.
    pub fn exec(&self, argv: &[&str]) -> Result<(), String> {
        run(Command::new("ip").args(["netns", "exec", &self.name]).args(argv))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Ignored: a namespace that is left over does no harm.
        let _ = run(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// True if `program` can be started.
pub fn have(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
