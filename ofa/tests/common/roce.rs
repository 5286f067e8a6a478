//! Running a test again in a process of its own, whose device is of RoCE.

use std::process::Command;

const ROCE: &str = "WARPLINE_VERBS_ROCE";

/// Runs a test here, and on RoCE.
pub(crate) fn on_both(test: &str, body: impl Fn()) {
    if std::env::var_os(ROCE).is_none() {
        body();
    }
    on_roce(test, body);
}

/// `test`: the path of the calling test.
pub(crate) fn on_roce(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ROCE).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ROCE, "1").output().unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
