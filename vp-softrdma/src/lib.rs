//! vp-softrdma
