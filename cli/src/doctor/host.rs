//! Checks of this machine and this user: limits, kernel settings, configuration, devices. Only reads, and pings
//! itself.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::Access;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use state_page::place;

use super::Finding;
use crate::second;
use crate::stat::pages::{directory, uid};

pub(super) fn findings() -> Vec<Finding> {
    let mut all = vec![configuration(), page_directory()];
    let devices = devices();
    all.extend(providers(&devices));
    all.extend([memlock(limit(Resource::Memlock)), open_files(limit(Resource::Nofile)), watches()]);
    all.extend([buffers("tcp_rmem"), buffers("tcp_wmem"), congestion(), clock(), tracing()]);
    all.extend(addresses(&devices).iter().map(|address| ping(address)));
    all
}

fn configuration() -> Finding {
    let check = "configuration";
    match ual::Config::load() {
        Err(error) => {
            Finding::fail(check, error.to_string(), "correct what is said, or remove the file")
        }
        Ok(config) if !config.observe.publish => Finding::warn(
            check,
            "it says `[observe] publish = false`: processes cannot be seen",
            "take that out where `warpline stat` is to see them",
        ),
        Ok(_) => Finding::ok(check, "it can be used"),
    }
}

/// Octets that the pages of one process with some hundred connections take.
const ROOM: u64 = 256 << 10;

fn page_directory() -> Finding {
    let (check, path) = ("state pages", directory());
    let shown = path.display();
    match place::open_directory(&path, uid()) {
        Ok(_) => writable(check, &path, format!("they are in {shown}")),
        Err(place::Unusable::Os(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            match path.parent() {
                Some(parent) if parent.is_dir() => {
                    writable(check, parent, format!("they will be in {shown}"))
                }
                _ => Finding::warn(
                    check,
                    format!("there is no directory for {shown}"),
                    format!("mkdir -p -m 700 {}", path.parent().unwrap_or(&path).display()),
                ),
            }
        }
        Err(why) => {
            let remedy = match &why {
                place::Unusable::Mode(_) => format!("chmod 700 {shown}"),
                // What another user owns is not ours to remove.
                place::Unusable::NoDirectory if is_own(&path) => format!("rm {shown}"),
                _ => another_directory(),
            };
            Finding::fail(check, format!("{shown} is not used: {why}"), remedy)
        }
    }
}

/// Whether this user owns the file, or the link.
pub(super) fn is_own(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.uid() == uid())
}

/// What to do where the directory is another user's: it may be in use, as after su(1), which keeps XDG_RUNTIME_DIR.
fn another_directory() -> String {
    let usual = format!("/run/user/{}", uid());
    match Path::new(&usual).is_dir() {
        true => format!("export XDG_RUNTIME_DIR={usual}"),
        false => "unset XDG_RUNTIME_DIR, or set it to a directory of your own".to_owned(),
    }
}

/// Whether files can be made in this directory; `says`: what is said then.
fn writable(check: &str, path: &Path, says: String) -> Finding {
    let shown = path.display();
    let room = rustix::fs::statvfs(path).map(|about| about.f_bavail.saturating_mul(about.f_frsize));
    match (rustix::fs::access(path, Access::WRITE_OK), room) {
        (Err(error), _) | (_, Err(error)) => Finding::fail(
            check,
            format!("no process can publish in {shown}: {}", std::io::Error::from(error)),
            "set XDG_RUNTIME_DIR to a directory in which you may write",
        ),
        (_, Ok(room)) if room < ROOM => Finding::fail(
            check,
            format!("processes may not find room to publish in {shown}: {room} octets are free"),
            format!("df {shown}; remove what is not needed there"),
        ),
        _ => Finding::ok(check, says),
    }
}

