//! Tests of unmodified verbs programs on RoCE where the kernel does not cut what is sent into datagrams: each packet is
//! sent by itself, and the contents are equal.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use verbs_programs::process::{Process, free_port};
use verbs_programs::survivor::BOUND;
use verbs_programs::{Libraries, libraries, run, skip};

const SERVER: &str = "rping -s -a {address} -p {port} -C 20 -S 60000 -V";
const CLIENT: &str = "rping -c -a {address} -p {port} -C 20 -S 60000 -V";

#[test]
fn packets_are_sent_one_by_one_where_the_kernel_does_not_cut() {
    for (name, package) in [("rping", "rdmacm-utils"), ("cc", "gcc")] {
        if libraries::find(name).is_none() {
            return skip(
                "RoCE without segmentation by the kernel",
                warpline_skip::missing(package),
            );
        }
    }
    let libraries = Libraries::build();
    let preloaded =
        run::compile("cc", "no_segments.c", &["-shared".into(), "-fPIC".into()]).unwrap();
    for address in ["127.0.0.1", "::1"] {
        let port = free_port();
        let mut both = [SERVER, CLIENT].map(|line| {
            let line = line.replace("{address}", address);
            let mut command = run::command(&libraries, &line, port, None);
            run::on_roce(&mut command);
            command.env("LD_PRELOAD", &preloaded);
            Process::start(command).unwrap()
        });
        for process in &mut both {
            let ended = process.wait(BOUND);
            let printed = process.printed();
            assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {printed}");
            assert!(printed.contains("UDP_SEGMENT refused"), "{printed}");
        }
    }
}
