//! The bridge to rdma-core as a library of its own, for hosts that load it: `libvp_verbs.so`. The two
//! exported symbols must not be in the crate itself, which programs also link. No state of its own.

vp_api::export_provider!("vp_verbs", vp_api::Capabilities::all(), verbs::Verbs::default());
