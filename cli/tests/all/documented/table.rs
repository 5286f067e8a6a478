//! The commands of the pages, and how each runs in a test: on a free port, with a small file, for a short time.

/// How a command runs.
pub(super) enum How {
    /// Until it ends with success.
    Ends,
    /// In the background, while the commands after it run. Its first line has its address.
    Serves,
    /// As the two above, with a program of a Debian package on the verbs libraries.
    With(&'static str, &'static str),
    ServesWith(&'static str, &'static str),
    /// On a terminal, until the key `q`.
    OnTerminal,
    /// As part of another test: its file and its name.
    Test(&'static str, &'static str),
    /// Not in a test: why.
    Never(&'static str),
}

pub(super) struct Run {
    /// The command as the pages have it; empty: of no page, for the commands after it.
    pub(super) page: &'static str,
    /// What runs in its place; empty: the same. The words in braces are those of `Session::line`.
    pub(super) here: &'static str,
    /// What it prints, in this order; empty: as the page shows.
    pub(super) shows: &'static [&'static str],
    pub(super) how: How,
}

/// The rules of docs/operating.md.
pub(super) const RULES: &str = "\
[[rule]]
match = { peer = \"10.1.0.0/16\" }
action = { crc = \"prefer\" }
[[rule]]
match = { peer = \"192.0.2.0/24\" }
action = { deny = \"that network is for backups\" }
";
/// What test programs leave for the summary at the end of a run.
pub(super) const SKIPS: &str = "counts\t7\t0\na\tchromium is not installed\tscripts/setup --site\n";

const NO_ENGINE: &str =
    "needs a container engine; the tests of the containers follow their Dockerfiles";
const CHAT: How =
    How::Test("examples/tests/examples/piped.rs", "a_chat_of_twenty_guests_loses_no_line");
const RECORDS: How = How::Test(
    "examples/tests/examples/rust.rs",
    "records_arrive_once_although_connections_are_lost",
);
const VERBS: How = How::Test(
    "tests/verbs/tests/resume_by_hand.rs",
    "records_arrive_once_although_connections_are_lost",
);
const C: How = How::Test("examples/tests/examples/c.rs", "hello_rdma_says_hello");
const CONTAINER: How =
    How::Test("tests/verbs/tests/container.rs", "programs_run_in_the_image_of_the_dockerfile");

const ENGINES: How =
    How::Never("installs packages of PyPI; `tests/verbs/hosts laptop.md` runs the lines");
const ADAPTER: How = How::Never("needs an adapter; the lines before it run without one");
const LISTENS: How =
    How::Test("cli/tests/all/conform_roce/provider.rs", "we_connect_and_nothing_fails");
const WHEEL: How = How::Never("builds for minutes; `.ci/run wheel` tries the wheel");

/// How the page starts a transfer engine.
macro_rules! engine {
    () => {
        "warpline run -- engines/bin/python examples/transfer_engine.py "
    };
}

const fn run(
    page: &'static str,
    here: &'static str,
    shows: &'static [&'static str],
    how: How,
) -> Run {
    Run { page, here, shows, how }
}

/// In the order in which they run: clients behind their server.
pub(super) const RUNS: &[Run] = &[
    run("cargo run --release -- demo", "warpline demo {dir}/file", &[], How::Ends),
    run("warpline demo", "warpline demo {dir}/file", &[], How::Ends),
    run("cargo test --workspace", "{root}/scripts/runner --summary skips", &[], How::Ends),
    run(
        "cargo install --path cli",
        "",
        &[],
        How::Never("builds the command once more, for minutes"),
    ),
    run("warpline devices", "", &[], How::Ends),
    run(
        "warpline decode --hex 0012414300000000000000000000000100000000587be8c4",
        "",
        &["Send, 24 octets", "1 frame, 0 broken requirements"],
        How::Ends,
    ),
    // A ping, and what observes it.
    run(
        "warpline ping --serve 127.0.0.1:7174",
        "warpline ping --serve 127.0.0.1:0",
        &["serving"],
        How::Serves,
    ),
    run(
        "warpline ping 127.0.0.1 -c 10",
        "warpline ping {address} -c 10",
        &["PING", "10 round trips started, 10 completed"],
        How::Ends,
    ),
    run("warpline ping 127.0.0.1 -c 1", "warpline ping {address} -c 1 | head -n 1", &[], How::Ends),
    run("warpline ping HOST", "warpline ping {address} -c 1", &["1 completed"], How::Ends),
    run(
        "warpline conform HOST:PORT",
        "warpline conform {address} --only CONN-06",
        &["pass", "revision 2, plain"],
        How::Ends,
    ),
    run("warpline doctor 127.0.0.1:50383", "warpline doctor {address}", &[], How::Ends),
    run("warpline conform --roce --list", "", &["IBRC-05"], How::Ends),
    run(
        "warpline conform --roce --serve 127.0.0.1:7175",
        "warpline conform --roce --serve 127.0.0.1:0",
        &["serving"],
        How::Serves,
    ),
    run(
        "warpline conform --roce 127.0.0.1:7175",
        "warpline conform --roce {address} --only IBRC-05",
        &["pass", "a PSN ahead"],
        How::Ends,
    ),
    run(
        "warpline conform --roce 127.0.0.1:7175 --case \"a PSN ahead\" --json",
        "warpline conform --roce {address} --case \"a PSN ahead\" --json",
        &["\"pass\""],
        How::Ends,
    ),
    run("warpline conform --roce --device vp_verbs --serve 192.0.2.1:7175", "", &[], ADAPTER),
    run("warpline conform --roce 192.0.2.1:7175 --json", "", &[], ADAPTER),
    run("warpline conform --roce --listen 192.0.2.2:7175", "", &[], LISTENS),
    run("warpline ping --serve 0.0.0.0:7174", "warpline ping --serve 0.0.0.0:0", &[], How::Serves),
    run("warpline ping HOST -c 3", "warpline ping {address} -c 3", &[], How::Ends),
    // The figures of a page are those of other loads: columns and headings are the same.
    run("", "warpline ping {address} --interval 0.001 -c 1000000", &[], How::Serves),
    run("warpline stat", "", &["process", "connections", "messages/s"], How::Ends),
    run("warpline stat 31106", "warpline stat {pid}", &["process", "connections"], How::Ends),
    run(
        "warpline explain 30838 --seconds 3",
        "warpline explain {pid} --seconds 0.5",
        &["QP 1 with 127.0.0.1:"],
        How::Ends,
    ),
    run(
        "warpline explain 31202 --seconds 3",
        "warpline explain {pid} --seconds 0.5",
        &["QP 1 with 127.0.0.1:"],
        How::Ends,
    ),
    run(
        "warpline explain 26417 --seconds 2",
        "warpline explain {pid} --seconds 0.5",
        &["QP 1 with 127.0.0.1:"],
        How::Ends,
    ),
    run(
        "warpline capture 4649 -o ping.pcapng --count 1000",
        "warpline capture {pid} -o ping.pcapng --count 20",
        &["capturing process", "of 1 connection written"],
        How::Ends,
    ),
    run("warpline decode --pcap FILE", "warpline decode --pcap ping.pcapng", &["Send"], How::Ends),
    run("warpline top", "", &["connections", "q quit"], How::OnTerminal),
    run(
        "warpline stat --openmetrics > /var/lib/node_exporter/warpline.prom",
        "warpline stat --openmetrics > warpline.prom; tail -n 1 warpline.prom",
        &["# EOF"],
        How::Ends,
    ),
    run(
        "warpline stat --listen 127.0.0.1:9555",
        "warpline stat --listen 127.0.0.1:0",
        &["listening on http://127.0.0.1:"],
        How::Serves,
    ),
    run(
        "warpline policy why --peer 192.0.2.7 --port 7001",
        "WARPLINE_CONFIG={dir}/rules.toml warpline policy why --peer 192.0.2.7 --port 7001",
        &["10.1.0.0/16", "yes", "192.0.2.0/24", "deny: that network is for backups"],
        How::Ends,
    ),
    // Measurements, of one case and for a moment.
    run(
        "warpline perf local",
        "warpline perf local --op send --mode lat --size 8 --crc on --poll {moment}",
        &["Half a round trip", "less is better", "8 B, CRC on, poll", "Compared with raw TCP"],
        How::Ends,
    ),
    run(
        "warpline perf local --targets",
        "warpline perf local --targets --op send --mode lat --size 8 --crc on --poll {moment}",
        &["less is better", "Targets: "],
        How::Ends,
    ),
    run(
        "warpline perf local --json --plot perf.svg",
        "warpline perf local --json --plot perf.svg --op write --mode bw --size 4k {moment} && cat perf.svg",
        &["\"results\"", "<svg"],
        How::Ends,
    ),
    run(
        "warpline perf local --op send --mode rate --size 8 --list 32 --depth 256 --crc on --poll",
        "warpline perf local --op send --mode rate --size 8 --list 32 --depth 256 --crc on --poll {moment}",
        &["Message"],
        How::Ends,
    ),
    run(
        "warpline perf local --device vp_roce --paths",
        "warpline perf local --device vp_roce --paths --op send --mode lat --size 8 {moment}",
        &["By path", "SoftRDMA over TCP with CRC", "Send, 8 B, poll"],
        How::Ends,
    ),
    run(
        "warpline perf serve",
        "warpline perf serve 127.0.0.1:0",
        &["serving measurements at"],
        How::Serves,
    ),
    run(
        "warpline perf run HOST",
        "warpline perf run {address} --op write --mode bw --size 4k {moment}",
        &["Bandwidth"],
        How::Ends,
    ),
    run(
        "warpline perf run HOST --op write --mode bw --size 4k,64k,1m",
        "warpline perf run {address} --op write --mode bw --size 4k,64k,1m {moment}",
        &["Bandwidth", "4 KiB", "64 KiB", "1 MiB"],
        How::Ends,
    ),
    run(
        "warpline perf scale",
        "warpline perf scale --connections 4 --idle 4 --read 1 --read-size 64k {moment}",
        &["connections"],
        How::Ends,
    ),
    // Providers.
    run(
        "warpline provider check ./libacme.so",
        "warpline provider check {libraries}/libvp_softrdma.so --case send",
        &["passed"],
        How::Ends,
    ),
    // Programs of Debian on the verbs libraries.
    run(
        "warpline run -- ib_write_bw",
        "warpline run -- ib_write_bw --help || true",
        &["ib_write_bw", "start a server and wait for connection"],
        How::With("ib_write_bw", "perftest"),
    ),
    run(
        "apt install perftest && cargo build --release",
        "",
        &[],
        How::Never("changes the system; scripts/setup installs perftest"),
    ),
    run(
        "target/release/warpline run -- ib_write_bw",
        "warpline run -- ib_write_bw -p {port} -n 100",
        &[],
        How::ServesWith("ib_write_bw", "perftest"),
    ),
    run(
        "target/release/warpline run -- ib_write_bw 127.0.0.1",
        "warpline run -- ib_write_bw -p {port} -n 100 127.0.0.1",
        &["#bytes", "BW average", " 65536 "],
        How::With("ib_write_bw", "perftest"),
    ),
    run(
        "target/release/warpline run -- ib_write_bw -R",
        "warpline run -- ib_write_bw -R -p {port} -n 100",
        &[],
        How::ServesWith("ib_write_bw", "perftest"),
    ),
    run(
        "target/release/warpline run -- ib_write_bw -R 127.0.0.1",
        "warpline run -- ib_write_bw -R -p {port} -n 100 127.0.0.1",
        &["#bytes", "BW average", " 65536 "],
        How::With("ib_write_bw", "perftest"),
    ),
    run(
        "cargo build --release",
        "",
        &[],
        How::Test("cli/tests/all/run.rs", "the_program_finds_the_libraries_first"),
    ),
    run("docker build -t verbs -f examples/verbs-container/Dockerfile .", "", &[], CONTAINER),
    run("docker run --rm --network=host verbs ib_write_bw -R", "", &[], CONTAINER),
    run("docker run --rm --network=host verbs ib_write_bw -R 127.0.0.1", "", &[], CONTAINER),
    run(
        "warpline run -- ucx_perftest -t ucp_get -n 1000",
        "warpline run -- ucx_perftest -p {port} -t ucp_get -n 1000",
        &[],
        How::ServesWith("ucx_perftest", "ucx-utils"),
    ),
    run(
        "warpline run -- ucx_perftest -t ucp_get -n 1000 127.0.0.1",
        "warpline run -- ucx_perftest -p {port} -t ucp_get -n 1000 127.0.0.1",
        &["Final:"],
        How::With("ucx_perftest", "ucx-utils"),
    ),
    // Transfer engines.
    run("python3 -m venv engines", "", &[], ENGINES),
    run(
        "engines/bin/pip install mooncake-transfer-engine-non-cuda==0.3.13.post1",
        "",
        &[],
        ENGINES,
    ),
    run(
        "engines/bin/pip install --no-deps nixl==1.5.1 nixl-cu13==1.5.1 numpy==2.4.6",
        "",
        &[],
        ENGINES,
    ),
    run(concat!(engine!(), "mooncake target 127.0.0.1 --device softrdma0"), "", &[], ENGINES),
    run(
        concat!(engine!(), "mooncake initiator 127.0.0.1 127.0.0.1 --device softrdma0"),
        "",
        &[],
        ENGINES,
    ),
    run(concat!(engine!(), "mooncake target 127.0.0.1 --device roce0"), "", &[], ENGINES),
    run(
        concat!(engine!(), "mooncake initiator 127.0.0.1 127.0.0.1 --device roce0"),
        "",
        &[],
        ENGINES,
    ),
    run(concat!(engine!(), "nixl target 127.0.0.1"), "", &[], ENGINES),
    run(concat!(engine!(), "nixl initiator 127.0.0.1 127.0.0.1"), "", &[], ENGINES),
    // Programs with sockets.
    run(
        "warpline run --sockets --log tcp.log -- redis-server",
        "warpline run --sockets --log tcp.log -- redis-server --version",
        &["Redis server"],
        How::With("redis-server", "redis-server"),
    ),
    run(
        "warpline run --sockets --log tcp.log -- redis-server --port 7000",
        "warpline run --sockets --log tcp.log -- redis-server --port {port}",
        &[],
        How::ServesWith("redis-server", "redis-server"),
    ),
    run(
        "warpline run --sockets --log client.log -- redis-benchmark -p 7000 -n 1000 -c 1 -t get -q",
        "warpline run --sockets --log client.log -- redis-benchmark -p {port} -n 1000 -c 1 -t get -q",
        &["GET: "],
        How::With("redis-benchmark", "redis-server"),
    ),
    run(
        "cat client.log",
        "",
        &["pid=", "program=redis-benchmark", "carried=tcp", "calls="],
        How::With("redis-benchmark", "redis-server"),
    ),
    // Programs against the libraries.
    run(
        "cargo run -p warpline-examples --bin resume_by_hand -- serve 127.0.0.1:7176",
        "",
        &[],
        RECORDS,
    ),
    run(
        "cargo run -p warpline-examples --bin resume_by_hand -- connect 127.0.0.1:7176 4",
        "",
        &[],
        RECORDS,
    ),
    run("cc examples/verbs/resume_by_hand.c -lrdmacm -libverbs -o resume_by_hand", "", &[], VERBS),
    run("warpline run -- ./resume_by_hand serve 127.0.0.1 7177", "", &[], VERBS),
    run("warpline run -- ./resume_by_hand connect 127.0.0.1 7177 4", "", &[], VERBS),
    run("cargo run -p warpline-examples --bin chat -- serve 127.0.0.1:7175", "", &[], CHAT),
    run("cargo run -p warpline-examples --bin chat -- connect 127.0.0.1:7175 ann", "", &[], CHAT),
    run(
        "apt install gcc libc6-dev pkg-config",
        "",
        &[],
        How::Never("changes the system; scripts/setup installs them"),
    ),
    run("cargo build --release -p itapi-c", "", &[], C),
    run("scripts/install --prefix /usr/local --from target/release", "", &[], C),
    run(
        "cc -std=c99 examples/c/hello_rdma.c $(pkg-config --cflags --libs itapi) -pthread -o hello_rdma",
        "",
        &[],
        C,
    ),
    // Packages.
    run("scripts/setup --wheel && scripts/wheel", "", &[], WHEEL),
    run("python3 -m venv environment && . environment/bin/activate", "", &[], WHEEL),
    run("pip install target/wheel/warpline-*_x86_64.whl", "", &[], WHEEL),
    run("warpline run -- python serve.py", "", &[], WHEEL),
    run("prefix=$(python -c 'import warpline; print(warpline.prefix)')", "", &[], WHEEL),
    run("export PKG_CONFIG_PATH=$prefix/lib/pkgconfig", "", &[], WHEEL),
    run(
        "cc program.c $(pkg-config --cflags --libs itapi) -Wl,-rpath,\"$prefix/lib\"",
        "",
        &[],
        WHEEL,
    ),
    run(
        "dpkg -i target/packages/*.deb",
        "",
        &[],
        How::Never("changes the system; scripts/package --try has one of its own"),
    ),
    run(
        "docker build -t warpline -f examples/container/Dockerfile target/packages",
        "",
        &[],
        How::Never(NO_ENGINE),
    ),
    run("docker run --rm warpline", "", &[], How::Never(NO_ENGINE)),
    run("docker run --rm warpline warpline run -- ibv_devinfo", "", &[], How::Never(NO_ENGINE)),
];
