//! Checks why a program would not load the verbs libraries: it is static, runs with more rights than its user,
//! is for another machine, or finds others by its RPATH. Reads files; no state.

use std::fs::metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::{getgid, getuid};

use super::elf::{self, Elf};
use crate::error::{CliError, Exit};
use crate::verbs::{Libraries, SONAMES};

/// The warning about a program, if any.
pub(super) fn of(program: &Path, libraries: &Libraries, preload: bool) -> Vec<CliError> {
    // The loader reports a file that cannot be read.
    let Ok(Some(elf)) = elf::read(program) else { return Vec::new() };
    let mut notes = Vec::new();
    notes.extend(of_format(program, &elf, libraries));
    notes.extend(of_rights(program));
    if !preload {
        notes.extend(of_rpath(program, &elf));
    }
    notes
}

fn note(what: String) -> CliError {
    CliError::new(Exit::Failed, what)
}

fn of_format(program: &Path, elf: &Elf, libraries: &Libraries) -> Option<CliError> {
    let program = program.display();
    let [verbs, _] = libraries.files();
    let own = elf::read(&verbs).ok().flatten()?;
    if (elf.is_64, elf.machine) != (own.is_64, own.machine) {
        let note = note(format!("{program} will not load Warpline's libraries"));
        let note = note.because("it is for another processor, or another word size");
        return Some(note.hint("build it for this machine"));
    }
    if elf.is_dynamic {
        return None;
    }
    let note =
        note(format!("{program} will not load Warpline's libraries, only programs that it starts"));
    let note = note.because("it is linked statically: it loads no libraries");
    Some(note.hint("link it with shared libraries"))
}

/// The loader ignores the variables if the kernel requests secure execution (ld.so(8)).
fn of_rights(program: &Path) -> Option<CliError> {
    let found = metadata(program).ok()?;
    let mode = found.permissions().mode();
    let as_user = mode & 0o4000 != 0 && found.uid() != getuid().as_raw();
    let as_group = mode & 0o2010 == 0o2010 && found.gid() != getgid().as_raw();
    let is_root = getuid().is_root();
    let capable = !is_root && getxattr(program, "security.capability", &mut [0; 64][..]).is_ok();
    let why = match (as_user || as_group, capable) {
        (true, _) => "it runs with the rights of its owner (setuid or setgid)",
        (_, true) => "it has capabilities of its own (setcap)",
        _ => return None,
    };
    let note = note(format!("{} will not load Warpline's libraries", program.display()));
    let note = note.because(format!("{why}, so the loader ignores LD_LIBRARY_PATH and LD_PRELOAD"));
    Some(note.hint("run a copy of it without these rights, or as that user"))
}

/// `DT_RPATH` comes before `LD_LIBRARY_PATH`.
fn of_rpath(program: &Path, elf: &Elf) -> Option<CliError> {
    let origin = program.canonicalize().ok()?.parent()?.display().to_string();
    let places = elf.rpath.as_deref()?.split(':').filter(|place| !place.is_empty());
    let places =
        places.map(|place| place.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    let mut files =
        places.flat_map(|place| SONAMES.map(|soname| PathBuf::from(&place).join(soname)));
    let found = files.find(|file| file.exists())?;
    let note = note(format!("{} will not load Warpline's libraries", program.display()));
    let note = note.because(format!("it has {} by its RPATH", found.display()));
    Some(note.hint("run it without --no-preload"))
}
