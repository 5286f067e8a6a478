//! Tests of the page as readers see it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use state_page::place::{Limits, Outcome, pages};
use state_page::read::Page;

use super::*;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("state-file-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn pages(&self) -> Vec<Page> {
        let alive = |outcome| match outcome {
            Outcome::Alive(page) => *page,
            other => panic!("{other:?}"),
        };
        pages(&self.0, user(), None, &mut { Limits::ALL })
            .unwrap()
            .into_iter()
            .map(|found| alive(found.outcome))
            .collect()
    }

    fn names(&self) -> Vec<String> {
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let names = std::fs::read_dir(&self.0).unwrap().map(name);
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn occupy(file: &StateFile, qp: u32) -> SlotRef {
    let slot = file.slot().unwrap();
    layout::change(&slot.generation, || {
        slot.used.store(1, Relaxed);
        slot.qp.store(qp, Relaxed);
    });
    slot
}

#[test]
fn written_records_are_read_while_the_page_grows() {
    let dir = Dir::new();
    let file = StateFile::create(&dir.0, "1.2.3").unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(dir.0.clone()), 0o700);
    assert_eq!(mode(dir.0.join(format!("{}.state", std::process::id()))), 0o600);
    let (index, device) = file.device().unwrap();
    layout::change(&device.generation, || {
        device.used.store(1, Relaxed);
        device.name.set("eth0");
    });
    let slots: Vec<_> = (0..1000).map(|qp| occupy(&file, qp)).collect();
    slots[999].octets_sent.store(77, Relaxed);
    let page = dir.pages().pop().unwrap();
    assert_eq!((page.process.pid, &*page.process.library), (std::process::id(), "1.2.3"));
    assert!(page.process.exe.contains("kal_shim"), "{}", page.process.exe);
    assert_eq!((page.devices[0].0, &*page.devices[0].1.name), (index, "eth0"));
    let qps: Vec<_> = page.queue_pairs.iter().map(|qp| qp.qp).collect();
    assert_eq!(qps, (0..1000).collect::<Vec<_>>());
    assert_eq!(page.queue_pairs[999].octets_sent, 77);
    drop((slots, device));
    let page = dir.pages().pop().unwrap();
    assert!(page.queue_pairs.is_empty() && page.devices.is_empty());
    drop(file);
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn a_slot_is_reused_after_its_last_user_releases_it() {
    let dir = Dir::new();
    let file = StateFile::create(&dir.0, "").unwrap();
    let first = occupy(&file, 1);
    let second_user = first.clone();
    first.octets_sent.store(5, Relaxed);
    drop(first);
    let other = occupy(&file, 2);
    assert!(!std::ptr::eq(&*other, &*second_user));
    let place = &raw const *second_user;
    let generation = second_user.generation.load(Relaxed);
    drop(second_user);
    let third = occupy(&file, 3);
    assert!(std::ptr::eq(&*third, place));
    assert!(third.generation.load(Relaxed) > generation);
    assert_eq!(third.octets_sent.load(Relaxed), 0);
}

#[test]
fn copies_of_the_library_have_pages_of_their_own() {
    let dir = Dir::new();
    let files: Vec<_> = (0..COPIES).map(|_| StateFile::create(&dir.0, "").unwrap()).collect();
    assert!(matches!(StateFile::create(&dir.0, ""), Err(StateError::Copies)));
    assert_eq!(dir.pages().len(), files.len());
    let (_, first) = files[0].device().unwrap();
    let mut more: Vec<_> = (1..DEVICES).map(|_| files[0].device().unwrap()).collect();
    assert!(files[0].device().is_none());
    drop(first);
    more.push(files[0].device().unwrap());
    drop((more, files));
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn the_page_of_a_killed_predecessor_is_replaced() {
    let dir = Dir::new();
    let pid = std::process::id();
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o700)).unwrap();
    let scratch = format!(".{pid}.{:x}.new", &raw const LIVE as usize);
    for name in [format!("{pid}.state"), scratch] {
        std::fs::write(dir.0.join(name), "old").unwrap();
    }
    let _file = StateFile::create(&dir.0, "").unwrap();
    assert_eq!(dir.names(), [format!("{pid}.state")]);
    assert_eq!(dir.pages().len(), 1);
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let dir = Dir::new();
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o755)).unwrap();
    let error = StateFile::create(&dir.0, "").err().unwrap().to_string();
    assert!(error.contains(&*dir.0.to_string_lossy()) && error.contains("755"), "{error}");
    let below = dir.0.join("a/b");
    let error = StateFile::create(&below, "").err().unwrap().to_string();
    assert!(error.starts_with("make the directory"), "{error}");
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn a_forked_child_does_not_write_to_the_page() {
    let dir = Dir::new();
    let file = StateFile::create(&dir.0, "").unwrap();
    let slot = occupy(&file, 1);
    slot.octets_sent.store(5, Relaxed);
    // SAFETY: the child makes no allocation and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        slot.octets_sent.store(6, Relaxed);
        drop((slot, file));
        // SAFETY: it ends the child, without handlers of the test.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: our child, and a place for its status.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(slot.octets_sent.load(Relaxed), 5);
    assert_eq!(dir.pages().pop().unwrap().queue_pairs[0].octets_sent, 5);
}
