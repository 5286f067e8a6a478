//! Sixty lookups in one set of rules, and every mistake with its line.

use std::path::Path;

use ual_cm::policy::{Program, Question, RuleRole};

use super::Config;

const RULES: &str = r#"
[[rule]]
match = { peer = "10.1.0.0/16", port = "7000-7099", role = "connect", uid = 1000, exe = "*/mpirun", class = "mpi" }
action = { rate = "8Gbit", dscp = 46, connections = 64, crc = "prefer" }
[[rule]]
match = { peer = "10.1.2.3" }
action = { deny = "retired" }
[[rule]]
match = { peer = "10.0.0.0/8", port = 22 }
action = { deny = "not for RDMA" }
[[rule]]
match = { port = "0-1023", role = "accept" }
action = { deny = "reserved" }
[[rule]]
match = { peer = "fe80::/10" }
action = { local = "off" }
[[rule]]
match = { uid = 0 }
action = { dscp = 8 }
[[rule]]
match = { exe = "/usr/lib/*/store*" }
action = { rate = "200Mbit" }
[[rule]]
match = { class = "batch-*" }
action = { rate = "1Gbit" }
[[rule]]
match = { peer = "::/0", port = "65535" }
action = { crc = "require" }
[[rule]]
match = { peer = "192.0.2.0/25", role = "connect" }
action = { device = ["vp_verbs"] }
"#;

