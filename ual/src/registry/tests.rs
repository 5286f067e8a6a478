//! Tests of the registry: names, order, libraries that cannot be used.

use super::*;

/// A configuration that names libraries that do not exist.
fn with_libraries(names: &[&str]) -> Config {
    let mut config = Config::default();
    for name in names {
        let place = format!("/nonexistent/lib{name}.so");
        config.providers.libraries.insert((*name).to_owned(), place.into());
    }
    config
}

fn names(ual: &Ual) -> Vec<String> {
    ual.sources.iter().map(|s| s.name().to_owned()).collect()
}

fn loaded(ual: &Ual, name: &str) -> bool {
    let library = |s: &Source| matches!(s, Source::Library(l) if l.name == name && l.is_loaded());
    ual.sources.iter().any(library)
}

#[test]
fn only_needed_libraries_are_loaded() {
    let ual = Ual::with_config(with_libraries(&["acme"]));
    ual.open(vp_softrdma::NAME).unwrap();
    assert!(!loaded(&ual, "acme"));
    assert!(ual.open("acme").is_err());
    assert!(loaded(&ual, "acme"));
}

#[test]
fn an_unusable_library_reports_why_and_affects_no_other() {
    let ual = Ual::with_config(with_libraries(&["acme", vp_softrdma::NAME]));
    let listing = ual.providers();
    let acme = listing.iter().find(|p| p.name == "acme").unwrap();
    let why = acme.devices.as_ref().unwrap_err();
    assert!(why.reason.contains("/nonexistent/libacme.so: cannot be loaded"), "{why}");
    assert_eq!(acme.library.as_deref(), Some(std::path::Path::new("/nonexistent/libacme.so")));
    // The built-in provider of the same name is used.
    ual.open(vp_softrdma::NAME).unwrap();
    ual.open_any().unwrap();
    match ual.open("acme").err().unwrap() {
        Error::Unavailable { provider, .. } => assert_eq!(provider, "acme"),
        other => panic!("{other}"),
    }
}

#[test]
fn the_order_is_the_configured_one() {
    let mut config = with_libraries(&["acme", "zeta", vp_softrdma::NAME]);
    let ual = Ual::with_config(config.clone());
    // A library before the built-in provider of its name, the others after.
    assert_eq!(names(&ual)[..2], [vp_softrdma::NAME, vp_softrdma::NAME]);
    assert_eq!(names(&ual).last().map(String::as_str), Some("zeta"));
    config.providers.order = vec!["zeta".into(), "acme".into()];
    assert_eq!(names(&Ual::with_config(config.clone()))[..2], ["zeta", "acme"]);
    config.providers.disabled = vec!["zeta".into(), vp_softrdma::NAME.into()];
    let ual = Ual::with_config(config);
    // Listed as disabled, not loaded, and not used.
    assert_eq!(names(&ual)[..2], ["zeta", "acme"]);
    for name in ["zeta", vp_softrdma::NAME] {
        let Error::Unavailable { why, .. } = ual.open(name).err().unwrap() else {
            panic!("{name}")
        };
        assert_eq!(why.reason, "the configuration disables it");
    }
    let listing = ual.providers();
    let is_off =
        |p: &&ProviderListing| p.devices.as_ref().is_err_and(|w| w.reason.contains("disab"));
    // Both the library and the built-in provider of a name are disabled.
    assert_eq!(listing.iter().filter(is_off).count(), 3);
}

/// A device without authentication is no choice of anybody who did not name it.
#[test]
fn roce_is_opened_only_by_name() {
    let mut config = Config::default();
    config.providers.disabled = vec![vp_softrdma::NAME.into(), "vp_verbs".into()];
    let provider = |ia: Arc<Ia>| ia.provider().to_owned();
    let ual = Ual::with_config(config.clone());
    assert!(matches!(ual.open_any(), Err(Error::NoDevice { .. })));
    assert_eq!(provider(ual.open(vp_roce::NAME).unwrap()), vp_roce::NAME);
    config.providers.order = vec![vp_roce::NAME.into()];
    assert_eq!(provider(Ual::with_config(config).open_any().unwrap()), vp_roce::NAME);
}

#[test]
fn a_listing_by_place_is_that_of_all() {
    let ual = Ual::with_config(with_libraries(&["acme"]));
    let all: Vec<_> = ual.providers().into_iter().map(|p| (p.name, p.library)).collect();
    let by_place = (0..).map_while(|at| ual.list_at(at)).map(|p| (p.name, p.library));
    assert!(by_place.eq(all));
    assert_eq!(*ual.config(), with_libraries(&["acme"]));
}
