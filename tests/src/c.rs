//! Builds and runs C programs against the installed library, as a user of `libitapi` does.
//!
//! The library is built by cargo, as the running test was; header, library and pkg-config file are
//! installed with `scripts/install` below the target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use warpline_artifacts::libraries;
/// The root of the tree.
pub use warpline_artifacts::root;
use warpline_skip::{Reason, missing};

/// Warnings that are errors.
const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// Time-out of a program in seconds, beyond its argument.
const LONGEST: u32 = 240;

/// The standards that the header is valid in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// C99.
    C99,
    /// C++98.
    Cpp98,
    /// C++11.
    Cpp11,
    /// C++14.
    Cpp14,
    /// C++17.
    Cpp17,
    /// C++20.
    Cpp20,
}

impl Language {
    /// Languages of `it_api.h`: the oldest standard of each and a newer one.
    pub const ALL: [Self; 3] = [Self::C99, Self::Cpp98, Self::Cpp17];
    /// Languages of `itapi.hpp`.
    pub const CPP: [Self; 4] = [Self::Cpp11, Self::Cpp14, Self::Cpp17, Self::Cpp20];

    fn compiler(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::C99 => ("gcc", &["-std=c99"]),
            Self::Cpp98 => ("g++", &["-std=c++98", "-x", "c++"]),
            Self::Cpp11 => ("g++", &["-std=c++11", "-x", "c++"]),
            Self::Cpp14 => ("g++", &["-std=c++14", "-x", "c++"]),
            Self::Cpp17 => ("g++", &["-std=c++17", "-x", "c++"]),
            Self::Cpp20 => ("g++", &["-std=c++20", "-x", "c++"]),
        }
    }
}

/// An installation in its own directory, and programs compiled against it.
#[derive(Debug)]
pub struct Kit {
    home: PathBuf,
    flags: Vec<String>,
}

impl Kit {
    /// Installs the library below the target directory, under `name`; `Err`: which tool is missing.
    pub fn install(name: &str) -> Result<Self, Reason> {
        for tool in ["gcc", "g++", "pkg-config"] {
            present(tool)?;
        }
        let built = libraries(&["itapi-c"]);
        let home = built.join(name);
        std::fs::create_dir_all(&home).expect("the target directory can be written");
        let home = home.canonicalize().expect("it was just made");
        let install = root().join("scripts/install");
        run(Command::new(install).arg("--prefix").arg(&home).arg("--from").arg(built));
        let mut ask = Command::new("pkg-config");
        ask.env("PKG_CONFIG_PATH", home.join("lib/pkgconfig"));
        let flags = run(ask.args(["--cflags", "--libs", "itapi"]));
        Ok(Self { home, flags: flags.split_whitespace().map(str::to_owned).collect() })
    }

    /// Directory of the installation and the programs.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Makes the compiler check a file of `tests/c`.
    pub fn accept(&self, file: &str, language: Language, defines: &[&str]) {
        run(self.compile(&[file], language, defines).arg("-fsyntax-only").args(&self.flags));
    }

    /// Compiles files of `tests/c` into a program.
    pub fn program(
        &self,
        name: &str,
        files: &[&str],
        language: Language,
        defines: &[&str],
    ) -> PathBuf {
        let program = self.home.join(name);
        let mut command = self.compile(files, language, defines);
        // The following arguments are not source in the language of `-x`.
        command.args(["-x", "none"]).args(&self.flags).arg("-o").arg(&program);
        run(&mut command);
        program
    }

    /// A program linked with the static library.
    pub fn static_program(&self, name: &str, files: &[&str], defines: &[&str]) -> PathBuf {
        let program = self.home.join(name);
        let mut command = self.compile(files, Language::C99, defines);
        command.arg(format!("-I{}", self.home.join("include").display()));
        command.arg(self.home.join("lib/libitapi.a"));
        let mut ask = Command::new("pkg-config");
        ask.env("PKG_CONFIG_PATH", self.home.join("lib/pkgconfig"));
        let private = run(ask.args(["--static", "--libs-only-l", "itapi"]));
        command.args(private.split_whitespace().filter(|flag| *flag != "-litapi"));
        run(command.arg("-o").arg(&program));
        program
    }

    fn compile(&self, files: &[&str], language: Language, defines: &[&str]) -> Command {
        let (compiler, standard) = language.compiler();
        let mut command = Command::new(compiler);
        command.args(standard).args(STRICT).args(["-g", "-pthread", "-D_POSIX_C_SOURCE=200809L"]);
        command.args(defines.iter().map(|name| format!("-D{name}")));
        command.args(files.iter().map(|file| root().join("tests/c").join(file)));
        command
    }

    /// A command that runs a program with the installed library.
    pub fn command(&self, program: &Path) -> Command {
        self.lasting(program, 0)
    }

    /// The same for a program that runs for so many seconds.
    pub fn lasting(&self, program: &Path, seconds: u32) -> Command {
        let mut command = Command::new("timeout");
        command.arg(LONGEST.saturating_add(seconds).to_string()).arg(program);
        command.env("LD_LIBRARY_PATH", self.home.join("lib"));
        command
    }

    /// The same under valgrind, which fails on errors and on memory that is lost.
    pub fn checked_command(&self, program: &Path) -> Result<Command, Reason> {
        present("valgrind")?;
        let mut command = self.command(Path::new("valgrind"));
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]);
        command.args(["--fair-sched=try", "--child-silent-after-fork=yes"]);
        command.arg(program);
        Ok(command)
    }
}

/// Debian's package has the tool's name.
fn present(tool: &str) -> Result<(), Reason> {
    let started = Command::new(tool).arg("--version").output();
    started.map(drop).map_err(|_| missing(tool))
}

/// Runs a command that must succeed; returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    check(&format!("{command:?}"), &output);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Panics with what a command printed unless it succeeded.
pub fn check(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