/// Peer, port, role (c, a), uid, exe, class; the rule that matches, from 1; 0: none.
const ASKED: [(&str, u16, char, u32, &str, &str, usize); 60] = [
    ("10.1.0.1", 7000, 'c', 1000, "/usr/bin/mpirun", "mpi", 1),
    ("10.1.255.255", 7099, 'c', 1000, "/mpirun", "mpi", 1),
    ("::ffff:10.1.0.1", 7050, 'c', 1000, "/usr/bin/mpirun", "mpi", 1),
    ("10.1.2.3", 7050, 'c', 1000, "/usr/bin/mpirun", "mpi", 1),
    ("10.1.0.1", 6999, 'c', 1000, "/usr/bin/mpirun", "mpi", 0),
    ("10.1.0.1", 7100, 'c', 1000, "/usr/bin/mpirun", "mpi", 0),
    ("10.1.0.1", 7000, 'a', 1000, "/usr/bin/mpirun", "mpi", 0),
    ("10.1.0.1", 7000, 'c', 1001, "/usr/bin/mpirun", "mpi", 0),
    ("10.1.0.1", 7000, 'c', 1000, "mpirun", "mpi", 0),
    ("10.1.0.1", 7000, 'c', 1000, "/usr/bin/mpirun5", "mpi", 0),
    ("10.1.0.1", 7000, 'c', 1000, "/usr/bin/mpirun", "", 0),
    ("10.1.0.1", 7000, 'c', 1000, "/usr/bin/mpirun", "mpi2", 0),
    ("10.2.0.1", 7000, 'c', 1000, "/usr/bin/mpirun", "mpi", 0),
    ("10.1.0.1", 7000, 'c', 0, "/usr/bin/mpirun", "mpi", 6),
    ("10.1.2.3", 7050, 'a', 1000, "/usr/bin/mpirun", "mpi", 2),
    ("10.1.2.3", 22, 'c', 5, "", "", 2),
    ("10.1.2.3", 0, 'a', 0, "", "", 2),
    ("::ffff:10.1.2.3", 9, 'c', 5, "", "", 2),
    ("10.1.2.2", 9, 'c', 5, "", "", 0),
    ("10.1.2.4", 9, 'c', 5, "", "", 0),
    ("10.255.0.1", 22, 'c', 5, "", "", 3),
    ("10.255.0.1", 22, 'a', 5, "", "", 3),
    ("10.255.0.1", 22, 'c', 0, "/usr/lib/x/store", "batch-1", 3),
    ("11.0.0.1", 22, 'c', 5, "", "", 0),
    ("9.255.255.255", 22, 'c', 5, "", "", 0),
    ("11.0.0.1", 22, 'a', 5, "", "", 4),
    ("10.0.0.1", 23, 'a', 5, "", "", 4),
    ("::1", 1023, 'a', 5, "", "", 4),
    ("::1", 0, 'a', 5, "", "", 4),
    ("::1", 1024, 'a', 5, "", "", 0),
    ("::1", 1023, 'c', 5, "", "", 0),
    ("fe80::1", 1, 'a', 5, "", "", 4),
    ("fe80::1", 1, 'c', 5, "", "", 5),
    ("febf::1", 7000, 'a', 5, "", "", 5),
    ("fec0::1", 7000, 'a', 5, "", "", 0),
    ("fe80::1", 7000, 'c', 0, "/usr/lib/x/store", "batch-1", 5),
    ("fe80::1", 65535, 'c', 5, "", "", 5),
    ("192.0.2.1", 7000, 'c', 0, "", "", 6),
    ("192.0.2.1", 7000, 'a', 0, "/usr/lib/x/store", "batch-1", 6),
    ("::1", 65535, 'c', 0, "", "", 6),
    ("10.9.9.9", 7000, 'a', 0, "", "mpi", 6),
    ("192.0.2.1", 7000, 'c', 5, "/usr/lib/x86/store", "", 7),
    ("192.0.2.1", 7000, 'a', 5, "/usr/lib/a/b/stored", "", 7),
    ("192.0.2.1", 7000, 'c', 5, "/usr/lib/storage/stores-2", "batch-1", 7),
    ("192.0.2.1", 7000, 'a', 5, "/usr/lib/store", "", 0),
    ("192.0.2.1", 7000, 'a', 5, "/usr/local/lib/x/store", "", 0),
    ("198.51.100.1", 7000, 'a', 5, "/usr/bin/x", "batch-1", 8),
    ("198.51.100.1", 7000, 'c', 5, "", "batch-", 8),
    ("192.0.2.1", 7000, 'c', 5, "", "batch-night", 8),
    ("198.51.100.1", 7000, 'c', 5, "", "batch", 0),
    ("198.51.100.1", 7000, 'c', 5, "", "nobatch-1", 0),
    ("::1", 65535, 'c', 5, "", "", 9),
    ("2001:db8::1", 65535, 'a', 5, "", "", 9),
    ("192.0.2.200", 65535, 'a', 5, "", "", 0),
    ("2001:db8::1", 65534, 'a', 5, "", "", 0),
    ("192.0.2.0", 7000, 'c', 5, "", "", 10),
    ("192.0.2.127", 65535, 'c', 5, "", "", 10),
    ("192.0.2.128", 7000, 'c', 5, "", "", 0),
    ("192.0.2.1", 7000, 'a', 5, "", "", 0),
    ("192.0.3.1", 7000, 'c', 5, "", "", 0),
];

#[test]
fn the_first_rule_that_matches_decides() {
    let config = Config::parse(RULES, Path::new("w.toml")).unwrap();
    for (peer, port, role, uid, exe, class, due) in ASKED {
        let program = Program { uid, exe: exe.into(), class: class.into() };
        let role = if role == 'c' { RuleRole::Connect } else { RuleRole::Accept };
        let peer = peer.parse::<std::net::IpAddr>().unwrap().to_canonical();
        let question = Question { peer, port, role, program: &program };
        let met = config.rules.of(&question).map_or(0, |rule| {
            let line: usize = rule.place.strip_prefix("w.toml:").unwrap().parse().unwrap();
            // A rule has three lines; its place is that of `match`.
            line / 3
        });
        assert_eq!(met, due, "{question:?}");
    }
}

