//! Tests of root's commands on files and sockets of another user, who puts there what he likes. Only root can run them.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FlockOperation, flock, mkfifoat};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use warpline_skip::skip;

use crate::stat::Runtime;
use crate::support::{Running, line_with, text, warpline};

/// User of the files.
const NOBODY: u32 = 65_534;

/// The directory of temporary files, with one of another user's pages.
struct Host {
    open: PathBuf,
    pages: PathBuf,
    _runtime: Runtime,
}

impl Host {
    /// `None`: this user is not root.
    fn new(test: &str) -> Option<Self> {
        let runtime = Runtime::new();
        let open = std::env::temp_dir().join(runtime.0.file_name().unwrap());
        let pages = open.join(format!("warpline-{NOBODY}"));
        fs::create_dir_all(&pages).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        fs::set_permissions(&pages, Permissions::from_mode(0o700)).unwrap();
        let host = Self { open, pages, _runtime: runtime };
        match chown(&host.pages, Some(NOBODY), None) {
            Ok(()) => Some(host),
            Err(_) => {
                skip(test, "only root becomes another user");
                None
            }
        }
    }

    /// A command of root, or of the other user.
    fn command(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = warpline();
        let program = self.open.join("warpline");
        if user != 0 && !program.exists() {
            warpline_patience::copy_program(command.get_program(), &program);
        }
        if user != 0 {
            command = Command::new(program);
        }
        command.args(arguments).uid(user).current_dir("/").env("TMPDIR", &self.open);
        command.env_remove("XDG_RUNTIME_DIR").env_remove("WARPLINE_CONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Standard output and error of a command of root.
    fn run(&self, arguments: &[&str]) -> (String, String) {
        let output = self.command(0, arguments).output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    }

    /// A server of pings of the other user.
    fn server(&self) -> Running {
        let mut server =
            Running::new(self.command(NOBODY, &["ping", "--serve=127.0.0.1:0"]).spawn().unwrap());
        line_with(&mut server.stdout(), |line| line.contains(" at "));
        server
    }

    /// A file of the other user, which has the lock that a living process holds.
    fn page(&self, name: &str, octets: &[u8], len: u64) -> File {
        let path = self.pages.join(name);
        fs::write(&path, octets).unwrap();
        chown(&path, Some(NOBODY), None).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(len).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        file
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.open);
    }
}

/// Octets that a command of root reads until it ends.
fn octets_read(mut command: Command) -> u64 {
    let child = Running::new(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn little_is_read_of_what_another_user_puts_into_his_directory() {
    let Some(host) = Host::new("files of another user") else { return };
    let server = host.server();
    let page = fs::read(host.pages.join(format!("{}.state", server.id()))).unwrap();
    let all_read = || octets_read(host.command(0, &["stat", "--all", "--json"]));
    let before = all_read();
    let length = 600 << 20;
    let mut huge = page.clone();
    // state_page::layout: the number of slots.
    huge[36..40].copy_from_slice(&1_000_000u32.to_ne_bytes());
    let mut held = Vec::new();
    for n in 1..20 {
        held.push(host.page(&format!("{n}.state"), &[0x55; 4096], length));
        held.push(host.page(&format!("{n}.1.state"), &huge, length));
    }
    mkfifoat(CWD, host.pages.join("50.state"), 0o600.into()).unwrap();
    symlink("/etc/passwd", host.pages.join("51.state")).unwrap();
    fs::create_dir(host.pages.join("52.state")).unwrap();
    let _socket = UnixListener::bind(host.pages.join("53.state")).unwrap();
    fs::write(host.pages.join("\x1b[2J.state"), b"").unwrap();
    let read = all_read();
    assert!(read < before + (1 << 20), "{read} octets, and {before} before");
    let (out, error) = host.run(&["stat", "--all", "--json"]);
    let all: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    assert_eq!(all["processes"][0]["pid"], server.id(), "{all:#}");
    let troubles = all["troubles"].as_array().unwrap();
    let names = |name: &str, why: &str| {
        let is = |of: &&Value| of["file"].as_str().unwrap().ends_with(name);
        let found = troubles.iter().find(is).unwrap_or_else(|| panic!("{name}: {all:#}"));
        assert!(found["trouble"].as_str().unwrap().contains(why), "{name}: {found}");
    };
    names("/7.state", "does not begin like a state page");
    names("/7.1.state", "skipped: it has");
    (50..=53).for_each(|n| names(&format!("/{n}.state"), "no regular file"));
    let (table, _) = host.run(&["stat", "--all"]);
    assert!(table.contains("more such file") && !table.contains('\x1b'), "{table}");
}

/// The names below a user's directory lead nowhere else: neither does root remove another's files, nor speak to
/// another's socket.
#[test]
fn the_socket_of_somebody_else_is_not_asked() {
    let Some(host) = Host::new("socket of another user") else { return };
    let server = host.server();
    let path = |end: &str| host.pages.join(format!("{}.{end}", server.id()));
    let others = host.open.join("of-root");
    let listener = UnixListener::bind(&others).unwrap();
    listener.set_nonblocking(true).unwrap();
    fs::remove_file(path("sock")).unwrap();
    symlink(&others, path("sock")).unwrap();
    let (_, error) = host.run(&["capture", &server.id().to_string(), "--output", "/dev/null"]);
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(error.contains(&format!("it is of user 0, and the page of user {NOBODY}")), "{error}");
    use std::io::Read;
    let (mut asked, _) = listener.accept().unwrap();
    assert_eq!(asked.read(&mut [0; 16]).unwrap(), 0, "nothing is sent");
}

/// The page of another user says that it is of root's process.
#[test]
fn a_page_that_names_a_process_of_another_user_is_foreign() {
    let Some(host) = Host::new("page of a process of another user") else { return };
    let server = host.server();
    let mut page = fs::read(host.pages.join(format!("{}.state", server.id()))).unwrap();
    let own = std::process::id();
    let stat = fs::read_to_string(format!("/proc/{own}/stat")).unwrap();
    let start: u64 =
        stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    // state_page::layout: process id, user id, start time.
    page[40..44].copy_from_slice(&own.to_ne_bytes());
    page[48..56].copy_from_slice(&start.to_ne_bytes());
    let len = page.len() as u64;
    let _held = host.page(&format!("{own}.state"), &page, len);
    let (_, error) = host.run(&["stat", &own.to_string()]);
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(error.contains("names another's process"), "{error}");
}

/// It sends an octet now and then, and no end of line.
#[test]
fn a_response_that_trickles_ends_the_wait() {
    let runtime = Runtime::new();
    let (server, _client, _) = runtime.pair();
    let socket = runtime.0.join("warpline").join(format!("{}.sock", server.id()));
    fs::remove_file(&socket).unwrap();
    let short = PathBuf::from("/proc/self/fd");
    let directory = File::open(socket.parent().unwrap()).unwrap();
    let short = short.join(std::os::fd::AsRawFd::as_raw_fd(&directory).to_string());
    let listener = UnixListener::bind(short.join(socket.file_name().unwrap())).unwrap();
    let trickles = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        while client.write_all(b" ").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    let (status, _, error) =
        runtime.run(&["capture", &server.id().to_string(), "--output", "/dev/null"]);
    assert!(status == Some(1) && error.contains("does not respond"), "{error}");
    trickles.join().unwrap();
}

/// As after su(1): root's XDG_RUNTIME_DIR is that of another user, whose processes run.
#[test]
fn the_doctor_does_not_advise_to_remove_what_another_user_owns() {
    let Some(host) = Host::new("doctor in another user's runtime directory") else { return };
    let server = host.server();
    let user = host.open.join("user");
    fs::create_dir(&user).unwrap();
    fs::rename(&host.pages, user.join("warpline")).unwrap();
    chown(&user, Some(NOBODY), None).unwrap();
    let mut doctor = host.command(0, &["doctor", "--json"]);
    let output = doctor.env("XDG_RUNTIME_DIR", &user).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = all["findings"].as_array().unwrap().iter();
    let found: Vec<_> = found.filter(|of| of["state"] != "ok").collect();
    let pages = found.iter().find(|of| of["check"] == "state pages").unwrap();
    assert!(pages["remedy"].as_str().unwrap().contains("XDG_RUNTIME_DIR"), "{found:#?}");
    for one in found {
        let remedy = one["remedy"].as_str().unwrap();
        assert!(!remedy.starts_with("rm") && !remedy.contains("remove"), "{one:#}");
    }
    // A link in a directory of ours, and what it leads to is theirs.
    let own = host.open.join("own");
    fs::create_dir(&own).unwrap();
    symlink(user.join("warpline"), own.join("warpline")).unwrap();
    rustix::fs::chownat(
        CWD,
        own.join("warpline"),
        Some(rustix::fs::Uid::from_raw(NOBODY)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    let mut doctor = host.command(0, &["doctor"]);
    let output = doctor.env("XDG_RUNTIME_DIR", &own).output().unwrap();
    let out = text(&output.stdout);
    assert!(out.contains("fail  state pages") && !out.contains("try rm"), "{out}");
    drop(server);
}
