//! Tests of `warpline run` and `warpline verbs`: a program loads the verbs libraries and keeps its exit status;
//! obstacles are reported before it starts.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use verbs_programs::{Libraries, libraries, process, run};
use warpline_patience::{HANG, until};
use warpline_skip::skip;

use crate::support::{TempFile, run, text};

/// Runs `warpline run OPTIONS -- COMMAND` with the built libraries.
fn start(options: &[&str], command: &[&str]) -> Output {
    Libraries::build();
    run(&[&["run"], options, &["--"], command].concat())
}

/// Its output and exit status.
fn printed(options: &[&str], command: &[&str]) -> (Option<i32>, String) {
    let output = start(options, command);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    assert_eq!(printed(&[], &["sh", "-c", "exit 7"]), (Some(7), String::new()));
    assert_eq!(start(&[], &["sh", "-c", "kill -9 $$"]).status.signal(), Some(9));
    let nested = [env!("CARGO_BIN_EXE_warpline"), "run", "--", "sh", "-c", "exit 7"];
    assert_eq!(printed(&[], &nested), (Some(7), String::new()));
    let (status, error) = printed(&[], &["no-such-program"]);
    assert_eq!(status, Some(127));
    assert!(error.contains("no program no-such-program") && error.contains("PATH"), "{error}");
    let (status, error) = printed(&[], &["/"]);
    assert_eq!(status, Some(126), "{error}");
}

#[test]
fn the_program_finds_the_libraries_first() {
    Libraries::build();
    let show = &["sh", "-c", "echo $LD_LIBRARY_PATH:$LD_PRELOAD:"];
    let directory = text(&run(&["verbs", "--libdir"]).stdout);
    let directory = directory.trim_end();
    for (options, preloaded) in [(&[][..], true), (&["--no-preload"], false)] {
        let shown = text(&start(options, show).stdout);
        assert!(shown.starts_with(&format!("{directory}:")), "{shown}");
        assert_eq!(shown.contains("/libibverbs.so.1:"), preloaded, "{shown}");
    }
}

/// Also where the loader would take the name for two, or for a variable.
#[test]
fn the_program_finds_the_libraries_wherever_they_are() {
    let built = Libraries::build().directory();
    for name in ["a blank", "two:names", "semi;colon", "$ORIGIN"] {
        let home = built.with_file_name("anywhere").join(name);
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(home.join("verbs")).unwrap();
        // No symbolic links, which would lead back to where it was built.
        let command = home.join("warpline");
        std::fs::hard_link(env!("CARGO_BIN_EXE_warpline"), &command).unwrap();
        for library in ["libibverbs.so.1", "librdmacm.so.1", "libwarpline-view.so.1"] {
            let file = built.join(library).canonicalize().unwrap();
            std::fs::hard_link(file, home.join("verbs").join(library)).unwrap();
        }
        let run = Command::new(command).args(["run", "--", "cat", "/proc/self/maps"]).output();
        let run = run.unwrap();
        let (maps, error) = (text(&run.stdout), text(&run.stderr));
        let loaded = format!("{}/verbs/libibverbs.so.1", home.display());
        assert!(maps.contains(&loaded) && error.is_empty(), "{maps}{error}");
    }
}

