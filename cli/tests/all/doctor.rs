//! Tests of what programs are told that fail for want of something, and of `warpline doctor -- CMD`, which explains it.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use verbs_programs::{Libraries, libraries, process, run as compiling};
use warpline_patience::{HANG, until};
use warpline_skip::skip;

use crate::support::{run, text};

/// Runs `warpline COMMAND OPTIONS -- PROGRAM` with the built libraries.
fn warpline(command: &str, options: &[&str], program: &[&str]) -> Output {
    Libraries::build();
    run(&[&[command], options, &["--"], program].concat())
}

fn start(options: &[&str], program: &[&str]) -> Output {
    warpline("run", options, program)
}

/// Exit status and standard error of a program.
fn printed(options: &[&str], program: &[&str]) -> (Option<i32>, String) {
    let output = start(options, program);
    (output.status.code(), text(&output.stderr))
}

/// What the doctor says of it.
fn explained(options: &[&str], program: &[&str]) -> (Option<i32>, String) {
    let output = warpline("doctor", options, program);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// A program that asks a libibverbs of its own, in a file of this name.
fn foreign(copy: &str) -> Option<[String; 2]> {
    let own = libraries::stock_verbs();
    let (Some(own), true) = (own, libraries::find("cc").is_some()) else {
        skip("a second libibverbs", warpline_skip::missing("libibverbs1"));
        return None;
    };
    Libraries::build();
    let program = compiling::compile("cc", "foreign.c", &[]).unwrap();
    let copy = std::env::temp_dir().join(format!("{copy}-{}.so.1", std::process::id()));
    std::fs::copy(own, &copy).unwrap();
    Some([program, copy].map(|path| path.to_str().unwrap().to_owned()))
}

#[test]
fn a_second_libibverbs_is_named_once_when_it_is_asked_for_devices() {
    let Some([program, copy]) = foreign("libibverbs-said") else { return };
    let (status, error) = printed(&[], &[&program, &copy]);
    let (judged, found) = explained(&[], &[&program, &copy]);
    std::fs::remove_file(&copy).unwrap();
    assert!(
        status == Some(0)
            && error.contains(&format!("a libibverbs of its own for devices ({copy})")),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(found.contains(&format!("fail  second copy: {copy} is loaded")), "{found}");
    assert_eq!(judged, Some(1));
    // By its names it is Warpline's.
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        let output = start(&[], &[&program, name]);
        assert_eq!(text(&output.stdout), "2 devices\n", "{name}");
        assert!(output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
    }
}

/// Lines of Warpline's on standard error.
fn said(error: &str) -> Vec<&str> {
    error.lines().filter(|line| line.starts_with("warpline: ")).collect()
}

#[test]
fn what_a_device_does_not_have_is_said_once_with_the_remedy() {
    for (package, options, command, remedy) in [
        ("ibverbs-utils", &[][..], &["ibv_ud_pingpong", "-g", "0"][..], "choose roce0"),
        ("ucx-utils", &["--iwarp"], &["ucx_info", "-d"], "without --iwarp"),
    ] {
        if libraries::find(command[0]).is_none() {
            skip(&format!("what is said to {}", command[0]), warpline_skip::missing(package));
            continue;
        }
        let (_, error) = printed(options, command);
        assert!(matches!(said(&error)[..], [line] if line.contains(remedy)), "{error}");
    }
    // Those that only look are told nothing.
    for command in [&["ibv_devinfo", "-v"][..], &["ucx_info", "-d"], &["fi_info", "-p", "verbs"]] {
        if libraries::find(command[0]).is_some() {
            let (_, error) = printed(&[], command);
            assert!(said(&error).is_empty(), "{command:?}: {error}");
        }
    }
}

#[test]
fn a_program_that_opens_none_of_the_devices_is_told_their_names() {
    for (package, command) in [
        ("ibverbs-utils", &["ibv_devinfo", "-d", "mlx5_0"][..]),
        ("perftest", &["ib_write_bw", "-d", "mlx5_0"]),
    ] {
        if libraries::find(command[0]).is_none() {
            skip(&format!("what is said to {}", command[0]), warpline_skip::missing(package));
            continue;
        }
        let (status, error) = printed(&[], command);
        assert_ne!(status, Some(0));
        assert!(
            matches!(said(&error)[..], [line] if line.contains("softrdma0 and roce0")),
            "{error}"
        );
    }
    for command in [&["ibv_devices"][..], &["ibv_devinfo", "-l"]] {
        if libraries::find(command[0]).is_some() {
            let (status, error) = printed(&[], command);
            assert!(status == Some(0) && said(&error).is_empty(), "{command:?}: {error}");
        }
    }
}

/// Its exit status tells nobody: it may have transferred by its own TCP.
#[test]
fn a_program_that_lists_the_devices_and_goes_on_without_them_is_told_their_names() {
    Libraries::build();
    let program = match compiling::compile("cc", "lister.c", &["-libverbs".to_owned()]) {
        Ok(program) => program,
        Err(why) if why.contains("verbs.h") || why.contains("cc") => {
            return skip("a program that goes on", warpline_skip::missing("libibverbs-dev"));
        }
        Err(why) => panic!("{why}"),
    };
    let (status, error) = printed(&[], &[program.to_str().unwrap(), "2100"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(matches!(said(&error)[..], [line] if line.contains("softrdma0 and roce0")), "{error}");
}

#[test]
fn a_program_that_uses_mlx5dv_is_told_that_there_is_none() {
    Libraries::build();
    let links = ["-lmlx5".to_owned(), "-libverbs".to_owned()];
    let program = match compiling::compile("cc", "mlx5.c", &links) {
        Ok(program) => program,
        Err(why) if why.contains("mlx5dv.h") || why.contains("cc") => {
            return skip("mlx5dv", warpline_skip::missing("libibverbs-dev"));
        }
        Err(why) => panic!("{why}"),
    };
    for what in ["open", "ask"] {
        let (status, error) = printed(&[], &[program.to_str().unwrap(), what]);
        assert_eq!(status, Some(1), "{what}: {error}");
        assert!(matches!(said(&error)[..], [line] if line.contains("mlx5dv")), "{what}: {error}");
    }
}

#[test]
fn a_path_without_a_gid_is_said_to_need_one() {
    if libraries::find("ibv_rc_pingpong").is_none() {
        return skip("a path without a GID", warpline_skip::missing("ibverbs-utils"));
    }
    let libraries = Libraries::build();
    let port = process::free_port();
    let side = |more: &[&str]| {
        let mut command = libraries.run(None);
        command.args(["ibv_rc_pingpong", "-d", "roce0", "-p", &port.to_string()]).args(more);
        process::Process::start(command).unwrap()
    };
    let mut server = side(&[]);
    until("a server to listen", || process::is_listening(port) || server.ended().is_some());
    let mut client = side(&["127.0.0.1"]);
    for side in [&mut server, &mut client] {
        assert!(side.wait(HANG).is_some_and(|status| !status.success()));
    }
    let printed = server.printed() + &client.printed();
    assert!(matches!(said(&printed)[..], [line] if line.contains("name a GID index")), "{printed}");
}

#[test]
fn the_doctor_explains_what_a_program_used() {
    for (package, program, expected) in [
        ("ibverbs-utils", &["ibv_devinfo", "-l"][..], "listed roce0, softrdma0, and opened none"),
        (
            "ibverbs-utils",
            &["ibv_ud_pingpong", "-g", "0"],
            "ibv_create_qp: Operation not supported",
        ),
        ("ucx-utils", &["ucx_info", "-d"], "opened roce0, softrdma0; queue pairs on roce0"),
        ("librdmacm-utils", &["rping", "-s", "-a", "192.0.2.1"], "rdma_bind_addr: Cannot assign"),
    ] {
        if libraries::find(program[0]).is_none() {
            skip(&format!("the doctor with {}", program[0]), warpline_skip::missing(package));
            continue;
        }
        let (_, found) = explained(&[], program);
        assert!(found.contains(expected), "{program:?}: {found}");
        assert!(found.contains(&format!("/{} (1)", program[0])), "{found}");
    }
}

#[test]
fn the_doctor_names_programs_that_load_no_libraries() {
    let (status, found) = explained(&[], &["no-such-program"]);
    assert!(status == Some(127) && found.contains("there is no program"), "{found}");
    let source = std::env::temp_dir().join(format!("warpline-static-{}.c", std::process::id()));
    std::fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let program = source.with_extension("");
    let built = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).output();
    std::fs::remove_file(source).unwrap();
    if !built.is_ok_and(|output| output.status.success()) {
        return skip("the doctor with a static program", "cc cannot build it");
    }
    let (status, found) = explained(&[], &[program.to_str().unwrap()]);
    std::fs::remove_file(program).unwrap();
    assert!(status == Some(1) && found.contains("exit status 3"), "{found}");
    assert!(found.contains("linked statically"), "{found}");
}

/// A program that would run for ever, and ignores that it is asked to end; so does one that left its group.
#[test]
fn the_doctor_ends_a_program_with_all_that_it_started() {
    let mark = format!("86{}", std::process::id());
    let script = format!("trap '' TERM; setsid -f sleep {mark}; sleep {mark} & wait; sleep {mark}");
    let begun = Instant::now();
    let (status, found) = explained(&["--seconds", "1"], &["sh", "-c", &script]);
    assert!(begun.elapsed() > Duration::from_secs(1));
    assert!(status == Some(0) && found.contains("was ended after 1 s"), "{found}");
    let is_left = |process: &std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        text(&line).starts_with(&format!("sleep\0{mark}"))
    };
    let left = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(is_left);
    assert_eq!(left.count(), 0);
}
