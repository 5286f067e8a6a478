//! Measures how long `warpline stat` takes for many processes with many connections, and what `warpline top` does.
//!
//! `observers [COMMAND]` starts [`PROCESSES`] children, each with a state page of [`CONNECTIONS`] records, in a
//! directory of its own, runs the command (by default the `warpline` beside this program) [`RUNS`] times in each form,
//! and prints the medians; then `top` on a terminal of script(1), once a second for [`WATCHED`] seconds, and prints
//! its share of a processor. The children end with this process: each waits for the end of its standard input.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use kal_shim::state_file::StateFile;
use vp_api::state_page::layout::{change, flag, state};
use warpline_benches::Result;

const PROCESSES: usize = 200;
const CONNECTIONS: u32 = 50;
const RUNS: usize = 11;
/// Seconds for which `top` runs.
const WATCHED: u32 = 10;
/// Environment variable of a child: the directory.
const DIRECTORY: &str = "WARPLINE_OBSERVED";

fn main() -> Result<()> {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return publish(Path::new(&directory));
    }
    let command = std::env::args_os().nth(1).map_or_else(beside, |path| Ok(PathBuf::from(path)))?;
    let runtime = std::env::temp_dir().join(format!("observers-{}", std::process::id()));
    std::fs::create_dir(&runtime)?;
    let result = observe(&command, &runtime);
    std::fs::remove_dir_all(&runtime)?;
    result
}

fn beside() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("warpline"))
}

fn observe(command: &Path, runtime: &Path) -> Result<()> {
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(start(runtime)?);
    }
    println!("{PROCESSES} processes, {} connections", PROCESSES as u32 * CONNECTIONS);
    for arguments in [&["stat", "--json"][..], &["stat", "--openmetrics"]] {
        let mut times = Vec::new();
        let mut lines = 0;
        for _ in 0..RUNS {
            let mut stat = Command::new(command);
            let begin = Instant::now();
            let output = stat.args(arguments).env("XDG_RUNTIME_DIR", runtime).output()?;
            times.push(begin.elapsed());
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
            let is_sample = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
            lines = output.stdout.split(|octet| *octet == b'\n').filter(is_sample).count();
        }
        times.sort();
        let ms = times[RUNS / 2].as_secs_f64() * 1e3;
        println!("{:<20} {ms:>6.0} ms  {lines:>6} lines", arguments.join(" "));
    }
    watch(command, runtime)?;
    for (mut child, _) in children {
        drop(child.stdin.take());
        child.wait()?;
    }
    Ok(())
}

fn watch(command: &Path, runtime: &Path) -> Result<()> {
    let top = format!(
        "stty rows 50 columns 160; timeout {WATCHED} {} top --interval 1",
        command.display()
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &top, "/dev/null"]);
    script.env("XDG_RUNTIME_DIR", runtime).env("TERM", "xterm");
    let before = time_of_children()?;
    let status = script.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    // timeout(1): it ran until the end
    if status.code() != Some(124) {
        return Err(format!("top: {status}").into());
    }
    let share = (time_of_children()? - before) / f64::from(WATCHED);
    println!("{:<20} {:>6.1} % of a processor", "top --interval 1", share * 100.0);
    Ok(())
}

/// Seconds of processor time of the children that were waited for (proc(5): `cutime`, `cstime`).
fn time_of_children() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> =
        fields.skip(13).take(2).map(str::parse).collect::<std::result::Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A child, when its page is complete.
fn start(runtime: &Path) -> Result<(Child, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(DIRECTORY, runtime.join("warpline"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    if line.trim() != "published" {
        return Err(format!("a child did not publish: {line}").into());
    }
    Ok((child, line))
}

fn publish(directory: &Path) -> Result<()> {
    let file = StateFile::create(directory, env!("CARGO_PKG_VERSION"))?;
    let (index, device) = file.device().ok_or("no record for an adapter")?;
    change(&device.generation, || {
        device.used.store(1, Relaxed);
        device.name.set("softrdma0");
    });
    let mut slots = Vec::new();
    for number in 1..=CONNECTIONS {
        let slot = file.slot().ok_or("no record for a queue pair")?;
        change(&slot.generation, || {
            slot.used.store(1, Relaxed);
            slot.qp.store(number, Relaxed);
            slot.device.store(index, Relaxed);
            slot.flags.store(flag::WRITTEN, Relaxed);
            slot.state.store(state::RTS, Relaxed);
            slot.remote.set(Some(([192, 0, 2, number as u8], 7174).into()));
            slot.octets_sent.store(1 << 40, Relaxed);
        });
        slots.push(slot);
    }
    println!("published");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop((slots, device));
    Ok(())
}
