//! The form of a line of output: its words, without what differs from run to run.

/// The form of a line: numbers, addresses and paths have one each, and blanks do not count.
pub(super) fn form(line: &str) -> String {
    let mut words: Vec<_> = line.split_whitespace().map(word).collect();
    for n in 1..words.len() {
        // A host and its address.
        if words[n].starts_with("(N)") {
            words[n - 1] = "HOST".into();
        }
    }
    words.join(" ")
}

fn word(word: &str) -> String {
    let parts: Vec<_> = word.split('=').map(part).collect();
    parts.join("=")
}

fn part(part: &str) -> String {
    let core = part.trim_start_matches('(').trim_end_matches([')', ',', ';', ':', '.']);
    let number = |c: char| c.is_ascii_hexdigit() || ".:/-%".contains(c);
    let mark = if core.starts_with('/') || core.starts_with("./") {
        "PATH"
    } else if core == "N" || core.chars().all(number) && core.contains(|c: char| c.is_ascii_digit())
    {
        "N"
    } else {
        return part.to_owned();
    };
    part.replacen(core, mark, 1)
}

/// Compares lines with those of a page, in which `...` stands for any number of lines.
pub(super) fn matches(page: &[String], printed: &[&str]) -> Result<(), String> {
    let mut left = printed.iter().map(|line| form(line));
    let mut any = false;
    for line in page.iter().map(|line| form(line)) {
        if line == "..." {
            any = true;
            continue;
        }
        let found = if any {
            left.find(|next| *next == line)
        } else {
            left.next().filter(|next| *next == line)
        };
        found.ok_or_else(|| format!("the page has {line:?} where it prints something else"))?;
        any = false;
    }
    match left.next() {
        Some(more) if !any => Err(format!("the page ends before {more:?}")),
        _ => Ok(()),
    }
}

#[test]
fn forms_keep_words_only() {
    assert_eq!(form("/a/b: 12 octets,  CRC on"), "PATH: N octets, CRC on");
    assert_eq!(form("Read  1.5  beba553b"), "Read N N");
    assert_eq!(
        form("vm (127.0.0.1:7174) from b (10.0.0.1:5): ping=0"),
        "HOST (N) from HOST (N): ping=N"
    );
    let page = ["a 1", "...", "c"].map(str::to_owned);
    assert_eq!(matches(&page, &["a 2", "b", "c"]), Ok(()));
    assert!(matches(&page, &["b", "c"]).is_err() && matches(&page, &["a 1", "c", "d"]).is_err());
}