#[test]
fn verbs_are_traced_counted_and_disturbed() {
    if libraries::find("ibv_devinfo").is_none() {
        return skip(
            "warpline run --trace, --stats, --fault",
            warpline_skip::missing("ibverbs-utils"),
        );
    }
    let trace = TempFile::new("verbs-trace", b"of an earlier run");
    let file = trace.path();
    let (status, error) = printed(&["--trace", file], &["ibv_devinfo"]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let lines = std::fs::read_to_string(file).unwrap();
    assert!(lines.contains("rnic: open") && !lines.contains("earlier"), "{lines}");
    let (status, error) = printed(&["--stats"], &["ibv_devinfo"]);
    assert!(status == Some(0) && error.contains("open: 1 calls, 0 refused"), "{error}");
    let (status, error) = printed(&["--fault", "open@1 = InUse"], &["ibv_devinfo"]);
    assert!(status != Some(0), "{error}");
    let (status, error) = printed(&["--fault", "opne@1=InUse"], &["ibv_devinfo"]);
    assert!(status == Some(2) && error.contains("there is no `opne`"), "{error}");
}

/// A program in C that returns 3; `None`: it cannot be built.
fn program(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let path = std::env::temp_dir().join(format!("warpline-{name}-{}", std::process::id()));
    let source = path.with_extension("c");
    std::fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let built = Command::new("cc").arg("-o").arg(&path).arg(&source).args(flags).output();
    std::fs::remove_file(source).unwrap();
    built.is_ok_and(|output| output.status.success()).then_some(path)
}

#[test]
fn obstacles_are_reported_before_a_program_starts() {
    let beside = Libraries::build().directory();
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", beside.display());
    let cases = [
        ("static", "-static", &[][..], "linked statically"),
        ("rpath", &rpath, &["--no-preload"], "RPATH"),
        ("preloaded", &rpath, &[], ""),
    ];
    for (name, flag, options, expected) in cases {
        let Some(path) = program(name, &[flag]) else {
            skip(&format!("warpline run of a {name} program"), warpline_skip::missing("gcc"));
            continue;
        };
        let (status, error) = printed(options, &[path.to_str().unwrap()]);
        std::fs::remove_file(path).unwrap();
        assert_eq!(status, Some(3), "{name}: it is started all the same: {error}");
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!(error.is_empty(), expected.is_empty(), "{name}: {error}");
    }
}

#[test]
fn a_setuid_program_is_reported_not_to_load_the_libraries() {
    let Some(path) = program("setuid", &[]) else {
        return skip("warpline run of a setuid program", warpline_skip::missing("gcc"));
    };
    if chown(&path, Some(65_534), None).is_err() {
        return skip("warpline run of a setuid program", warpline_skip::NOT_ROOT);
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let (status, error) = printed(&[], &[path.to_str().unwrap()]);
    std::fs::remove_file(path).unwrap();
    assert!(status == Some(3) && error.contains("setuid"), "{error}");
}

/// In a mount namespace whose `/sys/class` has an adapter.
#[test]
fn adapters_that_the_program_will_not_see_are_named() {
    Libraries::build();
    let script =
        "mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0 && exec \"$@\"";
    let beside = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).args(program);
        command.output()
    };
    if !beside(&["true"]).is_ok_and(|output| output.status.success()) {
        return skip("warpline run beside adapters", warpline_skip::NO_NAMESPACES);
    }
    let output = beside(&[env!("CARGO_BIN_EXE_warpline"), "run", "--", "true"]).unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "it is started all the same: {error}");
    assert!(error.contains("the program will not see mlx5_0: it sees softrdma0, roce0"), "{error}");
}

#[test]
fn programs_that_look_below_sys_and_dev_find_the_devices() {
    let script = "cat /sys/class/infiniband/softrdma0/ports/1/gid_attrs/types/1 \
        && echo $(ls -v /sys/class/infiniband) && test -c /dev/infiniband/uverbs0 \
        && cat /sys/class/infiniband_verbs/uverbs0/ibdev && cat /dev/infiniband/uverbs0 \
        && readlink -f /sys/class/infiniband/softrdma0/device && echo $WARPLINE_VERBS_VIEW";
    let output = start(&[], &["sh", "-c", script]);
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    let [kind, listed, device, path, view] = shown.lines().collect::<Vec<_>>()[..] else {
        panic!("{shown}{error}");
    };
    assert_eq!((kind, listed, device), ("RoCE v2", "roce0 softrdma0", "softrdma0"));
    assert_eq!(path, "/sys/class/infiniband/softrdma0/device");
    // The same content is the same view, and a verbs program runs in it.
    let again = start(&["--no-preload"], &["sh", "-c", "echo $WARPLINE_VERBS_VIEW"]);
    assert_eq!(text(&again.stdout).trim_end(), view);
    let none = start(&["--no-view"], &["sh", "-c", "echo $WARPLINE_VERBS_VIEW"]);
    assert_eq!(text(&none.stdout), "\n");
    if libraries::find("ibv_devinfo").is_some() {
        for (options, names) in [
            (&[][..], &["softrdma0", "roce0"][..]),
            (&["--iwarp"], &["softrdma0"]),
            (&["--roce"], &["roce0"]),
        ] {
            let output = start(options, &["ibv_devinfo", "-l"]);
            let shown = text(&output.stdout);
            let listed: Vec<_> =
                shown.lines().skip(1).map(str::trim).filter(|l| !l.is_empty()).collect();
            assert_eq!(listed, names, "{}", text(&output.stderr));
        }
    }
}

