//! SoftRDMA as a library of its own, for hosts that load it: `libvp_softrdma.so`. The two exported
//! symbols must not be in the crate itself, which programs also link. No state of its own.

vp_api::export_provider!("vp_softrdma", vp_api::Capabilities::all(), softrdma::SoftRdma);
