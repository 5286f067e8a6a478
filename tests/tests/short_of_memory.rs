//! Tests of C programs that run out of memory: every allocation of a program that connects, transfers and
//! closes is refused in turn, alone and with all later ones, and its address space is limited to decreasing
//! sizes. The same for a program with the static library, and for one with so many objects and connections that
//! tables outgrow the reserve. Peers that connect while there is no memory do not end the process.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use warpline_tests::c::{Kit, Language, root, run};
use warpline_tests::raw::mpa_request;
use warpline_tests::skip;

const BINDING: &[&str] = &["ITAPI_ENABLE_V21_BINDINGS"];

/// Larger allocations are of tables: neither from the library's reserve (`itapi/c/src/reserve.rs`), nor
/// allocated before a connection is accepted (`ual/cm/src/table/listeners.rs`).
const LARGEST_BLOCK: u32 = 33 << 10;

const SOFT: &str = "vp_softrdma";
const ROCE: &str = "vp_roce";

/// Peers that connect without memory: enough to exhaust the reserve.
const PEERS: u32 = 300;

/// How runs ended, by exit status, with the last that ended so and what it printed.
type Ends = BTreeMap<Option<i32>, (u32, String)>;

struct Rig {
    kit: Kit,
    allocator: PathBuf,
    shared: Program,
    archive: Program,
    /// Many objects; only allocations beyond the library's reserve count.
    crowded: Program,
    roce: Program,
    crowded_roce: Program,
}

struct Program {
    path: PathBuf,
    provider: &'static str,
    /// Allocations up to so many octets are neither counted nor refused.
    over: u32,
    /// Allocations of a run in which none is refused.
    allocations: u32,
}

fn rig(test: &str) -> Option<&'static Rig> {
    static RIG: OnceLock<Result<Rig, warpline_tests::Reason>> = OnceLock::new();
    let rig = RIG.get_or_init(|| {
        let kit = Kit::install("c-memory")?;
        let allocator = kit.home().join("failing_malloc.so");
        let mut build = Command::new("gcc");
        build.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        run(build.arg(&allocator).arg(root().join("tests/c/failing_malloc.c")));
        let shared = kit.program("short_of_memory", &["short_of_memory.c"], Language::C99, BINDING);
        let archive = kit.static_program("short_of_memory_static", &["short_of_memory.c"], BINDING);
        let crowded = kit.program("crowded", &["crowded.c"], Language::C99, BINDING);
        let on = |provider, path: &PathBuf, over| {
            let path = path.clone();
            Program { path, provider, over, allocations: 0 }
        };
        let mut rig = Rig {
            kit,
            allocator,
            shared: on(SOFT, &shared, 0),
            archive: on(SOFT, &archive, 0),
            crowded: on(SOFT, &crowded, LARGEST_BLOCK),
            roce: on(ROCE, &shared, 0),
            crowded_roce: on(ROCE, &crowded, LARGEST_BLOCK),
        };
        // Once, before several tests run the program concurrently.
        rig.shared.allocations = rig.count_allocations(&rig.shared);
        rig.archive.allocations = rig.count_allocations(&rig.archive);
        rig.crowded.allocations = rig.count_allocations(&rig.crowded);
        rig.roce.allocations = rig.count_allocations(&rig.roce);
        rig.crowded_roce.allocations = rig.count_allocations(&rig.crowded_roce);
        Ok(rig)
    });
    rig.as_ref().map_err(|reason| skip(test, reason)).ok()
}

impl Rig {
    fn refusing(&self, program: &Program, at: u32, and_all_behind: bool) -> Command {
        let mut command = self.kit.command(&program.path);
        command.env("FAIL_AT", at.to_string()).env("FAIL_COUNT", self.count());
        command.env("FAIL_OVER", program.over.to_string()).env("PROVIDER", program.provider);
        if program.provider == ROCE {
            // Each asks all processes that share the port. A listener has 256 requests without a reply.
            command.env("LISTENERS", "8");
        }
        // Only in the program, not in `timeout`.
        let preload = format!("LD_PRELOAD={}", self.allocator.display());
        let mut inner = Command::new("timeout");
        inner.args(["100", "env"]).arg(preload).arg(&program.path);
        inner.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if and_all_behind {
            // No call waits long for memory.
            inner.env("FAIL_ON", "1").arg("2");
        }
        inner
    }

    fn count(&self) -> PathBuf {
        self.kit.home().join("allocations")
    }

    fn count_allocations(&self, program: &Program) -> u32 {
        run(&mut self.refusing(program, 0, false));
        let count = std::fs::read_to_string(self.count()).expect("the allocator writes it");
        count.trim().parse().expect("a number")
    }
}

/// Runs these commands, some at a time: most of them wait for something.
fn run_each(commands: impl Iterator<Item = (Command, String)> + Send) -> Ends {
    const AT_A_TIME: usize = 4;
    let (commands, ends) = (Mutex::new(commands), Mutex::new(Ends::new()));
    let next = || commands.lock().expect("no run panicked").next();
    let run = || {
        while let Some((mut command, what)) = next() {
            let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
            let shown = String::from_utf8_lossy(&output.stderr).into_owned();
            let mut ends = ends.lock().expect("no run panicked");
            let end = ends.entry(output.status.code().filter(|code| *code != 124)).or_default();
            *end = (end.0 + 1, format!("{what}: {}\n{shown}", output.status));
        }
    };
    std::thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(run))));
    ends.into_inner().expect("no run panicked")
}