/// What the C program prints: the devices listed and opened, and those of identifiers for connections and datagrams.
fn chosen(command: &mut Command, opened: &[&str]) -> Option<[String; 4]> {
    if libraries::find("cc").is_none() || !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        skip("the devices that programs get", warpline_skip::missing("librdmacm-dev"));
        return None;
    }
    Libraries::build();
    let links = ["-lrdmacm", "-libverbs"].map(str::to_owned);
    let program = run::compile("cc", "choice.c", &links).unwrap();
    let output = command.arg(program).arg("127.0.0.1").args(opened).output().unwrap();
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    let lines = shown.lines().filter_map(|line| line.split_once(':'));
    let lines: Vec<_> = lines.map(|(_, names)| names.trim().to_owned()).collect();
    Some(lines.try_into().unwrap_or_else(|_| panic!("{shown}{error}")))
}

#[test]
fn an_identifier_gets_the_device_of_its_port_space() {
    const BOTH: [&str; 4] = ["softrdma0 roce0", "softrdma0 roce0", "softrdma0", "roce0"];
    const SPLIT: &str = "WARPLINE_VERBS_DEVICES";
    for (option, split, expected) in [
        (None, "", BOTH),
        (Some("--iwarp"), "", ["softrdma0", "softrdma0", "softrdma0", "none"]),
        (Some("--roce"), "", ["roce0", "roce0", "roce0", "roce0"]),
        (None, "a=lo,b=roce:lo,c=iwarp:lo", ["a c b", "a c b", "a", "b"]),
        (None, "a=lo", ["a", "a", "a", "none"]),
        (Some("--roce"), "a=lo", ["a", "a", "a", "a"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        command.arg("run").args(option).arg("--").env(SPLIT, split);
        let Some(seen) = chosen(&mut command, &[]) else { return };
        assert_eq!(seen, expected, "{option:?} {split}");
    }
}

#[test]
fn an_identifier_gets_the_only_device_that_the_program_has_opened() {
    for (opened, expected) in [
        (&["roce0"][..], "roce0"),
        (&["softrdma0"], "softrdma0"),
        (&["roce0", "softrdma0"], "softrdma0"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        let Some(seen) = chosen(command.args(["run", "--"]), opened) else { return };
        assert_eq!([&seen[2], &seen[3]], [expected, "roce0"], "{opened:?}");
    }
}

/// In a network of its own, where another program has RoCE's port.
#[test]
fn the_port_of_roce_in_other_hands_disturbs_nobody_who_does_not_use_it() {
    const TEST: &str = "RoCE's port in other hands";
    let script = "ip link set lo up && exec python3 -c 'import socket, subprocess, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((\"0.0.0.0\", 4791))
sys.exit(subprocess.call(sys.argv[1:]))' \"$@\"";
    let alone = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", script, "sh"]).args(program);
        command
    };
    if !alone(&["true"]).output().is_ok_and(|output| output.status.success()) {
        return skip(TEST, warpline_skip::NO_NAMESPACES);
    }
    let warpline = env!("CARGO_BIN_EXE_warpline");
    let Some(seen) = chosen(&mut alone(&[warpline, "run", "--"]), &[]) else { return };
    assert_eq!([&seen[0], &seen[2]], ["softrdma0 roce0", "softrdma0"]);
    if libraries::find("rping").is_some() {
        // A server that would listen by RoCE, too, serves iWARP.
        let both =
            "rping -s -a 127.0.0.1 -C 1 & until rping -c -a 127.0.0.1 -C 1; do :; done; wait";
        let both = ["timeout", "60", warpline, "run", "--", "sh", "-c", both];
        let output = alone(&both).output().unwrap();
        let error = text(&output.stderr);
        let is_told = ["warpline: ", " WARN "].iter().any(|said| error.contains(said));
        assert!(output.status.success() && !is_told, "{error}");
        // Who asks for it is told why it has none.
        let serve = ["run", "--roce", "--", "rping", "-s", "-a", "127.0.0.1"];
        let output = alone(&[&[warpline], &serve[..]].concat()).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains("4791"), "{error}");
    }
}

#[test]
fn what_is_set_is_printed_for_a_shell() {
    let shown = text(&start(&["--print", "--roce"], &["no-such-program"]).stdout);
    let print = |options: &str, command: &str| {
        let warpline = env!("CARGO_BIN_EXE_warpline");
        let script = format!("eval \"$({warpline} run --print {options})\" && {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("UCX_TLS", "it's").env("OMPI_MCA_pml", "cm");
        text(&shell.output().unwrap().stdout)
    };
    for part in [
        "export LD_LIBRARY_PATH='",
        "export WARPLINE_VERBS_ROCE='1'\n",
        "_pml='^monitoring'",
        "_osc='^pt2pt'",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    // What the user has set stays.
    assert_eq!(print("", "echo $OMPI_MCA_pml $UCX_TLS $WARPLINE_VERBS_ROCE"), "cm it's\n");
    if libraries::find("ibv_devinfo").is_some() {
        assert!(print("--iwarp", "ibv_devinfo -l").contains("softrdma0"));
    }
}

/// Both devices, beside each other and alone: the options of `run`, and the name.
const DEVICES: [(&[&str], &str); 4] =
    [(&[], "softrdma0"), (&[], "roce0"), (&["--iwarp"], "softrdma0"), (&["--roce"], "roce0")];

#[test]
fn every_function_of_the_c_library_that_takes_a_path_leads_into_the_view() {
    if libraries::find("cc").is_none() {
        return skip("the C library in the view", "package gcc is not installed");
    }
    // With functions for large files, and with those that check the size of buffers.
    for flags in [&["-D_FILE_OFFSET_BITS=64"][..], &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]] {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let program = run::compile("cc", "view.c", &flags).unwrap();
        for (options, device) in DEVICES {
            let output = start(options, &[program.to_str().unwrap(), device]);
            let printed = text(&output.stdout) + &text(&output.stderr);
            assert!(output.status.success(), "{device}, {flags:?}:\n{printed}");
        }
    }
}

#[test]
fn a_shown_device_has_the_files_of_an_adapter() {
    let script = "cd /sys/class/infiniband/$0 && cat node_type node_desc node_guid sys_image_guid \
        fw_ver hw_rev board_id hca_type ports/1/state ports/1/phys_state ports/1/rate \
        ports/1/link_layer ports/1/lid ports/1/lid_mask_count ports/1/sm_lid ports/1/sm_sl \
        ports/1/cap_mask ports/1/gids/0 ports/1/gid_attrs/types/0 ports/1/gid_attrs/ndevs/0 \
        ports/1/pkeys/0 && pwd && cat /sys/class/infiniband_mad/abi_version";
    for (options, device) in DEVICES {
        let output = start(options, &["sh", "-c", script, device]);
        let shown = text(&output.stdout);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(output.status.success(), "{shown}{}", text(&output.stderr));
        assert_eq!((lines.len(), lines[lines.len() - 1]), (23, "5"), "{shown}");
        assert_eq!(lines[21], format!("/sys/class/infiniband/{device}"));
        // What libibverbs says is the same.
        if libraries::find("ibv_devinfo").is_some() {
            let output = start(options, &["ibv_devinfo", "-v"]);
            let listed = text(&output.stdout);
            for at in [2, 3, 4, 17] {
                assert!(listed.contains(&gid(lines[at])), "{}: {listed}", lines[at]);
            }
        }
    }
}

/// A GID as libibverbs writes it; what is none stays.
fn gid(text: &str) -> String {
    let plain = || text.parse().map(|ip: std::net::Ipv6Addr| ip.to_string());
    plain().unwrap_or_else(|_| text.to_owned())
}

#[test]
fn the_tools_of_infiniband_diags_find_the_devices() {
    for name in ["ibstatus", "ibstat"] {
        if libraries::find(name).is_none() {
            let why = "package infiniband-diags is not installed";
            skip(&format!("{name} in the view"), why);
            continue;
        }
        for (options, device) in DEVICES {
            let output = start(options, &[name]);
            let (shown, error) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success() && error.is_empty(), "{name}: {shown}{error}");
            // libibumad has no devices of iWARP.
            let is_shown = name == "ibstatus" || device == "roce0";
            assert_eq!(shown.contains(device), is_shown, "{name}: {shown}");
            let state = shown.to_lowercase().contains("active");
            assert_eq!(state, is_shown || options.is_empty(), "{name}: {shown}");
        }
    }
}

#[test]
fn with_roce_the_device_is_a_channel_adapter_with_a_gid_for_each_address() {
    let script = "at=/sys/class/infiniband/roce0; cat $at/node_type $at/ports/1/link_layer \
        $at/ports/1/gid_attrs/types/0 && for gid in $(ls $at/ports/1/gids); do \
        cat $at/ports/1/gids/$gid; done";
    let output = start(&["--roce"], &["sh", "-c", script]);
    let shown = text(&output.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.starts_with(&["1: CA", "Ethernet", "RoCE v2"]), "{}", text(&output.stderr));
    // Those of loopback only where there is no other: a peer on another host would take it for its own.
    const LOOPBACK: &str = "0000:0000:0000:0000:0000:ffff:7f00:0001";
    let gids = &lines[3..];
    let alone = gids.iter().all(|gid| *gid == LOOPBACK || gid.ends_with(":0000:0000:0001"));
    assert_eq!(gids.contains(&LOOPBACK), alone, "{shown}");
    if libraries::find("ibv_devinfo").is_some() {
        let output = start(&["--roce"], &["ibv_devinfo", "-v"]);
        let (shown, error) = (text(&output.stdout), text(&output.stderr));
        for part in ["roce0", "InfiniBand (0)", "Ethernet", ", RoCE v2"] {
            assert!(shown.contains(part), "{part}: {shown}{error}");
        }
        assert_eq!(shown.contains("::ffff:127.0.0.1, RoCE v2"), alone, "{shown}");
    }
}

/// UCX connects by datagrams, and then by GIDs and queue pair numbers. It refuses devices of iWARP.
#[test]
fn ucx_runs_on_roce() {
    if libraries::find("ucx_perftest").is_none() {
        return skip("UCX on RoCE", warpline_skip::missing("ucx-utils"));
    }
    Libraries::build();
    for test in ["tag_lat", "ucp_put_bw", "ucp_get", "ucp_fadd"] {
        let port = process::free_port();
        let start = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
            command.args(["run", "--", "ucx_perftest", "-p"]);
            command.arg(port.to_string()).args(["-t", test, "-n", "1000", "-w", "100"]).args(more);
            command.env("UCX_TLS", "rc_v,self");
            process::Process::start(command).unwrap()
        };
        let mut server = start(&[]);
        until("UCX to listen", || process::is_listening(port) || server.ended().is_some());
        let mut client = start(&["127.0.0.1"]);
        for side in [&mut client, &mut server] {
            let status = side.wait(HANG);
            assert!(status.is_some_and(|status| status.success()), "{test}: {}", side.printed());
        }
    }
}