#[test]
fn mistakes_have_line_and_column_and_choices() {
    let rule = |matching: &str, action: &str| {
        format!("[[rule]]\nmatch = {{ {matching} }}\naction = {{ {action} }}\n")
    };
    for (text, place, what) in [
        (rule("peer = \"10.0.0.0/33\"", "dscp = 1"), "w.toml:2:18: ", "`ADDRESS/BITS`"),
        (rule("peers = \"::1\"", "dscp = 1"), "w.toml:2:11: ", "`peer`, `port`, `role`"),
        (rule("port = \"7-6\"", "dscp = 1"), "w.toml:2:18: ", "the lower one first"),
        (rule("port = 65536", "dscp = 1"), "w.toml:2:18: ", "from 0 to 65535"),
        (rule("port = [1]", "dscp = 1"), "w.toml:2:18: ", "neither a port"),
        (rule("role = \"listen\"", "dscp = 1"), "w.toml:2:18: ", "`connect` or `accept`"),
        (rule("uid = -1", "dscp = 1"), "w.toml:2:17: ", "-1"),
        (rule("exe = 1", "dscp = 1"), "w.toml:2:17: ", "string"),
        (rule("", "dscp = 64"), "w.toml:3:19: ", "between 0 and 63"),
        (rule("", "rate = \"8GB\""), "w.toml:3:19: ", "Kbit, Mbit or Gbit"),
        (rule("", "rate = 8"), "w.toml:3:19: ", "string"),
        (rule("", "crc = \"on\""), "w.toml:3:18: ", "`require`, `prefer`, `off`, `refuse`"),
        (rule("", "local = \"on\""), "w.toml:3:20: ", "`auto`, `off`, `require`"),
        (rule("", "speed = 1"), "w.toml:3:12: ", "`deny`, `device`, `rate`"),
        (rule("", "device = \"acme\""), "w.toml:3:21: ", "sequence"),
        (rule("", "device = []"), "w.toml:3:10: ", "allows nothing"),
        (rule("", ""), "w.toml:3:10: ", "`connections`"),
        (rule("", "deny = \"x\", dscp = 1"), "w.toml:3:10: ", "keep one"),
        (rule("", "rate = \"1Gbit\", local = \"require\""), "w.toml:3:10: ", "needs TCP"),
        ("[[rule]]\nmatch = {}\naction = \"deny\"\n".into(), "w.toml:3:10: ", "a table, such as"),
        ("[[rule]]\nmatch = {}\n".into(), "w.toml:1:1: ", "`action`"),
        ("[[rule]]\naction = { dscp = 1 }\n".into(), "w.toml:1:1: ", "`match`"),
        ("[[rules]]\n".into(), "w.toml:1:3: ", "`rule`"),
    ] {
        let error = Config::parse(&text, Path::new("w.toml")).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(what), "{text}{error}");
    }
}

// With a scan of the text for each rule this took minutes.
#[test]
fn many_rules_are_loaded() {
    const MANY: usize = 50_000;
    let rule = |n| format!("[[rule]]\nmatch = {{ port = {n} }}\naction = {{ dscp = 1 }}\n");
    let text: String = (0..MANY).map(|n| rule(n % 60_000)).collect();
    let rules = Config::parse(&text, Path::new("w.toml")).unwrap().rules.0;
    assert_eq!(rules.len(), MANY);
    assert_eq!(rules[MANY - 1].place, format!("w.toml:{}", 3 * MANY - 1));
}

#[test]
fn a_long_value_is_not_repeated_whole() {
    let long = "x".repeat(1 << 20);
    for text in [
        format!("[policy]\ncrc = \"{long}\""),
        format!("[policy]\n{long} = 1"),
        format!("[[rule]]\nmatch = {{}}\naction = {{ rate = \"{long}\" }}"),
        format!("[[rule]]\nmatch = {{ port = \"{long}\" }}\naction = {{ dscp = 1 }}"),
        format!("[log]\nformat = \"{long}\""),
        format!("[providers]\nwrap = [\"{long}\"]"),
        format!("[policy.peers.\"{long}\"]\ncrc = \"off\""),
        long,
    ] {
        let error = Config::parse(&text, Path::new("w.toml")).unwrap_err().to_string();
        assert!(error.len() < 1500, "{error:.2000}");
    }
}
