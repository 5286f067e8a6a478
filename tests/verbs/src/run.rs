//! Runs an unmodified verbs program, or both of its sides, by `warpline run`; returns the result.

use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use warpline_skip::Reason;

use crate::process::{Process, free_port, is_listening};
use crate::programs::Program;
use crate::{Libraries, libraries, wheels};

/// Time-out of a program, longer than any run on a busy machine.
const BOUND: Duration = Duration::from_secs(600);

/// Stands for the host's own address in a line.
const OWN: &str = "{own}";

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It succeeded.
    Works,
    /// It failed, with its output.
    Fails(String),
    /// It could not be tried.
    Missing(Reason),
}

/// Runs it once.
pub fn once(libraries: &Libraries, program: &Program) -> Seen {
    let names = lines(program).map(|line| line.split(' ').next().unwrap_or_default());
    let names = names.filter(|name| !name.starts_with('{'));
    let compiler = program.source.iter().map(|(compiler, _)| compiler.as_str());
    let no_header = program.header.iter().any(|header| !Path::new(header).exists());
    if no_header || names.chain(compiler).any(|name| libraries::find(name).is_none()) {
        return Seen::Missing(warpline_skip::missing(&program.package));
    }
    if lines(program).any(|line| line.contains(OWN)) && own_address().is_none() {
        return Seen::Missing("no route from an address other than loopback".into());
    }
    let wheel = match program.wheel.as_deref().map(wheels::install).transpose() {
        Ok(wheel) => wheel,
        Err(why) => return Seen::Missing(why),
    };
    let compile = |(compiler, source): &(String, String)| compile(compiler, source, &program.links);
    let compiled = program.source.as_ref().map(compile);
    let run =
        compiled.transpose().and_then(|made| sides(libraries, program, made.or(wheel).as_deref()));
    match run {
        Ok(()) => Seen::Works,
        Err(why) => Seen::Fails(why),
    }
}

fn lines(program: &Program) -> impl Iterator<Item = &String> {
    program.server.iter().chain([&program.client])
}

/// The address of this host from which packets leave it; it is not loopback.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Only chooses the source: a UDP socket sends nothing by this. 192.0.2.1 is nobody's (RFC 5737).
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

/// Compiles a program of `tests/verbs/c`; it is beside the running one.
///
/// # Errors
/// What the compiler says.
pub fn compile(compiler: &str, source: &str, links: &[String]) -> Result<PathBuf, String> {
    let source = libraries::root().join("tests/verbs/c").join(source);
    let stem = source.file_stem().unwrap().display();
    let name = format!("verbs-program-{compiler}-{stem}");
    let program = std::env::current_exe().unwrap().with_file_name(&name);
    // Another test may compile it, or run it, at the same time.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = program.with_file_name(format!("{name}-{}-{count}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&fresh).arg(source);
    let output =
        command.arg("-ldl").args(links).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(&fresh, &program).map_err(|e| format!("{}: {e}", program.display()))?;
    Ok(program)
}

fn sides(libraries: &Libraries, program: &Program, made: Option<&Path>) -> Result<(), String> {
    let port = free_port();
    let start = |line: &String, needs: &Option<String>| {
        let mut command = libraries.run(needs.as_deref());
        let (name, arguments) = words(line, port, made);
        command.arg(name).args(arguments);
        if program.is_unseen {
            patient(&mut command);
        }
        Process::start(command)
    };
    let Some(server) = &program.server else {
        let mut client = start(&program.client, &program.needs)?;
        return end("it", &mut client, program.shows.as_deref());
    };
    let mut server = start(server, &program.server_needs)?;
    warpline_patience::until("a server to listen", || {
        let is_ready = match &program.ready {
            Some(text) => server.printed().contains(text),
            None => program.is_unseen || is_listening(port),
        };
        is_ready || server.ended().is_some()
    });
    if !program.is_endless && server.ended().is_some_and(|status| !status.success()) {
        return Err(format!("the server ended before it listened:\n{}", server.printed()));
    }
    let mut client = start(&program.client, &program.needs)?;
    let both =
        |what: String, server: &Process| format!("{what}\nThe server:\n{}", server.printed());
    end("the client", &mut client, program.shows.as_deref()).map_err(|what| both(what, &server))?;
    match (program.is_endless, server.ended()) {
        (true, None) => Ok(()),
        (true, Some(status)) => Err(both(format!("the server ended with {status}"), &server)),
        (false, _) => end("the server", &mut server, None).map_err(|what| both(what, &client)),
    }
}

/// Has a program run on RoCE alone.
pub fn on_roce(command: &mut Command) {
    patient(command);
    command.env("WARPLINE_VERBS_ROCE", "1");
}

/// Has a client of rdma_cm try until its server listens, which on RoCE cannot be seen from outside.
fn patient(command: &mut Command) {
    command.env("WARPLINE_CONFIG", libraries::root().join("tests/verbs/roce.toml"));
}

/// Whether a client says that nobody listens yet: the events `RDMA_CM_EVENT_REJECTED` for invalid service id (8) and, if no
/// process has RoCE's port, `RDMA_CM_EVENT_UNREACHABLE`, by name or, in perftest, by number.
pub fn is_early(printed: &str) -> bool {
    let texts = ["REJECTED, error 8", "CM event bl blka 8", "UNREACHABLE", "CM event bl blka 7"];
    texts.iter().any(|text| printed.contains(text))
}

/// Whether the sides of a program exchange their addresses by TCP, not by rdma_cm, which on RoCE opens no TCP port.
pub fn is_by_tcp(line: &str) -> bool {
    line.starts_with("ib") && !line.contains(" -R ")
}

/// The command of a line, with the port and the compiled program inserted.
pub fn command(libraries: &Libraries, line: &str, port: u16, made: Option<&Path>) -> Command {
    let (name, arguments) = words(line, port, made);
    let mut command = libraries.command(name);
    command.args(arguments);
    command
}

/// The program of a line, and its arguments. `made`: the compiled program, or the environment of wheels.
fn words(line: &str, port: u16, made: Option<&Path>) -> (String, Vec<String>) {
    let made = made.map_or_else(String::new, |path| path.display().to_string());
    let root = libraries::root().display().to_string();
    let mut line = line.replace("{port}", &port.to_string());
    if let Some(own) = line.contains(OWN).then(own_address).flatten() {
        line = line.replace(OWN, &own.to_string());
    }
    let insert = |word: &str| {
        word.replace("{program}", &made).replace("{wheel}", &made).replace("{root}", &root)
    };
    let mut words = line.split(' ').map(insert);
    let name = words.next().unwrap_or_default();
    // perftest ends with an error where it cannot determine the frequency of the processor, as beside load.
    let further = name.starts_with("ib_").then(|| "-F".to_owned());
    let arguments = words.chain(further).collect();
    (name, arguments)
}

fn end(who: &str, process: &mut Process, shows: Option<&str>) -> Result<(), String> {
    let status = process.wait(BOUND);
    let printed = process.printed();
    match status {
        None => Err(format!("{who} did not end within {BOUND:?}:\n{printed}")),
        Some(status) if !status.success() => Err(format!("{who} ended with {status}:\n{printed}")),
        Some(_) => {
            let missing = shows.filter(|part| !printed.contains(part));
            let is_said = |line: &&str| line.contains("warpline: ") || line.contains(" WARN ");
            match (missing, printed.lines().find(is_said)) {
                (Some(part), _) => Err(format!("{who} did not print `{part}`:\n{printed}")),
                (_, Some(said)) => Err(format!("{who} works, and is told `{said}`")),
                _ => Ok(()),
            }
        }
    }
}
