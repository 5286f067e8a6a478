//! The calls that post receives, which endpoints of both types and shared receive queues have. No state.

/// Gives a type its calls. `$doc` says what its receives are; `$flight` and `$queue` are where one is
/// remembered and posted.
macro_rules! receives {
    ($type:ty, $doc:literal, $object:ident => $flight:expr, $queue:expr) => {
        impl $type {
            #[doc = $doc]
            /// The memory of a refused one is dropped; [`Self::try_post_recv`] returns it instead.
            pub fn post_recv(&self, local: impl Into<Local>) -> Result<WorkId> {
                Ok(self.try_post_recv(local)?)
            }

            /// As [`Self::post_recv`]; the memory of a refused receive comes back in the error.
            pub fn try_post_recv(&self, local: impl Into<Local>) -> PostResult<Local> {
                self.receive(local.into(), true)
            }

            /// As [`Self::post_recv`], but the completion wakes nobody unless the sender asked for it
            /// ([`crate::Work::solicited`]) or it is a failure.
            pub fn post_recv_quiet(&self, local: impl Into<Local>) -> Result<WorkId> {
                Ok(self.try_post_recv_quiet(local)?)
            }

            /// As [`Self::post_recv_quiet`]; the memory of a refused receive comes back in the error.
            pub fn try_post_recv_quiet(&self, local: impl Into<Local>) -> PostResult<Local> {
                self.receive(local.into(), false)
            }

            fn receive(&self, local: Local, notify: bool) -> PostResult<Local> {
                let $object = self;
                let post = |wrs: &[vp_api::RecvWr<'_>]| $queue.post_recv(wrs);
                $crate::post::receive(&mut $flight, local, notify, post)
            }
        }
    };
}

pub(crate) use receives;