/// The output of `warpline devices --json`, which runs providers in other processes.
fn devices() -> Option<Value> {
    let mut command = second::program().ok()?;
    let output = command.args(["devices", "--json"]).stdin(Stdio::null()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn providers(devices: &Option<Value>) -> Vec<Finding> {
    let Some(listed) = devices else {
        return vec![Finding::fail("providers", "they cannot be listed", "warpline devices")];
    };
    items(&listed["providers"]).map(provider).collect()
}

fn provider(of: &Value) -> Finding {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let check = format!("provider {}", text(&of["name"]));
    if let Some(why) = of.get("unavailable") {
        return Finding::warn(
            &check,
            format!("not usable: {}", text(&why["reason"])),
            text(&why["remedy"]),
        );
    }
    if let Some(broken) = items(&of["devices"]).find_map(|device| device["error"].as_str()) {
        return Finding::fail(&check, broken, "warpline devices");
    }
    let names: Vec<_> = items(&of["devices"])
        .map(|device| {
            let named = [&device["name"], &device["model"]].map(text);
            named.join(" ").trim_end().to_owned()
        })
        .collect();
    Finding::ok(&check, names.join(", "))
}

fn limit(of: Resource) -> (Option<u64>, Option<u64>) {
    let limit = getrlimit(of);
    (limit.current, limit.maximum)
}

/// Octets that programs that pin memory need.
const PINNED: u64 = 64 << 20;
/// Descriptors of a process with some thousand connections.
const FILES: u64 = 4096;

fn memlock(limits: (Option<u64>, Option<u64>)) -> Finding {
    let check = "locked memory";
    match limits.0 {
        None => Finding::ok(check, "unlimited"),
        Some(octets) if octets < PINNED && uid() != 0 => Finding::warn(
            check,
            format!("{octets} octets may be pinned, which few programs that pin get along with"),
            // ulimit counts in KiB.
            raise(limits, PINNED, ("-l", 1024), ("memlock", "LimitMEMLOCK")),
        ),
        Some(octets) => Finding::ok(check, format!("{octets} octets may be pinned")),
    }
}

fn open_files(limits: (Option<u64>, Option<u64>)) -> Finding {
    let check = "open files";
    match limits.0 {
        Some(files) if files < FILES => Finding::warn(
            check,
            format!(
                "{files}: a process has at most about {} connections",
                files.saturating_sub(24)
            ),
            raise(limits, FILES, ("-n", 1), ("nofile", "LimitNOFILE")),
        ),
        soft => Finding::ok(check, soft.map_or("unlimited".into(), |files| files.to_string())),
    }
}

/// How to raise a limit to what is needed: within the hard limit, or else that one, too.
fn raise(
    (soft, hard): (Option<u64>, Option<u64>),
    needed: u64,
    (option, unit): (&str, u64),
    (item, setting): (&str, &str),
) -> String {
    match hard {
        None => format!("ulimit {option} unlimited"),
        Some(hard) if hard >= needed => format!("ulimit {option} {}", hard / unit),
        Some(hard) => {
            let first = match Some(hard) > soft {
                true => format!("ulimit {option} {}, and ", hard / unit),
                false => String::new(),
            };
            format!(
                "{first}raise the hard limit of {hard}: `{item}` in /etc/security/limits.conf, or {setting}= of \
                 the service"
            )
        }
    }
}

fn watches() -> Finding {
    let check = "watched sockets";
    let path = "/proc/sys/fs/epoll/max_user_watches";
    match number(path) {
        Some(watches) if watches < 100_000 => Finding::warn(
            check,
            format!("all processes of a user can watch {watches}, two for each connection"),
            "sysctl -w fs.epoll.max_user_watches=1000000",
        ),
        Some(watches) => Finding::ok(check, format!("{watches} for each user")),
        None => Finding::ok(check, "the kernel has no limit"),
    }
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

fn buffers(name: &str) -> Finding {
    let path = format!("/proc/sys/net/ipv4/{name}");
    let Some(sizes) = read(&path) else {
        return Finding::ok(name, "the kernel does not say (another network namespace may)");
    };
    let Some((first, most)) = sizes.trim().rsplit_once(char::is_whitespace) else {
        return Finding::ok(name, format!("the kernel says {sizes:?}"));
    };
    let first = first.split_whitespace().collect::<Vec<_>>().join(" ");
    match most.parse::<u64>() {
        Ok(most) if most < 4 << 20 => Finding::warn(
            name,
            format!(
                "a socket has at most {most} octets: too few for a fast network with a long delay"
            ),
            format!("sysctl -w net.ipv4.{name}=\"{first} 6291456\""),
        ),
        _ => Finding::ok(name, format!("a socket has up to {most} octets")),
    }
}

fn congestion() -> Finding {
    let used = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let there = read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let says = format!("{}; there are {there}", used.unwrap_or_else(|| "unknown".into()));
    Finding::ok("congestion control", says)
}

fn clock() -> Finding {
    let check = "clock source";
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let others = read(&format!("{folder}/available_clocksource")).unwrap_or_default();
    match read(&format!("{folder}/current_clocksource")).as_deref() {
        Some(slow) if SLOW_CLOCKS.contains(&slow) => {
            let fast = others.split_whitespace().find(|other| !SLOW_CLOCKS.contains(other));
            let remedy = match fast {
                Some(fast) => format!("echo {fast} > {folder}/current_clocksource"),
                None => {
                    "the kernel offers no other: see why in its log, `dmesg | grep -i tsc`".into()
                }
            };
            Finding::warn(check, format!("{slow}: each reading is a system call"), remedy)
        }
        Some(fast) => Finding::ok(check, fast),
        None => Finding::ok(check, "the kernel does not say"),
    }
}

/// Clock sources that a program reads by a system call.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

fn tracing() -> Finding {
    let scope = number("/proc/sys/kernel/yama/ptrace_scope");
    let status = read("/proc/self/status").unwrap_or_default();
    let filtered = status.lines().any(|line| line.starts_with("Seccomp:") && !line.ends_with('0'));
    let scope = scope.map_or("no yama".into(), |scope| format!("ptrace_scope {scope}"));
    let filter = if filtered { "system calls are filtered (seccomp)" } else { "no seccomp filter" };
    // State pages and question sockets need neither.
    Finding::ok("tracing", format!("{scope}, {filter}"))
}

/// Addresses to ping: the first ones of each port that need no scope.
fn addresses(devices: &Option<Value>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for port in devices.iter().flat_map(|all| {
        items(&all["providers"])
            .filter(|of| of["name"] == "vp_softrdma")
            .flat_map(|of| items(&of["devices"]))
            .flat_map(|device| items(&device["ports"]))
    }) {
        let of_port = items(&port["addresses"]).filter_map(Value::as_str);
        let usable =
            of_port.filter(|address| !address.starts_with("fe80") && !address.contains('%'));
        all.extend(
            usable.take(2).map(|address| address.split('/').next().unwrap_or(address).to_owned()),
        );
    }
    all.sort();
    all.dedup();
    all.truncate(8);
    all
}

/// Pings itself through an address, by two processes.
fn ping(address: &str) -> Finding {
    let check = format!("ping {address}");
    let remedy = format!("ip address show to {address}; a firewall may be in between");
    match try_ping(address) {
        Ok(rtt) => Finding::ok(&check, rtt),
        Err(why) => Finding::fail(&check, why, remedy),
    }
}

fn try_ping(address: &str) -> Result<String, String> {
    use std::io::{BufRead, BufReader};
    let warpline = || -> Result<Command, String> {
        let mut command = second::program().map_err(|error| error.brief())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    };
    let bracketed = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let at = format!("{bracketed}:0");
    let mut server = warpline()?
        .args(["ping", "--once", &format!("--serve={at}")])
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut line = String::new();
    if let Some(printed) = server.stdout.take() {
        let _ = BufReader::new(printed).read_line(&mut line);
    }
    let port = line.trim().rsplit(':').next().and_then(|port| port.split_whitespace().next());
    let result = match port.and_then(|port| port.parse::<u16>().ok()) {
        None => Err("the server does not start".to_owned()),
        Some(port) => {
            let to = format!("{bracketed}:{port}");
            let client = warpline()?.args(["ping", &to, "-q", "-c", "20", "-i", "0"]).output();
            client.map_err(|error| error.to_string()).and_then(|client| {
                let printed = String::from_utf8_lossy(&client.stdout).into_owned();
                let rtt = printed.lines().find(|line| line.starts_with("rtt")).map(str::to_owned);
                rtt.ok_or_else(|| String::from_utf8_lossy(&client.stderr).trim().replace('\n', ";"))
            })
        }
    };
    // It ends with its one client; kill it if the client failed.
    let _ = server.kill();
    let _ = server.wait();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_differs_from_what_is() {
        let files = |soft, hard| open_files((Some(soft), hard)).remedy;
        assert_eq!(files(1024, Some(1 << 20)).unwrap(), "ulimit -n 1048576");
        assert_eq!(files(1024, None).unwrap(), "ulimit -n unlimited");
        assert_eq!(files(1 << 20, Some(1 << 20)), None);
        let stuck = files(512, Some(512)).unwrap();
        assert!(stuck.starts_with("raise the hard limit of 512: `nofile`"), "{stuck}");
        let partly = files(512, Some(1024)).unwrap();
        assert!(partly.starts_with("ulimit -n 1024, and raise the hard limit of 1024"), "{partly}");
        let pinned = |soft, hard| raise((Some(soft), hard), PINNED, ("-l", 1024), ("a", "b"));
        assert_eq!(pinned(1, Some(64 << 20)), "ulimit -l 65536");
        assert!(pinned(8 << 20, Some(8 << 20)).starts_with("raise the hard limit of 8388608"));
    }
}
