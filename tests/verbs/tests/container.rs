//! Test of the image of `examples/verbs-container/Dockerfile`: its root file system is built from packages
//! installed here, and programs run in it without `/dev`, `/proc` and `/sys`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use verbs_programs::process::{self, Process};
use verbs_programs::{Libraries, libraries, skip};
use warpline_patience::{HANG, until};

const WHAT: &str = "the root file system of the verbs container";

/// The last stage of the Dockerfile.
struct Image {
    packages: Vec<String>,
    copied: String,
    variables: Vec<(String, String)>,
}

impl Image {
    fn read() -> Self {
        let file = libraries::root().join("examples/verbs-container/Dockerfile");
        let text = fs::read_to_string(file).unwrap().replace("\\\n", "");
        let stage = text.rsplit("\nFROM ").next().unwrap().to_owned();
        let after = |word: &str| {
            let lines = stage.lines().filter_map(|line| line.strip_prefix(word));
            lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        let install = stage.split("--no-install-recommends").nth(1).unwrap();
        let packages = install.split("&&").next().unwrap().split_whitespace();
        let copied = after("COPY --from=build").remove(0);
        let (from, to) = copied.split_once(' ').unwrap();
        assert_eq!(from, to, "the installation is for the place where it is used");
        let built = text.lines().any(|line| line.ends_with(&format!("--prefix {to}")));
        assert!(built, "what is copied is built");
        let pair = |line: String| line.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
        Self {
            packages: packages.map(str::to_owned).collect(),
            copied: to.to_owned(),
            variables: after("ENV").into_iter().filter_map(pair).collect(),
        }
    }

    /// Copies the files of the stage to a directory.
    fn build(&self, root: &Path, programs: &[&str]) {
        for program in programs {
            let path = libraries::find(program).unwrap();
            put(root, &path);
            for library in needed(&path) {
                put(root, &library);
            }
        }
        let prefix = root.join(self.copied.trim_start_matches('/'));
        let built = Libraries::build().directory();
        let built = built.parent().unwrap();
        if !built.join("warpline").exists() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--offline", "-p", "warpline", "--target-dir"]);
            cargo.arg(built.parent().unwrap()).current_dir(libraries::root());
            cargo.args(built.ends_with("release").then_some("--release"));
            run(&mut cargo);
        }
        let mut install = Command::new(libraries::root().join("scripts/install-verbs"));
        run(install.arg("--prefix").arg(&prefix).arg("--from").arg(built));
        for file in ["bin/warpline", "lib/warpline/verbs/libibverbs.so.1"] {
            for library in needed(&prefix.join(file)) {
                put(root, &library);
            }
        }
    }
}

/// Copies a file to its path below a root.
fn put(root: &Path, file: &Path) {
    let place = root.join(file.strip_prefix("/").unwrap());
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(file, place).unwrap();
}

/// Libraries of this system that a program loads, with the loader.
fn needed(program: &Path) -> Vec<PathBuf> {
    let text = run(Command::new("ldd").arg(program).env_remove("LD_LIBRARY_PATH"));
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{shown}", output.status);
    shown
}

/// A directory that is removed with the test.
struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn programs_run_in_the_image_of_the_dockerfile() {
    let image = Image::read();
    let programs = ["ibv_devinfo", "rping", "ib_write_bw"];
    for (program, package) in programs.iter().zip(["ibverbs-utils", "rdmacm-utils", "perftest"]) {
        assert!(image.packages.iter().any(|name| name == package), "{package} is in the image");
        if libraries::find(program).is_none() {
            return skip(WHAT, warpline_skip::missing(package));
        }
    }
    let unshare = Command::new("unshare").args(["--map-root-user", "true"]).output();
    if !unshare.is_ok_and(|output| output.status.success()) {
        return skip(WHAT, warpline_skip::NO_NAMESPACES);
    }
    let root = Root(std::env::temp_dir().join(format!("verbs-container-{}", std::process::id())));
    image.build(&root.0, &programs);
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "chroot"]).arg(&root.0).args(words).env_clear();
        // The usual PATH, for `chroot`, too.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(image.variables.iter().cloned());
        command
    };
    let listed = run(&mut inside(&["ibv_devinfo"]));
    assert!(listed.contains("softrdma0"), "{listed}");
    let port = process::free_port();
    let number = port.to_string();
    let words = ["-a", "127.0.0.1", "-p", &number, "-C", "10", "-V"];
    let start = |role| Process::start(inside(&[&["rping", role][..], &words].concat())).unwrap();
    let mut server = start("-s");
    until("rping to listen", || process::is_listening(port) || server.ended().is_some());
    let mut client = start("-c");
    for side in [&mut client, &mut server] {
        let status = side.wait(HANG);
        assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", side.printed());
    }
}
