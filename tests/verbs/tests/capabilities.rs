//! Test of what the devices announce, by a program in C with the inline functions of rdma-core's headers, on both devices.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use verbs_programs::process::Process;
use verbs_programs::survivor::BOUND;
use verbs_programs::{Libraries, libraries, run, skip};

#[test]
fn what_is_not_announced_is_refused_as_unsupported() {
    const TEST: &str = "capabilities of the verbs devices";
    if libraries::find("cc").is_none() {
        return skip(TEST, "package gcc is not installed");
    }
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skip(TEST, "package libibverbs-dev is not installed");
    }
    let libraries = Libraries::build();
    let program = run::compile("cc", "capabilities.c", &["-libverbs".into()]).unwrap();
    for on_roce in [false, true] {
        let mut command = libraries.command(&program);
        if on_roce {
            run::on_roce(&mut command);
        }
        let mut process = Process::start(command).unwrap();
        let ended = process.wait(BOUND);
        let printed = process.printed();
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {printed}");
    }
}
