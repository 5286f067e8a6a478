//! The calls that post receives, shared by endpoints of both types and shared receive queues. No state.

/// Adds the calls to a type. `$doc` describes its receives; `$flight` stores one, and `$queue` posts it.
macro_rules! receives {
    ($type:ty, $doc:literal, $object:ident => $flight:expr, $queue:expr) => {
        impl $type {
            #[doc = $doc]
            /// The memory of a refused one is dropped; [`Self::try_post_recv`] returns it instead.
            pub fn post_recv(&self, local: impl Into<Local>) -> Result<WorkId> {
                Ok(self.try_post_recv(local)?)
            }

            /// As [`Self::post_recv`]; the error returns the memory of a refused receive.
            pub fn try_post_recv(&self, local: impl Into<Local>) -> PostResult<Local> {
                self.receive(local.into(), true)
            }

            /// As [`Self::post_recv`], but the completion notifies only if the message was solicited
            /// ([`crate::Work::solicited`]) or the receive failed.
            pub fn post_recv_quiet(&self, local: impl Into<Local>) -> Result<WorkId> {
                Ok(self.try_post_recv_quiet(local)?)
            }

            /// As [`Self::post_recv_quiet`]; the error returns the memory of a refused receive.
            pub fn try_post_recv_quiet(&self, local: impl Into<Local>) -> PostResult<Local> {
                self.receive(local.into(), false)
            }

            fn receive(&self, local: Local, notify: bool) -> PostResult<Local> {
                let $object = self;
                let post = |wrs: &[vp_api::RecvWr<'_>]| $queue.post_recv(wrs);
                $crate::post::receive(&mut $flight, local, notify, post, &*$queue)
            }
        }
    };
}

pub(crate) use receives;
