//! Tests of readers with pages of live and dead processes, and with files that are not pages.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use state_page::layout::{DEVICE, DEVICES, DEVICES_AT, MAGIC, SLOT, SLOTS_AT, VERSION};
use state_page::place::{self, Found};
use state_page::place::{Limits, Outcome, Unusable, boot_id, pid_namespace, start_of};
use state_page::read::{LARGEST, Malformed, Page, Unread};

/// A page with `slots` slots, of a process that started at `start`.
fn page(slots: u32, pid: u32, start: u64) -> Vec<u8> {
    let mut octets = vec![0; SLOTS_AT + slots as usize * SLOT];
    let mut put = |at: usize, what: &[u8]| octets[at..at + what.len()].copy_from_slice(what);
    put(0, &MAGIC.to_ne_bytes());
    let halves = [
        VERSION,
        1024,
        DEVICES_AT as u32,
        DEVICE as u32,
        DEVICES as u32,
        SLOTS_AT as u32,
        SLOT as u32,
        slots,
        pid,
        0,
    ];
    for (n, half) in halves.iter().enumerate() {
        put(8 + 4 * n, &half.to_ne_bytes());
    }
    put(48, &start.to_ne_bytes());
    put(56, &pid_namespace().to_ne_bytes());
    for (n, half) in boot_id().iter().enumerate() {
        put(64 + 8 * n, &half.to_ne_bytes());
    }
    for n in 0..slots as usize {
        put(SLOTS_AT + n * SLOT, &2u64.to_ne_bytes());
        put(SLOTS_AT + n * SLOT + 8, &1u32.to_ne_bytes());
        put(SLOTS_AT + n * SLOT + 12, &(n as u32 + 7).to_ne_bytes());
    }
    octets
}

fn of(readings: [Vec<u8>; 3]) -> Result<Page, Malformed> {
    match Page::read(&readings, LARGEST) {
        Ok((page, _)) => Ok(page),
        Err(Unread::Malformed(malformed)) => Err(malformed),
        Err(other) => panic!("{other:?}"),
    }
}

fn thrice(octets: &[u8]) -> Result<Page, Malformed> {
    of([octets.to_vec(), octets.to_vec(), octets.to_vec()])
}

#[test]
fn a_record_that_is_being_changed_is_left_out() {
    let before = page(3, 1, 1);
    let mut after = before.clone();
    let (second, third) = (SLOTS_AT + SLOT, SLOTS_AT + 2 * SLOT);
    after[second] = 4;
    let all = of([before.clone(), before.clone(), after]).unwrap();
    assert_eq!(all.queue_pairs.iter().map(|qp| qp.qp).collect::<Vec<_>>(), [7, 9]);
    assert_eq!(all.changing, 1);
    // Odd: it is being written.
    let mut odd = before;
    odd[third] = 3;
    let all = thrice(&odd).unwrap();
    assert_eq!((all.queue_pairs.len(), all.changing), (2, 1));
}

#[test]
fn malformed_pages_are_named() {
    let good = page(2, 1, 1);
    assert_eq!(thrice(&good).unwrap().queue_pairs.len(), 2);
    let with = |at: usize, half: u32| {
        let mut octets = good.clone();
        octets[at..at + 4].copy_from_slice(&half.to_ne_bytes());
        thrice(&octets).unwrap_err()
    };
    assert_eq!(with(0, 0), Malformed::Magic);
    assert_eq!(with(8, 2), Malformed::Version(2));
    assert!(matches!(with(20, 8), Malformed::Header(_)), "device records too small");
    assert!(matches!(with(32, u32::MAX - 1), Malformed::Header(_)), "slots at an odd place");
    assert!(matches!(with(24, u32::MAX), Malformed::Header(_)), "devices without number");
    assert!(matches!(with(36, u32::MAX), Malformed::Header(_)), "slots without number");
    assert!(matches!(with(36, 3), Malformed::Short { .. }));
    for end in 0..good.len() {
        assert!(thrice(&good[..end]).is_err(), "{end}");
    }
    // Truncated between two readings: records in all of them are valid.
    let [a, b, c] = [good.clone(), good.clone(), good[..SLOTS_AT + SLOT].to_vec()];
    assert_eq!(of([a, b, c]).unwrap().queue_pairs.len(), 1);
}