/// Asserts that each run succeeded (0), or printed the error that a call returned (3).
fn check(what: &str, ends: &Ends, others: &[i32]) {
    println!("{what}: {:?}", ends.iter().map(|(end, (runs, _))| (end, runs)).collect::<Vec<_>>());
    for (end, (runs, last)) in ends {
        let fine = end.is_some_and(|code| [0, 3].contains(&code) || others.contains(&code));
        assert!(fine, "{what}: {runs} runs ended with {end:?}, the last: {last}");
    }
    // That a run succeeds in which nothing is refused, counting has shown.
    assert!(ends.contains_key(&Some(3)), "{what}: no call returned an error");
}

/// Refuses each allocation of a program in turn, or one in `step`.
fn refuse_each(rig: &Rig, what: &str, program: &Program, others: &[i32], step: usize) {
    let each = (1..=program.allocations).step_by(step);
    let ends = run_each(
        each.map(|at| (rig.refusing(program, at, false), format!("allocation {at} refused"))),
    );
    check(what, &ends, others);
}

/// The step, unless each allocation is asked for.
fn unless_all(step: usize) -> usize {
    if std::env::var_os("WARPLINE_ALLOCATIONS").is_some() { 1 } else { step }
}

/// Refuses all allocations from one on.
fn refuse_all(rig: &Rig, what: &str, program: &Program) {
    let each = (1..=program.allocations).step_by(7);
    let ends = run_each(
        each.map(|at| (rig.refusing(program, at, true), format!("from allocation {at} on"))),
    );
    // Posted requests wait for memory to send, so a wait times out (4).
    check(what, &ends, &[4]);
}

#[test]
fn a_refused_allocation_is_a_status_or_has_no_effect() {
    let Some(rig) = rig("refused allocations") else { return };
    let allocations = rig.shared.allocations;
    assert!(allocations > 300, "{allocations}: what is refused is not what the library asks for");
    refuse_each(rig, "one refused", &rig.shared, &[], 1);
}

#[test]
fn a_refused_allocation_with_the_archive_is_a_status_or_has_no_effect() {
    let Some(rig) = rig("refused allocations, archive") else { return };
    // The same code as in the library, so that a part of them will do.
    refuse_each(rig, "one refused, archive", &rig.archive, &[], unless_all(7));
}

#[test]
fn memory_that_stays_exhausted_is_a_status() {
    let Some(rig) = rig("memory that is gone") else { return };
    refuse_all(rig, "all refused", &rig.shared);
}

#[test]
fn memory_that_stays_exhausted_is_a_status_with_the_archive() {
    let Some(rig) = rig("memory that is gone, archive") else { return };
    refuse_all(rig, "all refused, archive", &rig.archive);
}

#[test]
fn tables_that_cannot_grow_are_a_status() {
    let Some(rig) = rig("tables that cannot grow") else { return };
    // A peer whose request got no memory is rejected, and a thread that waits for that request times out (4).
    refuse_each(rig, "large ones refused", &rig.crowded, &[4], 1);
}

#[test]
fn a_refused_allocation_on_roce_is_a_status_or_has_no_effect() {
    let Some(rig) = rig("refused allocations, RoCE") else { return };
    // A packet for which there is no memory is lost; a wait for a connection that failed at the other end times out (4).
    refuse_each(rig, "one refused, RoCE", &rig.roce, &[4], unless_all(3));
}

#[test]
fn memory_that_stays_exhausted_on_roce_is_a_status() {
    let Some(rig) = rig("memory that is gone, RoCE") else { return };
    refuse_all(rig, "all refused, RoCE", &rig.roce);
}

#[test]
fn tables_that_cannot_grow_on_roce_are_a_status() {
    let Some(rig) = rig("tables that cannot grow, RoCE") else { return };
    refuse_each(rig, "large ones refused, RoCE", &rig.crowded_roce, &[4], 1);
}

/// Start-ups need memory, which peers control.
#[test]
fn peers_that_connect_without_memory_do_not_end_the_process() {
    let Some(rig) = rig("peers without memory") else { return };
    let mut command = rig.refusing(&rig.crowded, 0, false);
    command.env("FAIL_OVER", "0").arg("peers").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut port = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut port).expect("a line");
    let port: u16 = port.trim().parse().expect("the port");
    let peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let mut peer = TcpStream::connect(("127.0.0.1", port)).expect("the backlog has room");
            peer.write_all(&mpa_request(true, &[])).expect("its socket takes it");
            peer
        })
        .collect();
    drop(child.stdin.take());
    let end = child.wait().expect("it ends");
    drop(peers);
    assert_eq!(end.code(), Some(0), "{end}");
}

#[test]
fn an_address_space_that_is_too_small_is_a_status() {
    let Some(rig) = rig("a limit of addresses") else { return };
    // From hardly enough to load the program to enough for everything; threads have stacks of 8 MiB.
    let ends = run_each((12_000..140_000).step_by(1_500).map(|kib| {
        let mut bounded = Command::new("timeout");
        bounded.args(["60", "sh", "-c", "ulimit -v \"$1\" && exec \"$2\"", "sh", &kib.to_string()]);
        bounded.arg(&rig.shared.path).env("LD_LIBRARY_PATH", rig.kit.home().join("lib"));
        (bounded, format!("{kib} KiB of addresses"))
    }));
    // 127: not enough for the loader. 4: see above.
    check("addresses", &ends, &[4, 127]);
}
