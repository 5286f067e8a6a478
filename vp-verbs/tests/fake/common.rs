//! Test fixtures: the test double of rdma-core, and commands to it.

use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libloading::Library;
use vp_verbs::{Libraries, Machine, Verbs};

/// A longer wait counts as a hang.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// Its state is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The stand-in, loaded once more to give it orders.
pub(crate) struct Fake {
    library: Library,
    _alone: MutexGuard<'static, ()>,
}

fn path() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a program");
    exe.with_file_name("libfake_verbs.so")
}

impl Fake {
    pub(crate) fn new() -> Self {
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: ours; its initialisers do nothing.
        let library = unsafe { Library::new(path()) }.expect("cargo builds the stand-in");
        let fake = Self { library, _alone: alone };
        fake.reset();
        fake
    }

    pub(crate) fn provider(&self) -> Verbs {
        let files = std::env::temp_dir().join(format!("warpline-fake-{}", std::process::id()));
        let machine = Machine { sys: files.join("sys"), dev: files.join("dev") };
        let dir = machine.dev.join("infiniband");
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        for file in ["uverbs0", "uverbs1", "rdma_cm"] {
            std::fs::write(dir.join(file), "").expect("a temporary file");
        }
        Verbs::with(Libraries { verbs: path(), rdmacm: path() }, machine)
    }

    fn call<T>(&self, name: &str) -> T
    where
        T: Copy,
    {
        // SAFETY: the caller names the type of the function in `control`.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.expect("it is there")
    }

    pub(crate) fn reset(&self) {
        self.call::<extern "C" fn()>("fake_reset")();
    }

    pub(crate) fn hide(&self, hidden: bool) {
        self.call::<extern "C" fn(c_int)>("fake_hide")(hidden.into());
    }

    pub(crate) fn play_siw(&self) {
        self.call::<extern "C" fn()>("fake_play_siw")();
    }

    pub(crate) fn status(&self, status: u32) {
        self.call::<extern "C" fn(u32)>("fake_status")(status);
    }

    pub(crate) fn raise(&self, kind: u32) {
        self.call::<extern "C" fn(u32)>("fake_async")(kind);
    }

    pub(crate) fn cm_event(&self, kind: u32, status: c_int) {
        self.call::<extern "C" fn(u32, c_int)>("fake_cm_event")(kind, status);
    }

    pub(crate) fn alive(&self) -> usize {
        self.call::<extern "C" fn() -> usize>("fake_alive")()
    }

    pub(crate) fn fail(&self, function: &str, after: u32, errno: c_int) {
        let name = CString::new(function).expect("a name");
        let order = self.call::<extern "C" fn(*const c_char, u32, c_int)>("fake_fail");
        order(name.as_ptr(), after, errno);
    }
}

/// A fault that ends with this value.
pub(crate) struct Failing<'a>(&'a Fake, &'a str);

impl<'a> Failing<'a> {
    pub(crate) fn new(fake: &'a Fake, function: &'a str, errno: c_int) -> Self {
        Self::after(fake, function, 0, errno)
    }

    /// After so many calls.
    pub(crate) fn after(fake: &'a Fake, function: &'a str, calls: u32, errno: c_int) -> Self {
        fake.fail(function, calls, errno);
        Self(fake, function)
    }
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.fail(self.1, 0, 0);
    }
}