#[test]
fn a_later_layout_that_appends_is_read() {
    let mut octets = page(0, 1, 1);
    let slot = SLOT as u32 + 64;
    octets[32..36].copy_from_slice(&slot.to_ne_bytes());
    octets[36..40].copy_from_slice(&2u32.to_ne_bytes());
    for qp in [5u32, 6] {
        let mut record = vec![0xaa; slot as usize];
        record[..SLOT].fill(0);
        record[..8].copy_from_slice(&2u64.to_ne_bytes());
        record[8..12].copy_from_slice(&1u32.to_ne_bytes());
        record[12..16].copy_from_slice(&qp.to_ne_bytes());
        octets.extend(record);
    }
    let page = thrice(&octets).unwrap();
    assert_eq!(page.queue_pairs.iter().map(|qp| qp.qp).collect::<Vec<_>>(), [5, 6]);
}

/// Of a program from before a field was appended.
#[test]
fn an_earlier_layout_is_read() {
    let mut octets = page(0, 1, 1);
    octets[32..36].copy_from_slice(&256u32.to_ne_bytes());
    octets[36..40].copy_from_slice(&2u32.to_ne_bytes());
    for qp in [5u32, 6] {
        let mut record = vec![0; 256];
        record[..8].copy_from_slice(&2u64.to_ne_bytes());
        record[8..12].copy_from_slice(&1u32.to_ne_bytes());
        record[12..16].copy_from_slice(&qp.to_ne_bytes());
        octets.extend(record);
    }
    let page = thrice(&octets).unwrap();
    let read = page.queue_pairs.iter().map(|qp| (qp.qp, qp.note.as_str())).collect::<Vec<_>>();
    assert_eq!(read, [(5, ""), (6, "")]);
}

/// A directory for one test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("pages-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, octets: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, octets).unwrap();
        path
    }

    fn pages(&self) -> Vec<(String, Outcome)> {
        self.pages_within(&mut { Limits::ALL })
    }

    fn pages_within(&self, limits: &mut Limits) -> Vec<(String, Outcome)> {
        let uid = rustix::process::geteuid().as_raw();
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let found = place::pages(&self.0, uid, None, limits).unwrap();
        found.into_iter().map(|f| (name(f.path), f.outcome)).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pages(path: &Path, uid: u32) -> Result<Vec<Found>, Unusable> {
    place::pages(path, uid, None, &mut { Limits::ALL })
}

fn hold(path: &Path) -> File {
    let file = File::open(path).unwrap();
    flock(file.as_fd(), FlockOperation::LockExclusive).unwrap();
    file
}

#[test]
fn pages_of_dead_processes_are_removed_with_their_sockets() {
    let dir = Dir::new();
    let own = std::process::id();
    let start = start_of(own).unwrap();
    let alive = dir.put(&format!("{own}.state"), &page(1, own, start));
    let reused = dir.put("2.state", &page(1, own, start - 1));
    dir.put("3.state", &page(1, own, start));
    dir.put("3.sock", b"");
    dir.put("other", b"");
    let _holds = [hold(&alive), hold(&reused)];
    let found = dir.pages();
    let outcome = |name: &str| &found.iter().find(|(of, _)| of == name).unwrap().1;
    let alive = format!("{own}.state");
    assert!(matches!(outcome(&alive), Outcome::Alive(page) if page.queue_pairs.len() == 1));
    assert!(matches!(outcome("2.state"), Outcome::Removed), "{found:?}");
    assert!(matches!(outcome("3.state"), Outcome::Removed), "{found:?}");
    let mut left: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [&*alive, "other"]);
}

