//! Logs of C programs: to standard error, or to the application (`itw_log_callback`).
//!
//! Set up once, by the first `it_ia_create` or `itw_log_callback`; any thread writes lines. `WARPLINE_LOG`
//! chooses what is logged, else `[log]` of the configuration file, else warnings are. Never in colour:
//! standard error is often a file.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{self, Write, stderr};
use std::sync::{Mutex, Once, PoisonError};

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use ual::config::{Log, LogFormat};

use super::boundary;
use super::status::Status;

/// `itw_log_callback_t`.
type Function = unsafe extern "C" fn(c_int, *const c_char, *mut c_void);

/// The application's function, and what it is to be called with.
#[derive(Clone, Copy)]
struct Callback {
    function: Function,
    /// The application's pointer, of which only the address is kept.
    context: usize,
}

static CALLBACK: Mutex<Option<Callback>> = Mutex::new(None);

fn callback() -> Option<Callback> {
    // Nothing panics while the lock is held.
    *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets up where log lines go, once per process.
pub(crate) fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Log { filter, format } = ual::Config::load().map_or_else(|_| Log::default(), |c| c.log);
        let asked = std::env::var("WARPLINE_LOG").ok().filter(|text| !text.is_empty());
        let text = asked.or(filter).unwrap_or_else(|| "warn".into());
        let filter = EnvFilter::try_new(&text).unwrap_or_else(|error| {
            let _ = writeln!(stderr(), "itapi: the log filter `{text:.100}` is ignored: {error}");
            EnvFilter::new("warn")
        });
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Lines);
        // Refused if the process has a subscriber already, which then gets the lines.
        let _ = match format {
            LogFormat::Text => lines.with_ansi(false).try_init(),
            LogFormat::Json => lines.json().try_init(),
        };
    });
}

/// Makes a writer for each line.
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { level: level(Level::INFO), text: Vec::new() }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Line {
        Line { level: level(*line.level()), text: Vec::new() }
    }
}

/// `itw_log_level_t`.
fn level(level: Level) -> c_int {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// A line, which goes out whole when it is dropped.
struct Line {
    level: c_int,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Some(Callback { function, context }) = callback() else {
            let _ = stderr().write_all(&self.text);
            return;
        };
        let text = String::from_utf8_lossy(&self.text);
        let Ok(text) = CString::new(text.trim_end().replace('\0', " ")) else { return };
        let context = std::ptr::with_exposed_provenance_mut(context);
        // SAFETY: contract of a C caller: the function may be called from any thread until it is
        // taken back; the text lives until it returns.
        unsafe { function(self.level, text.as_ptr(), context) }
    }
}

/// # Safety
/// `function` is NULL, or a function that any thread may call until it is taken back.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_log_callback(
    function: Option<Function>,
    context: *mut c_void,
) -> Status {
    boundary::call(|| {
        let context = context.expose_provenance();
        *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) =
            function.map(|function| Callback { function, context });
        init();
        Ok(())
    })
}
