//! Manifests and search paths: which provider libraries the administrator and the user name. Reads
//! files; loads nothing.
//!
//! A manifest is a file `providers.d/*.toml` beside a configuration file:
//!
//! ```toml
//! name = "acme"                          # as in its descriptor
//! library = "/usr/lib/acme/libacme.so"   # absolute
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::Providers;
use crate::config::text::{self, Places};

/// A named library, or what is wrong with how it was named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    /// The provider's name, or the file's if that is not known.
    pub(super) name: String,
    /// Where the name was found: the library, or the manifest that cannot be read.
    pub(super) place: PathBuf,
    /// Why it cannot be used.
    pub(super) fault: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    library: PathBuf,
}

/// Everything named, in the order of preference: configuration, environment, manifests. Of two libraries
/// with one name the first is used; the others have a fault that names it.
pub(super) fn named(config: &Providers) -> Vec<Named> {
    let keys = config.libraries.iter().map(|(name, path)| library(name.clone(), path.clone()));
    let paths = config.search.iter().flat_map(|path| search(path));
    let mut all: Vec<Named> = Vec::new();
    for mut one in keys.chain(paths) {
        let first = all.iter().find(|n| n.fault.is_none() && n.name == one.name);
        if let (Some(first), None) = (first, &one.fault) {
            if first.place == one.place {
                continue;
            }
            let place = first.place.display();
            one.fault = Some(format!("{place} was named before it for the same name"));
        }
        all.push(one);
    }
    all
}

fn library(name: String, place: PathBuf) -> Named {
    let fault = match place.is_absolute() {
        true => None,
        false => Some("the library's path is not absolute".to_owned()),
    };
    Named { name, place, fault }
}

/// A directory of manifests, or a library. A directory `providers.d` may be missing.
fn search(path: &Path) -> Vec<Named> {
    let name = path.file_name().unwrap_or_default();
    if path.is_file() || !path.is_absolute() || name.to_string_lossy().contains(".so") {
        return vec![library(stem(path), path.to_owned())];
    }
    let mut files: Vec<PathBuf> = match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(why) if why.kind() == ErrorKind::NotFound && name == "providers.d" => Vec::new(),
        Err(why) => {
            let fault = Some(format!("{} cannot be read: {why}", path.display()));
            return vec![Named { name: stem(path), place: path.to_owned(), fault }];
        }
    };
    files.retain(|file| file.extension().is_some_and(|e| e == "toml"));
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// `libacme.so.1` counts as provider `acme` until its descriptor is read.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split(".so").next().unwrap_or_default().trim_end_matches(".toml");
    stem.strip_prefix("lib").unwrap_or(stem).to_owned()
}

fn read(file: &Path) -> Named {
    let manifest = text::read(file).and_then(|text| {
        toml::from_str::<Manifest>(&text).map_err(|e| {
            let (line, column) = Places::new(&text).at(e.span().map_or(0, |span| span.start));
            format!("line {line}, column {column}: {}", text::shortened(e.message()))
        })
    });
    match manifest {
        Ok(manifest) => library(manifest.name, manifest.library),
        Err(why) => Named {
            name: stem(file),
            place: file.to_owned(),
            fault: Some(format!("the manifest cannot be read: {why}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> PathBuf {
        let dir = std::env::temp_dir().join(format!("warpline-manifests-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_first_of_a_name_counts_and_mistakes_are_reported() {
        let dir = scratch();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        write("10-acme.toml", "name = \"acme\"\nlibrary = \"/a/libacme.so\"\n");
        write("20-again.toml", "name = \"acme\"\nlibrary = \"/b/libacme.so\"\n");
        write("30-odd.toml", "name = \"odd\"\nlibary = \"/c.so\"\n");
        write("40-relative.toml", "name = \"rel\"\nlibrary = \"rel.so\"\n");
        write("notes.txt", "not a manifest");
        write("50-empty.toml", "");
        std::fs::create_dir_all(dir.join("60-dir.toml")).unwrap();
        std::fs::write(dir.join("70-octets.toml"), [0xff, 0xfe]).unwrap();
        let mut config = Providers { search: vec![dir.clone()], ..Providers::default() };
        config.libraries.insert("mine".into(), "/m.so".into());
        config.search.push("/d/libother.so".into());
        config.search.push("/d/libversioned.so.1.2".into());
        config.search.push("near/libnear.so".into());
        // A file counts as a library whatever its name; so does a path that is not absolute.
        config.search.push(dir.join("notes.txt"));
        config.search.push("near/plain".into());
        config.search.push("/nonexistent/somewhere".into());
        config.search.push("/nonexistent/providers.d".into());
        let found = named(&config);
        let faults = |name: &str| {
            let all = found.iter().filter(|n| n.name == name);
            all.map(|n| n.fault.clone().unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(found[0].name, "mine");
        assert_eq!(faults("acme")[0], "");
        assert!(faults("acme")[1].contains("/a/libacme.so was named before"));
        assert!(faults("30-odd")[0].contains("line 2, column 1: unknown field `libary`"));
        assert!(faults("rel")[0].contains("not absolute"));
        assert_eq!((faults("other"), faults("versioned")), (vec!["".into()], vec!["".into()]));
        assert_eq!(faults("notes.txt"), [""]);
        assert!(faults("plain")[0].contains("not absolute"));
        assert!(faults("near")[0].contains("not absolute"));
        assert!(faults("somewhere")[0].contains("cannot be read: No such file"));
        assert!(faults("providers.d").is_empty());
        assert!(faults("50-empty")[0].contains("missing field `name`"), "{found:?}");
        assert!(faults("60-dir")[0].contains("it is a directory"), "{found:?}");
        assert!(faults("70-octets")[0].contains("UTF-8"), "{found:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