/// What the file system and the header promise may be more than anybody wants to read.
#[test]
fn no_more_is_read_than_the_header_counts_and_the_limits_allow() {
    let dir = Dir::new();
    let own = std::process::id();
    let octets = page(2, own, start_of(own).unwrap());
    let long = dir.put(&format!("{own}.state"), &octets);
    let _long = hold(&long);
    File::options().write(true).open(&long).unwrap().set_len(1 << 40).unwrap();
    let mut limits = Limits { octets: octets.len() as u64, ..Limits::ALL };
    assert!(matches!(&dir.pages_within(&mut limits)[0].1, Outcome::Alive(_)));
    assert_eq!(limits, Limits { octets: 0, pages: Limits::ALL.pages - 1 });
    let found = dir.pages_within(&mut limits);
    let all = octets.len() as u64;
    assert!(
        matches!(found[0].1, Outcome::Skipped { octets, left: 0 } if octets == all),
        "{found:?}"
    );
    // Two names are one too many.
    dir.put("99.state", b"");
    let mut limits = Limits { pages: 1, ..Limits::ALL };
    let found = dir.pages_within(&mut limits);
    assert!(matches!(found[1].1, Outcome::More) && found.len() == 2, "{found:?}");
    // Gaps of a file that says that it has a million queue pairs.
    let many = (LARGEST / SLOT as u64) as u32 - 100;
    let mut header = octets[..SLOTS_AT].to_vec();
    header[36..40].copy_from_slice(&many.to_ne_bytes());
    fs::write(&long, header).unwrap();
    File::options().write(true).open(&long).unwrap().set_len(1 << 40).unwrap();
    let mut limits = Limits::OF_USER;
    let found = dir.pages_within(&mut limits);
    let is_skipped = |(_, of): &(String, Outcome)| matches!(of, Outcome::Skipped { .. });
    assert!(found.iter().any(is_skipped) && limits.octets == Limits::OF_USER.octets, "{found:?}");
}

#[test]
fn only_files_with_names_of_pages_are_touched() {
    let dir = Dir::new();
    for name in
        ["docker.state", "07.state", "+7.state", "7.x.state", "7.0.1.state", ".state", "7state"]
    {
        dir.put(name, b"");
    }
    dir.put("docker.sock", b"");
    assert!(dir.pages().is_empty());
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 8);
}

/// It claims to be of another process than its name says.
#[test]
fn a_page_with_the_name_of_another_process_is_foreign() {
    let dir = Dir::new();
    let own = std::process::id();
    let page = dir.put("1.state", &page(1, own, start_of(own).unwrap()));
    let _hold = hold(&page);
    assert!(matches!(dir.pages()[..], [(_, Outcome::Foreign)]));
}

#[test]
fn links_pipes_and_malformed_files_are_reported() {
    let dir = Dir::new();
    let target = dir.put("target", b"");
    symlink(&target, dir.0.join("1.state")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.0.join("2.state"), 0o600.into()).unwrap();
    let scribbled = dir.put("3.state", &[0x55; 40_000]);
    let _hold = hold(&scribbled);
    fs::create_dir(dir.0.join("4.state")).unwrap();
    let found = dir.pages();
    assert!(matches!(found[0].1, Outcome::Foreign), "{found:?}");
    assert!(matches!(found[1].1, Outcome::Foreign), "{found:?}");
    assert!(matches!(found[2].1, Outcome::Malformed(Malformed::Magic)), "{found:?}");
    assert!(matches!(found[3].1, Outcome::Foreign), "{found:?}");
    assert!(target.exists());
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let dir = Dir::new();
    let uid = rustix::process::geteuid().as_raw();
    assert!(matches!(pages(&dir.0, uid + 1), Err(Unusable::Owner(_))));
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(pages(&dir.0, uid), Err(Unusable::Mode(0o750))));
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o700)).unwrap();
    let link = dir.0.join("link");
    symlink(&dir.0, &link).unwrap();
    assert!(matches!(pages(&link, uid), Err(Unusable::NoDirectory)));
    assert!(matches!(pages(&dir.0.join("none"), uid), Err(Unusable::Os(_))));
}
