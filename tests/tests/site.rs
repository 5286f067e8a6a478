//! The documentation site in a browser, at the widths of a desktop and of a phone: no page is wider than its window.
//!
//! Screenshots of the first pages stay in `target/site/screenshots`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use warpline_artifacts::root;
use warpline_skip::{missing, skip};

const TEST: &str = "no_page_is_wider_than_its_window";
/// Width and height of the windows.
const WINDOWS: [(u32, u32); 2] = [(1280, 1600), (390, 1400)];
/// Pages that are kept as pictures.
const PICTURES: [&str; 6] =
    ["index", "first-steps", "choosing", "channels", "concepts", "installing"];

fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}

/// Output of a browser without a window.
fn browse(arguments: &[&str], home: &Path) -> String {
    let mut browser = Command::new("timeout");
    browser.args(["120", "chromium", "--headless=new", "--disable-gpu", "--hide-scrollbars"]);
    // The pages are our own files, and a page may look into another.
    browser.args(["--no-sandbox", "--disable-web-security", "--allow-file-access-from-files"]);
    browser.arg(format!("--user-data-dir={}", home.display())).args(arguments);
    let output = browser.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Chapters of the book.
fn chapters(book: &Path) -> Vec<String> {
    let names = std::fs::read_dir(book).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".html")?.to_owned()));
    let mut names: Vec<_> =
        names.filter(|name| !["print", "404", "toc"].contains(&&**name)).collect();
    names.sort();
    names
}

/// Writes how far the content of a frame extends; what scrolls by itself, as tables do, counts as wide as it is shown.
const MEASURE: &str = "<script>
function scrolls(element, view) {
    return element.tagName != 'MAIN' && (/auto|scroll/.test(view.getComputedStyle(element).overflowX)
        || scrolls(element.parentElement, view));
}
function measure(frame) {
    const all = [...frame.contentDocument.querySelectorAll('main *')];
    const fixed = all.filter(element => !scrolls(element, frame.contentWindow));
    const ends = fixed.map(element => {
        const box = element.getBoundingClientRect();
        return box.left + Math.max(box.width, element.scrollWidth);
    });
    frame.title = Math.floor(Math.max(...ends)) + ' wide';
}
</script>
";

/// A page that shows every chapter in a frame of this width.
fn frames(book: &Path, chapters: &[String], width: u32) -> PathBuf {
    let mut page = MEASURE.to_owned();
    for chapter in chapters {
        writeln!(
            page,
            "<iframe name=\"{chapter}\" width=\"{width}\" height=\"800\" style=\"border: 0\" \
             src=\"{chapter}.html\" onload=\"measure(this)\"></iframe>"
        )
        .unwrap();
    }
    let path = book.join(format!("frames-{width}.htm"));
    std::fs::write(&path, page).unwrap();
    path
}

#[test]
fn no_page_is_wider_than_its_window() {
    if !is_there("chromium") {
        return skip(TEST, missing("chromium"));
    }
    if !is_there("mdbook") {
        return skip(TEST, "mdbook is not installed (scripts/setup --site)");
    }
    let site = Command::new(root().join("scripts/site")).arg("--no-api").output().unwrap();
    assert!(site.status.success(), "{}", String::from_utf8_lossy(&site.stderr));
    let site = root().join("target/site");
    let (book, pictures, home) =
        (site.join("book"), site.join("screenshots"), site.join("browser"));
    std::fs::create_dir_all(&pictures).unwrap();
    let chapters = chapters(&book);
    assert!(chapters.len() > 20, "{chapters:?}");
    for (width, height) in WINDOWS {
        let page = format!("file://{}", frames(&book, &chapters, width).display());
        let shown = browse(&["--virtual-time-budget=20000", "--dump-dom", &page], &home);
        for chapter in &chapters {
            let frame = shown
                .split("<iframe ")
                .find(|frame| frame.contains(&format!("name=\"{chapter}\"")));
            let wide = frame
                .and_then(|frame| frame.split("title=\"").nth(1)?.split(' ').next()?.parse().ok());
            let wide: u32 = wide.unwrap_or_else(|| panic!("{chapter} did not load: {shown}"));
            assert!(wide <= width, "{chapter} is {wide} wide in a window of {width}");
        }
        for chapter in PICTURES {
            let picture = pictures.join(format!("{chapter}-{width}.png"));
            let page = format!("file://{}", book.join(format!("{chapter}.html")).display());
            let (file, size) = (
                format!("--screenshot={}", picture.display()),
                format!("--window-size={width},{height}"),
            );
            browse(&[&file, &size, &page], &home);
            assert!(std::fs::metadata(&picture).unwrap().len() > 10_000, "{}", picture.display());
        }
    }
    std::fs::remove_dir_all(home).unwrap();
}
