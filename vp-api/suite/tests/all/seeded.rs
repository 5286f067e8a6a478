//! The suite detects each seeded fault, by a case that checks the promise which the fault breaks,
//! and says which promise it is. Without a fault it passes.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vp_api::{Provider, import};
use vp_roce::Roce;
use vp_softrdma::SoftRdma;
use vp_verbs::{Libraries, Machine, Verbs};
use warpline_provider::{Reporter, Suite, Verdict};
use warpline_seeded::{Base, Fault, seed};

use crate::build;
use crate::play::suite;
use crate::roce::is_alone;

/// What does not come within this time is missing; many faults are of that kind.
const WAIT: Duration = Duration::from_secs(1);

/// Faults tested at a time: most of them wait.
const AT_ONCE: usize = 24;

fn native() -> Arc<dyn Provider> {
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    let libraries = Libraries { verbs: fake.clone(), rdmacm: fake };
    Arc::new(Verbs::with(libraries, Machine::default()))
}

fn base(base: Base) -> (Arc<dyn Provider>, Option<&'static str>) {
    match base {
        Base::Native | Base::NativeTables => (native(), Some("fakeib0")),
        Base::Stream | Base::Tables => (Arc::new(SoftRdma), None),
        Base::Path | Base::PathTables => (Arc::new(Roce), None),
    }
}

#[derive(Default)]
struct Failures {
    cases: Vec<String>,
    played: usize,
}

impl Reporter for Failures {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        self.played += usize::from(!matches!(verdict, Verdict::Skipped(_)));
        if let Verdict::Failed(why) = verdict {
            self.cases.push(format!("{case}: {why}"));
        }
    }
}

/// What is wrong with the suite, if it does not see the fault.
fn unseen(fault: Fault) -> Option<String> {
    let (provider, device) = base(fault.base());
    unseen_in(&seed(provider, Some(fault)), device, fault)
}

fn unseen_in(provider: &Arc<dyn Provider>, device: Option<&str>, fault: Fault) -> Option<String> {
    let mut failures = Failures::default();
    Suite::on(device).keeping(fault.id()).waiting(WAIT).run(provider, &mut failures);
    let cited = format!("[{}]", fault.id());
    match failures.cases.iter().any(|why| why.contains(&cited)) {
        true => None,
        false => {
            let (id, played) = (fault.id(), failures.played);
            Some(format!("{fault:?} breaks {id}, and none of {played} cases says so"))
        }
    }
}

/// As a library, which is loaded: every ninth fault, and none.
#[test]
fn seeded_faults_are_seen_in_a_library_that_is_loaded() {
    let library = build::cargo("warpline-seeded", "warpline_seeded");
    let layer = import::Layer::load(&library).unwrap();
    let linked = Fault::ALL
        .iter()
        .copied()
        .filter(|fault| !fault.base().is_tables() && !fault.base().is_by_path());
    for fault in linked.step_by(9) {
        let (provider, device) = base(fault.base());
        let provider = layer.wrap(provider, &format!("{fault:?}")).unwrap();
        assert_eq!(unseen_in(&provider, device, fault), None);
    }
    let why = layer.wrap(Arc::new(SoftRdma), "NoSuchFault").err().unwrap();
    assert!(why.to_string().contains("no fault `NoSuchFault`"), "{why}");
    let whole = layer.wrap(Arc::new(SoftRdma), "").unwrap();
    suite("vp_softrdma in the seeded library", &whole, None);
}

/// Set in the child: where the library of seeded faults is.
const CHILD: &str = "WARPLINE_TEST_SEEDED_LIBRARY";

/// What the layer says in a process of its own with this variable.
fn in_the_environment(library: &Path, value: Option<&OsStr>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "seeded::the_environment_chooses_the_fault", "--nocapture"]);
    command.env(CHILD, library).env_remove("WARPLINE_SEEDED");
    if let Some(value) = value {
        command.env("WARPLINE_SEEDED", value);
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    printed
}

/// In the child: whether `CloseIsLost` is there.
fn chosen(library: &Path) -> String {
    match import::Layer::load(library).unwrap().wrap(Arc::new(SoftRdma), "") {
        Err(why) => why.to_string(),
        Ok(layer) => match unseen_in(&layer, None, Fault::CloseIsLost) {
            None => "chosen: CloseIsLost".into(),
            Some(_) => "chosen: none".into(),
        },
    }
}