/// Package, compiler, and the command that starts two ranks.
const MPIS: [[&str; 3]; 2] = [
    [
        "libopenmpi-dev",
        "mpicc.openmpi",
        "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 --mca pml ucx",
    ],
    ["libmpich-dev", "mpicc.mpich", "mpirun.mpich -n 2"],
];

/// UCX's other transport between processes of a host is shared memory, which these names leave out.
#[test]
fn mpi_over_ucx_runs_on_roce() {
    Libraries::build();
    for [package, compiler, launcher] in MPIS {
        let words: Vec<_> = launcher.split(' ').collect();
        if [compiler, words[0]].iter().any(|name| libraries::find(name).is_none()) {
            skip(&format!("{} over UCX", words[0]), warpline_skip::missing(package));
            continue;
        }
        let program = run::compile(compiler, "mpi.c", &[]).unwrap();
        for transports in ["rc_v,self", "ud_v,self"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
            command.args(["run", "--"]).args(&words).arg(&program);
            command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "roce0:1");
            let mut ranks = process::Process::start(command).unwrap();
            let status = ranks.wait(HANG);
            let printed = ranks.printed();
            assert!(
                status.is_some_and(|it| it.success())
                    && printed.contains("2 ranks on 1 hosts: ring"),
                "{launcher}, {transports}: {status:?}\n{printed}"
            );
        }
    }
}

