//! The state page and the socket of this process, and the adapters shown in them.
//!
//! Owner: the adapters. A lock, held for a few instructions, protects the list of adapters.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use kal_os::fork::PerProcess;
use kal_os::lock;
use kal_shim::fork::Host;
use kal_shim::questions::Questions;
use kal_shim::state_file::{StateError, StateFile};
use state_page::layout::change;
use state_page::{DeviceRef, SlotRef, place};
use ual_cm::ExtraDescriptor;

use super::Names;
use super::answers;
use super::rnic::ObservedRnic;

/// Page, socket and adapters of this process.
pub(super) struct Process {
    file: StateFile,
    adapters: Mutex<Vec<Weak<ObservedRnic>>>,
    questions: Option<Questions>,
}

impl Process {
    /// The one of this process; creates it if there is none.
    pub(super) fn get() -> Result<Arc<Self>, StateError> {
        static PROCESS: PerProcess<Mutex<Weak<Process>>> = PerProcess::new();
        let mut known = lock(PROCESS.get::<Host>());
        if let Some(process) = known.upgrade() {
            return Ok(process);
        }
        let process = Arc::new(Self::create()?);
        *known = Arc::downgrade(&process);
        Ok(process)
    }

    fn create() -> Result<Self, StateError> {
        let directory =
            place::directory(|name| std::env::var_os(name), kal_shim::state_file::user());
        let file = StateFile::create(&directory, env!("CARGO_PKG_VERSION"))?;
        let questions = Questions::listen(file.directory(), file.socket_name());
        if let Err(error) = &questions {
            tracing::info!("this process has no socket for requests: {error}");
        }
        Ok(Self { file, adapters: Mutex::default(), questions: questions.ok() })
    }

    /// A record for an adapter; `None`: all are taken.
    pub(super) fn device(&self, names: &Names<'_>) -> Option<(u32, DeviceRef)> {
        let (index, record) = self.file.device()?;
        change(&record.generation, || {
            record.used.store(1, Relaxed);
            record.face.store(names.face as u32, Relaxed);
            record.name.set(names.device);
            record.provider.set(names.provider);
        });
        Some((index, record))
    }

    /// A record for a queue pair; `None`: there is no room, and [`Process::forget_unpublished`] follows.
    pub(super) fn slot(&self) -> Option<SlotRef> {
        self.file.slot()
    }

    pub(super) fn forget_unpublished(&self) {
        self.file.forget_unpublished();
    }

    /// The descriptor that connection threads watch.
    pub(super) fn extra_descriptor(self: &Arc<Self>) -> Option<Arc<dyn ExtraDescriptor>> {
        self.questions.as_ref()?;
        let extra: Arc<dyn ExtraDescriptor> = self.clone();
        Some(extra)
    }

    pub(super) fn add(&self, adapter: Weak<ObservedRnic>) {
        let mut adapters = lock(&self.adapters);
        adapters.retain(|known| known.strong_count() > 0);
        adapters.push(adapter);
    }

    /// The adapters that are open.
    pub(super) fn adapters(&self) -> Vec<Arc<ObservedRnic>> {
        lock(&self.adapters).iter().filter_map(Weak::upgrade).collect()
    }
}

impl ExtraDescriptor for Process {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.questions {
            Some(questions) => questions.watched().as_fd(),
            // Never called: there is no extra descriptor then.
            None => self.file.directory(),
        }
    }

    fn on_ready(&self) {
        if let Some(questions) = &self.questions {
            questions.serve(|question| answers::answer(self, &question));
        }
    }
}
