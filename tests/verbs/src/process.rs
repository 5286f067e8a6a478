//! Processes of a run: each in its own process group, which ends with its owner or at a time-out, with the
//! output in a file. A server is ready when a socket listens on its port.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A process that was started, and what it printed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: PathBuf,
    begun: Instant,
}

impl Process {
    /// Starts it. Its children end with it.
    pub fn start(mut command: Command) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbs-program-{}-{number}", std::process::id());
        let output = std::env::temp_dir().join(name);
        let file = File::create(&output).unwrap();
        command.stdin(Stdio::null()).stderr(file.try_clone().unwrap()).stdout(file);
        command.process_group(0);
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        Ok(Self { child, output, begun: Instant::now() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end; `None`: it has run longer than `bound` since its start, and still does.
    pub fn wait(&mut self, bound: Duration) -> Option<ExitStatus> {
        loop {
            match self.ended() {
                Some(status) => return Some(status),
                None if self.begun.elapsed() > bound => return None,
                // Sleep between two checks, to leave the processor to the program.
                None => std::thread::park_timeout(Duration::from_millis(5)),
            }
        }
    }

    /// Kills it and its group at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Has it end, as `kill` does; waits for that.
    pub fn terminate(&mut self) -> ExitStatus {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
        warpline_patience::until("a process to end", || self.ended().is_some());
        self.child.wait().unwrap()
    }

    /// Stack traces of its threads, by gdb.
    pub fn threads(&self) -> String {
        let mut gdb = Command::new("gdb");
        gdb.args(["-batch", "-ex", "thread apply all bt", "-p", &self.child.id().to_string()]);
        match gdb.stdin(Stdio::null()).stderr(Stdio::null()).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(why) => format!("gdb: {why}"),
        }
    }

    /// What it has printed so far.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Some descendants have left the group; those that have ended meanwhile are not our children.
        for descendant in descendants(self.child.id()) {
            let _ = kill_process(descendant, Signal::KILL);
        }
        // The rest of the group, even if only descendants are left.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.output);
    }
}

/// All descendants of a process (proc(5), `/proc/PID/stat`).
fn descendants(of: u32) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let parent = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, in parentheses, may contain parentheses.
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pairs: Vec<_> = ids.filter_map(|id| Some((id, parent(id)?))).collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&one) = found.get(next) {
        found.extend(pairs.iter().filter(|(_, parent)| *parent == one).map(|(id, _)| id));
        next += 1;
    }
    found.drain(..1);
    found.into_iter().filter_map(|id| Pid::from_raw(id as i32)).collect()
}

/// A free TCP port that the kernel will not pick as an ephemeral one.
pub fn free_port() -> u16 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Below the range of ephemeral ports (ip(7), ip_local_port_range); different for concurrent runs.
    let start = std::process::id() % 4096 * 4;
    loop {
        let port = 10_000 + (start + LAST.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("0.0.0.0", port as u16)).is_ok() {
            return port as u16;
        }
    }
}

/// Whether a socket listens on a port of this machine.
pub fn is_listening(port: u16) -> bool {
    sockets(port).contains(&LISTEN)
}

/// Whether a socket listens on a port of this machine, and no other is connected there.
pub fn waits_for_a_client(port: u16) -> bool {
    let states = sockets(port);
    states.contains(&LISTEN) && !states.contains(&ESTABLISHED)
}

const ESTABLISHED: u8 = 0x01;
const LISTEN: u8 = 0x0A;

/// The states of sockets that are bound to a port (proc(5), /proc/net/tcp).
fn sockets(port: u16) -> Vec<u8> {
    let end = format!(":{port:04X}");
    let state = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words.get(1)?.ends_with(&end);
        is_it.then(|| u8::from_str_radix(words.get(3)?, 16).ok())?
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    tables.iter().flatten().flat_map(|table| table.lines().filter_map(state)).collect()
}
