//! vp-api