/// A program that connects, sends and receives.
#[test]
fn connections_are_recorded() {
    let (status, error) = printed(&["--sockets"], &["true"]);
    assert!(status == Some(2) && error.contains("--log"), "{error}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        std::io::copy(&mut peer.try_clone().unwrap(), &mut peer).unwrap()
    });
    let record = TempFile::new("record", b"of an earlier run\n");
    let file = record.path();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; echo hello >&3; read -r word <&3; test $word = hello",
        local.port()
    );
    let (status, error) = printed(&["--sockets", "--log", file], &["bash", "-c", &script]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    assert_eq!(server.join().unwrap(), 6);
    let lines = std::fs::read_to_string(file).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    // bash writes by a stream of the C library, which the kernel's count shows.
    let peer = format!("peer={local} ");
    for part in ["program=bash ", &peer, "sent=0 ", "received=6 ", "other=6+0 ", ",stdio "] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
}

/// Two processes of a program, each with an end.
#[test]
fn connections_are_carried_by_shared_memory() {
    let test = "warpline run --shared-memory";
    if std::env::var_os("WARPLINE_TEST_RINGS").is_none() {
        return skip(test, warpline_skip::RINGS);
    }
    if libraries::find("python3").is_none() {
        return skip(test, warpline_skip::missing("python3"));
    }
    let script = "
import os, socket
l = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    c, _ = l.accept()
    while d := c.recv(1000): c.sendall(d)
    os._exit(0)
c = socket.create_connection(l.getsockname())
for i in range(200):
    m = bytes([i]) * 300; c.sendall(m); r = b''
    while len(r) < 300: r += c.recv(300 - len(r))
    assert r == m
c.close(); os.wait()";
    for (option, carried) in [
        (&["--shared-memory"][..], "ring"),
        (&["--shared-memory", "--spin", "0"], "ring"),
        (&[], "tcp"),
    ] {
        let record = TempFile::new("record", b"");
        let options = [&["--sockets", "--log", record.path()], option].concat();
        let (status, error) = printed(&options, &["python3", "-c", script]);
        assert_eq!((status, error.as_str()), (Some(0), ""));
        let lines = std::fs::read_to_string(record.path()).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines}");
        for part in
            [" sent=60000 ", " received=60000 ", " other=0+0 ", &format!(" carried={carried} ")]
        {
            assert!(lines.lines().all(|line| line.contains(part)), "{part}: {lines}");
        }
    }
}

#[test]
fn a_program_that_cannot_load_the_libraries_is_not_started_on_request() {
    let Some(path) = program("required", &["-static"]) else {
        return skip("warpline run --require of a static program", "cc cannot build it");
    };
    let (status, error) = printed(&["--require"], &[path.to_str().unwrap()]);
    std::fs::remove_file(path).unwrap();
    assert!(status == Some(2) && error.contains("linked statically"), "{error}");
    assert_eq!(printed(&["--require"], &["true"]), (Some(0), String::new()));
}
