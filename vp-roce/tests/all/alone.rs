//! Running a test again in a network namespace of its own, and other processes beside it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Set in the process that plays: the part that it plays.
const PART: &str = "VP_ROCE_TEST_PART";

/// The part of this process: `None`, of the test program itself.
pub(crate) fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Plays `body` in a process of its own whose only network is a loopback. `test`: the path of the calling test.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    match part() {
        Some(part) if part == "main" => return body(),
        Some(_) => return,
        None => {}
    }
    let script = "ip link set lo up && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net"]);
    if !command.args(["ip", "link", "set", "lo", "up"]).output().is_ok_and(|o| o.status.success()) {
        return warpline_skip::skip(test, warpline_skip::NO_NAMESPACES);
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = command.env(PART, "main").output().unwrap();
    let (out, err) = (output.stdout, output.stderr);
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    assert!(output.status.success(), "{out}\n{err}");
}

/// The arguments of `setpriv` for another user.
const STRANGE: [&str; 3] = ["--reuid", "65534", "--clear-groups"];

/// The same as [`alone`] by root, who can start a [`stranger`] there.
pub(crate) fn beside_strangers(test: &str, body: impl FnOnce()) {
    match part() {
        Some(part) if part == "main" => return body(),
        Some(_) => return,
        None => {}
    }
    let mut command = Command::new("unshare");
    let can = command.args(["--net", "setpriv"]).args(STRANGE).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        return warpline_skip::skip(test, warpline_skip::NOT_ROOT);
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = command.env(PART, "main").output().unwrap();
    let (out, err) = (output.stdout, output.stderr);
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    assert!(output.status.success(), "{out}\n{err}");
}

/// Starts this program again, as another user, to play `part` of `test`.
pub(crate) fn stranger(test: &str, part: &str) -> Other {
    let mut command = Command::new("setpriv");
    command.args(STRANGE).arg(std::env::current_exe().unwrap());
    start(command, test, part)
}

/// A process beside this one. It is killed when dropped.
pub(crate) struct Other {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

/// Starts this program again to play `part` of `test`.
pub(crate) fn other(test: &str, part: &str) -> Other {
    start(Command::new(std::env::current_exe().unwrap()), test, part)
}

/// The same as [`other`] by a command that ends with this program.
fn start(mut command: Command, test: &str, part: &str) -> Other {
    command.args(["--exact", test, "--nocapture"]).env(PART, part);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    Other { child, output }
}

impl Other {
    /// What it printed behind `word`, which it will.
    pub(crate) fn says(&mut self, word: &str) -> String {
        let line = self
            .output
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once(word).map(|(_, rest)| rest.trim().to_owned()));
        line.unwrap_or_else(|| panic!("the other process ended before it said {word}"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It ends by itself, with success.
    pub(crate) fn ends(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended, or is ended here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
