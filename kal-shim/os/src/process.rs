//! Other processes: which of them are stopped.

/// Whether a process is stopped by a signal or a debugger; false also where that is not known. proc(5), `/proc/pid/stat`.
pub fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    // The name of the program, in parentheses, may have any character.
    let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    stat.is_ok_and(|stat| matches!(state(stat), Some('T' | 't')))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

    use super::is_stopped;

    #[test]
    fn a_process_is_stopped_until_it_is_continued() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = Pid::from_child(&cat);
        let after = |signal: Signal, change: WaitIdOptions| {
            kill_process(id, signal).unwrap();
            waitid(WaitId::Pid(id), change).unwrap();
            is_stopped(id.as_raw_nonzero().get())
        };
        assert!(after(Signal::STOP, WaitIdOptions::STOPPED));
        assert!(!after(Signal::CONT, WaitIdOptions::CONTINUED));
        drop(cat.stdin.take());
        cat.wait().unwrap();
        assert!(!is_stopped(0));
    }
}
