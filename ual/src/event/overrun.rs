//! The error text of an overrun dispatcher: which one, its depth, whose completions, and what to do. No
//! state; off the data path.

use vp_api::{VpError, VpStatus};

use super::Evd;
use crate::error::Error;

/// Endpoints that are named; further ones are only counted.
const NAMED: usize = 8;

impl Evd {
    /// `error`, as the provider's queue returned it, with what is known here.
    #[cold]
    pub(super) fn explained(&self, error: Error) -> Error {
        match (error, self.cq()) {
            (Error::Verb { attempt, source }, Ok(cq)) if source.status == VpStatus::CqOverrun => {
                let detail = self.overrun(cq.id().0);
                Error::Verb { attempt, source: VpError::new(VpStatus::CqOverrun, detail) }
            }
            (error, _) => error,
        }
    }

    fn overrun(&self, cq: u32) -> String {
        let users = self.ia().directory().completing_in(self);
        let slots: u64 = users.iter().map(|(_, slots)| u64::from(*slots)).sum();
        let mut names: Vec<String> =
            users.iter().take(NAMED).map(|(qp, _)| qp.0.to_string()).collect();
        if users.len() > NAMED {
            names.push(format!("and {} more", users.len() - NAMED));
        }
        let of = if names.is_empty() { "freed since".into() } else { names.join(", ") };
        format!(
            "event dispatcher {} (completion queue {cq}) holds {} completions and got more, so that some \
             were lost and all its connections ended; the endpoints that complete in it (queue pairs {of}) \
             have {slots} work requests in all: make it as deep as that, or give some of them another \
             dispatcher",
            self.tag().get(),
            self.depth(),
        )
    }
}
