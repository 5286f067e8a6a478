//! The functions that this library stands in for. No state.

/// Declares the functions, one bit each in what a connection remembers.
macro_rules! names {
    ($($name:ident)*) => {
        /// A function of the C library.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Call { $($name),* }

        /// Their names, with NUL.
        pub(crate) const NAMES: &[&str] = &[$(concat!(stringify!($name), "\0")),*];
    };
}

names! {
    socket accept accept4 connect __connect
    read __read __read_chk readv preadv2 preadv64v2 recv __recv_chk recvfrom __recvfrom_chk recvmsg recvmmsg
    write __write writev pwritev2 pwritev64v2 send __send sendto sendmsg sendmmsg sendfile sendfile64 splice
    poll __poll ppoll __poll_chk __ppoll_chk select __select pselect epoll_ctl
    epoll_create epoll_create1 epoll_wait epoll_pwait epoll_pwait2
    shutdown setsockopt getsockopt ioctl fcntl __fcntl fcntl64
    dup dup2 __dup2 dup3 close __close close_range closefrom fdopen _IO_fdopen
    execve execv execvp execvpe execveat fexecve _exit _Exit syscall
    posix_spawn posix_spawnp posix_spawn_file_actions_adddup2 system popen _IO_popen
}

const _: () = assert!(NAMES.len() <= 128, "a connection has 128 bits for them");

impl Call {
    /// Its name.
    pub(crate) fn name_at(index: usize) -> &'static str {
        NAMES.get(index).map_or("", |name| name.trim_end_matches('\0'))
    }
}