#[test]
fn the_environment_chooses_the_fault() {
    if let Some(library) = std::env::var_os(CHILD) {
        return println!("{}", chosen(library.as_ref()));
    }
    let library = build::cargo("warpline-seeded", "warpline_seeded");
    for (value, expected) in [
        (None, "chosen: none"),
        (Some("CloseIsLost"), "chosen: CloseIsLost"),
        (Some(""), "WARPLINE_SEEDED has no name of a fault: name one, or unset it"),
        (Some(" , "), "WARPLINE_SEEDED has no name of a fault"),
        (Some("closeIsLost"), "WARPLINE_SEEDED: there is no fault `closeIsLost`"),
        (
            Some("CloseIsLost,NoPort"),
            "WARPLINE_SEEDED names 2 faults, one is played at a time: `CloseIsLost,NoPort`",
        ),
        (Some("NoPort ListedTwice NoSuchFault"), "names 3 faults"),
    ] {
        let printed = in_the_environment(&library, value.map(OsStr::new));
        assert!(printed.contains(expected), "{value:?}: {printed}");
    }
    let no_text = in_the_environment(&library, Some(OsStr::from_bytes(b"Close\xff")));
    assert!(no_text.contains("WARPLINE_SEEDED is no text"), "{no_text}");
    let layer = import::Layer::load(&library).unwrap();
    let two = layer.wrap(Arc::new(SoftRdma), "NoPort;ListedTwice").err().unwrap();
    assert!(two.to_string().contains("the layer's argument names 2 faults"), "{two}");
}

#[test]
fn each_seeded_fault_is_seen() {
    each_is_seen(|base| !base.is_by_path());
}

/// Bring-up by path is RoCE's, which needs a network of its own.
#[test]
fn each_seeded_fault_of_bring_up_by_path_is_seen() {
    if is_alone("seeded::each_seeded_fault_of_bring_up_by_path_is_seen") {
        each_is_seen(Base::is_by_path);
        suite("vp_roce in the seeded layer", &seed(Arc::new(Roce), None), None);
    }
}

fn each_is_seen(of: impl Fn(Base) -> bool) {
    let left: VecDeque<Fault> =
        Fault::ALL.iter().copied().filter(|fault| of(fault.base())).collect();
    let count = left.len();
    let (left, missed) = (Mutex::new(left), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().pop_front();
                    let Some(fault) = next else { break };
                    let found = unseen(fault);
                    missed.lock().unwrap().extend(found);
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{} of {count}: {missed:#?}", missed.len());
}

/// The wrappers themselves change nothing.
#[test]
fn without_a_fault_it_passes() {
    suite("vp_softrdma in the seeded layer", &seed(Arc::new(SoftRdma), None), None);
    suite("fakeib0 in the seeded layer", &seed(native(), None), Some("fakeib0"));
}

/// Faults of many kinds, none of which the random programs know by name.
const SEEN_BY_PROGRAMS: [Fault; 18] = [
    Fault::SlotFreeTooSoon,
    Fault::UnsignaledFreeTooSoon,
    Fault::DepthUnbounded,
    Fault::SrqSlotFreeTooSoon,
    Fault::SendsDisordered,
    Fault::ReceivesDisordered,
    Fault::FlushedIsSuccess,
    Fault::RecvUnflushed,
    Fault::SendUnflushed,
    Fault::UnsignaledUnflushed,
    Fault::AlwaysSignaled,
    Fault::RecvLengthUnsaid,
    Fault::ReadLengthUnsaid,
    Fault::WriteOffByFour,
    Fault::ScatterBackwards,
    Fault::KeyIgnored,
    Fault::CompletesAfterDestroy,
    Fault::BeyondOrdRefused,
];

/// Whether the random programs alone see a fault.
fn is_seen_by_programs(fault: Fault) -> bool {
    let ((provider, device), names) = (base(fault.base()), ["random programs".to_owned()]);
    let mut failures = Failures::default();
    let suite = Suite::on(device).named(&names).waiting(WAIT).random(WAIT);
    suite.run(&seed(provider, Some(fault)), &mut failures);
    !failures.cases.is_empty()
}

#[test]
fn random_programs_see_faults_of_every_kind() {
    let unseen = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for fault in SEEN_BY_PROGRAMS {
            let unseen = &unseen;
            scope.spawn(move || {
                if !is_seen_by_programs(fault) {
                    unseen.lock().unwrap().push(fault);
                }
            });
        }
    });
    assert_eq!(unseen.into_inner().unwrap(), []);
}
