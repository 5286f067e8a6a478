//! RoCE over UDP as a library of its own, for hosts that load it: `libvp_roce.so`. The two exported
//! symbols must not be in the crate itself, which programs also link. No state of its own.

vp_api::export_provider!("vp_roce", vp_api::Capabilities::all(), roce::Roce);
