//! What the documentation says in a form that can be checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pods_api::wire::Mask;

use crate::harness::root;

const RULES: &str = "docs/rules.md";
/// The first words of the names of cases.
const CASES: [&str; 15] = [
    "BPF", "CG", "CRI", "GRPC", "KUBE", "MAN", "MASK", "MET", "PID", "PROTO", "SEC", "SOCK", "STAT", "URING",
    "WATCH",
];
/// What the repository is written in.
const EXTENSIONS: [&str; 11] = ["c", "go", "js", "md", "proto", "py", "rs", "service", "sh", "toml", "yaml"];
/// What builds, packages and benchmarks leave behind.
const LEFTOVERS: [&str; 6] = [".git", "artifacts", "corpus", "node_modules", "raw", "target"];

#[test]
fn every_mask_in_the_documentation_is_one() {
    let text = std::fs::read_to_string(root().join("docs/field-masks.md")).unwrap();
    let (_, agents) = text.split_once("## Masks of common agents").expect("the section is there");
    let rows = agents.lines().filter_map(|line| line.strip_prefix("| ")?.split('`').nth(1));
    let masks: Vec<_> = rows.map(|mask| Mask::parse(mask).unwrap()).collect();
    assert!(masks.len() >= 7 && masks.iter().all(|mask| !mask.is_all()), "{masks:?}");
}

/// Whether a word names a rule, such as A.3.14 or D.3.4a, a section of rules, such as A.3, or a case, such as SOCK-5.
fn is_name(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((case, number)) = word.split_once('-') {
        return CASES.contains(&case) && is_number(number);
    }
    let Some((letter, numbers)) = word.split_once('.') else { return false };
    let numbers = numbers.strip_suffix(|last: char| last.is_ascii_lowercase()).unwrap_or(numbers);
    matches!(letter.as_bytes(), [b'A'..=b'F']) && numbers.split('.').all(is_number)
}

/// The names between the first and the last of a range.
fn between(first: &str, last: &str) -> Vec<String> {
    let split = |name: &str| {
        let (head, number) = name.split_at(name.rfind(['.', '-'])? + 1);
        Some((head.to_owned(), number.parse::<u32>().ok()?))
    };
    match (split(first), split(last)) {
        (Some((head, first)), Some((same, last))) if head == same => {
            (first + 1..last).map(|number| format!("{head}{number}")).collect()
        }
        _ => Vec::new(),
    }
}

/// The rules and cases that a text names, each with its line. Lines about an RFC have numbers of their own.
fn citations(text: &str) -> Vec<(usize, String)> {
    let is_of_a_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let lines = text.lines().enumerate().filter(|(_, line)| !line.contains("RFC "));
    let words: Vec<(usize, &str)> = lines
        .flat_map(|(index, line)| {
            line.split(|letter| !is_of_a_word(letter)).map(move |word| (index + 1, word))
        })
        .map(|(line, word)| (line, word.trim_matches('.')))
        .filter(|(_, word)| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for (index, (line, word)) in words.iter().enumerate().filter(|(_, (_, word))| is_name(word)) {
        found.push((*line, (*word).to_owned()));
        if let [(_, "to"), (_, last), ..] = &words[index + 1..] {
            found.extend(between(word, last).into_iter().map(|name| (*line, name)));
        }
    }
    found
}

/// The sources and documents below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let is_in = |names: &[&str], part: Option<&std::ffi::OsStr>| {
            part.and_then(|part| part.to_str()).is_some_and(|part| names.contains(&part))
        };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !is_in(&LEFTOVERS, path.file_name()) {
            files.extend(files_below(&path));
        } else if kind.is_file() && is_in(&EXTENSIONS, path.extension()) {
            files.push(path);
        }
    }
    files
}

#[test]
fn names_of_rules_are_told_from_other_words() {
    let text = "//! rules A.1.3 to A.1.5, C.4 (SOCK-5): \"C.7.6 h\", D.3.4a.\n// RFC 7541 appendix C.1\n\
                x.C.1 UTF-8 CVE-2019-1 A.b G.1.1 CG-*\n//! BPF-2 to\n//! BPF-4).";
    let names: Vec<_> = citations(text).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
    let expected = [
        "1 A.1.3", "1 A.1.4", "1 A.1.5", "1 C.4", "1 SOCK-5", "1 C.7.6", "1 D.3.4a", "4 BPF-2", "4 BPF-3",
        "5 BPF-4",
    ];
    assert_eq!(names, expected);
}

#[test]
fn every_rule_that_is_named_has_a_row_and_every_row_is_named() {
    let page = std::fs::read_to_string(root().join(RULES)).unwrap();
    let mut problems = Vec::new();
    let (mut rows, mut sections) = (BTreeSet::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            sections.extend(heading.split(' ').next().filter(|name| is_name(name)));
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let &["", name, holds, tests, ""] = &cells[..] else { continue };
        if !is_name(name) {
            continue;
        }
        if !rows.insert(name) || holds.is_empty() {
            problems.push(format!("{RULES}: {name} has two rows, or an empty one"));
        }
        let paths = tests.split('`').skip(1).step_by(2);
        let is_missing = |path: &&str| {
            ["pods-api/src", "pods-api/tests", ""].iter().all(|base| !root().join(base).join(path).is_file())
        };
        problems.extend(paths.filter(is_missing).map(|path| format!("{RULES}: {name}: there is no {path}")));
    }

    let mut cited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files_below(root()) {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        if [RULES, file!()].contains(&name) {
            continue;
        }
        for (line, rule) in citations(&std::fs::read_to_string(&file).unwrap()) {
            cited.entry(rule).or_default().push(format!("{name}:{line}"));
        }
    }
    let count: usize = cited.values().map(Vec::len).sum();
    assert!(count > 100 && rows.len() > 100, "{count} citations of {} rows", rows.len());

    for (rule, places) in &cited {
        if !rows.contains(rule.as_str()) && !sections.contains(rule.as_str()) {
            problems.extend(places.iter().map(|place| format!("{place}: {RULES} has no row for {rule}")));
        }
    }
    let is_unused = |name: &&&str| !cited.contains_key(**name);
    problems
        .extend(rows.iter().filter(is_unused).map(|name| format!("{RULES}: nothing names {name} any more")));
    let is_empty = |section: &&&str| !rows.iter().any(|row| row.starts_with(&format!("{section}.")));
    problems.extend(
        sections.iter().filter(is_unused).filter(is_empty).map(|name| format!("{RULES}: {name} is empty")),
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
