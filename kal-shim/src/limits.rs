//! Limits of the process. No state.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on descriptors to the hard one, and returns it; `None`: unlimited. Every
/// connection takes a descriptor, and the usual soft limit is 1,024. For programs, when they start: a
/// library must not change the limits of its process unasked.
pub fn raise_descriptors() -> std::io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        // Containers may forbid any change; then the present limit stays.
        Ok(()) | Err(Errno::PERM) => Ok(getrlimit(Resource::Nofile).current),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let after = raise_descriptors().unwrap();
        assert!(after == before.maximum || after == before.current);
    }
}
