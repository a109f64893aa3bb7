use super::*;

/// The tree as compact JSON, equal keys included.
fn json(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => text.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Map(entries) => {
            let members = entries.iter().map(|entry| format!("{:?}:{}", entry.key, json(&entry.value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
    }
}

#[track_caller]
fn reads(text: impl AsRef<[u8]>, expected: &str) {
    match parse_yaml(text.as_ref()) {
        Ok(node) => assert_eq!(json(&node), expected),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn fails(text: impl AsRef<[u8]>, line: u32, column: u32, message: &str) {
    match parse_yaml(text.as_ref()) {
        Ok(node) => panic!("read as {}", json(&node)),
        Err(error) => {
            assert_eq!((error.line, error.column), (line, column), "{error}");
            assert!(error.message.contains(message), "{error}");
        }
    }
}

/// The JSON value that the plain scalar `text` becomes.
#[track_caller]
fn scalar(text: &str, expected: &str) {
    reads(format!("a: {text}\n"), &format!("{{\"a\":{expected}}}"));
}

#[test]
fn plain_scalars_resolve_as_in_go_yaml_v2() {
    let table = r#"
        yes => true
        Yes => true
        y => true
        on => true
        True => true
        no => false
        N => false
        OFF => false
        FALSE => false
        yEs => "yEs"
        ~ => null
         => null
        Null => null
        nULL => "nULL"
        0 => 0
        -0 => 0
        +5 => 5
        1_000 => 1000
        0x1F => 31
        -0x10 => -16
        0o17 => 15
        017 => 15
        0b101 => 5
        089 => 89
        0_7 => 7
        9223372036854775807 => 9223372036854775807
        18446744073709551615 => 18446744073709551615
        18446744073709551616 => 18446744073709552000
        -9223372036854775809 => -9223372036854776000
        0xFFFFFFFFFFFFFFFFFF => 4722366482869645213695
        +0xFFFFFFFFFFFFFFFFFF => "+0xFFFFFFFFFFFFFFFFFF"
        0777777777777777777777777 => 7.777777777777778e+23
        1.0 => 1
        0.5 => 0.5
        .5 => 0.5
        -.5e-9 => -5e-10
        1e3 => 1000
        1e21 => 1e+21
        1e20 => 100000000000000000000
        1e400 => "1e400"
        1e => "1e"
        . => "."
        1.2.3 => "1.2.3"
        0x => "0x"
        100m => "100m"
        1Gi => "1Gi"
        2001-12-14 => "2001-12-14"
        2001-12-14t21:59:43.10-05:00 => "2001-12-14t21:59:43.10-05:00"
        190:20:30 => "190:20:30"
        10.0.0.1 => "10.0.0.1"
        = => "="
        '5' => "5"
        "yes" => "yes"
        !!str 5 => "5"
        !!int '5' => 5
        !!float 5 => 5
        ! 5 => 5
        !local 5 => "5"
        !!bool "on" => true
        !!null '' => null
    "#;
    for row in table.lines().filter(|row| row.contains("=>")) {
        let (text, expected) = row.split_once("=>").unwrap();
        scalar(text.trim(), expected.trim());
    }
}

#[test]
fn a_value_that_json_cannot_hold_is_refused() {
    fails("a:\n  b: .inf\n", 2, 6, "JSON cannot hold the number");
    fails("a: .NaN\n", 1, 4, "JSON cannot hold the number");
    fails("a: !!int x\n", 1, 4, "does not fit its tag");
    fails("a: !!binary aGk=\n", 1, 4, "!!binary is not taken");
    fails(format!("a: 1{}\n", "0".repeat(400)), 1, 4, "the integer of 401 characters is too large");
}

#[test]
fn keys_become_strings() {
    reads("5: a\non: b\n0x10: c\n'': d\n", r#"{"5":"a","true":"b","16":"c","":"d"}"#);
    fails("a: 1\n~: 2\n", 2, 1, "null cannot be a key");
    fails("? [a]\n: 2\n", 1, 5, "a list or mapping cannot be a key");
    fails("1.5: x\n", 1, 1, "quote it");
}

#[test]
fn equal_keys_stay_and_the_last_counts() {
    // Rule A.2.5.
    let node = parse_yaml(b"a: 1\na: 2\n").unwrap();
    assert_eq!(json(node.get("a").unwrap()), "2");
}

#[test]
fn only_the_first_document_is_read() {
    // Rule A.2.2.
    reads("# comment\n---\na: 1\n---\n\tbroken: [\n", r#"{"a":1}"#);
    reads("a: 1\n...\n%nonsense\n", r#"{"a":1}"#);
    reads("%YAML 1.1\n---\na: 1\n", r#"{"a":1}"#);
    fails("---\n---\na: 1\n", 2, 1, "the first document is empty");
    fails("null\n---\na: 1\n", 1, 1, "the first document is empty");
    fails("", 1, 1, "the file has no document");
    fails("# only a comment\n", 1, 1, "the file has no document");
}

#[test]
fn lines_are_kept() {
    let node = parse_yaml(b"\n\na:\n  b: [1,\n    2]\n  c: >\n    text\n").unwrap();
    let a = node.get("a").unwrap();
    assert_eq!(node.line, 3);
    assert_eq!(a.line, 4);
    assert_eq!(a.get("b").unwrap().items()[1].line, 5);
    assert_eq!(a.get("c").unwrap().as_str(), Some("text\n"));
}

#[test]
fn merge_keys_stand_where_they_are_written() {
    let base = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\n";
    let merged = |text: &str| {
        let node = parse_yaml(format!("{base}{text}").as_bytes()).unwrap();
        let z = node.get("z").unwrap();
        ["a", "b", "c"].map(|key| z.get(key).map(json).unwrap_or_default()).join(" ")
    };
    assert_eq!(merged("z: {<<: *x, b: 9}"), "1 9 ");
    // go-yaml v2 lets the merge key override members before it.
    assert_eq!(merged("z: {b: 9, <<: *x}"), "1 2 ");
    assert_eq!(merged("z: {<<: [*x, *y]}"), "1 2 4");
    assert_eq!(merged("z: {<<: [{b: 7}, *y]}"), " 7 4");
    assert_eq!(merged("z: {'<<': 1, a: 5}"), "5  ");
    fails("z: {<<: 5}\n", 1, 9, "a merge key (<<) takes a mapping");
    fails("x: &x [{a: 1}]\nz: {<<: *x}\n", 2, 9, "a merge key (<<) takes a mapping");
}

#[test]
fn aliases_repeat_their_value() {
    reads("a: &v [1, {b: c}]\nd: *v\n", r#"{"a":[1,{"b":"c"}],"d":[1,{"b":"c"}]}"#);
    reads("&k key: v\nother: *k\n", r#"{"key":"v","other":"key"}"#);
    fails("a: *nope\n", 1, 4, "unknown anchor");
    fails("a: &x {b: *x}\n", 1, 11, "stands inside the value that it repeats");
}

#[test]
fn an_alias_bomb_is_refused_before_it_expands() {
    let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..=12 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        text += &format!("a{level}: &a{level} [{below}]\n");
    }
    let error = parse_yaml(text.as_bytes()).unwrap_err();
    assert!(error.message.contains("aliases expanded, takes more than 32 MiB"), "{error}");
}

#[test]
fn a_large_string_is_not_repeated_without_end() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(1000));
    assert!(parse_yaml(text.as_bytes()).unwrap_err().message.contains("more than 32 MiB"));
}

#[test]
fn nested_anchors_do_not_multiply() {
    let filler = "x".repeat(1 << 20);
    let open: String = (0..100).map(|level| format!("&n{level} [")).collect();
    let text = format!("{open}{filler}{}", "]".repeat(100));
    assert!(parse_yaml(text.as_bytes()).unwrap_err().message.contains("more than 32 MiB"));
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse_yaml(nested(MAX_DEPTH).as_bytes()).is_ok());
    fails(nested(MAX_DEPTH + 1), 1, 129, "values nest more than 128 deep");
    // Through an alias as well.
    let text = format!("a: &a {}\nb: {}*a{}\n", nested(100), "[".repeat(100), "]".repeat(100));
    assert!(parse_yaml(text.as_bytes()).unwrap_err().message.contains("nest more than"));
}

#[test]
fn repetitive_text_ends_in_time_linear_in_its_length() {
    for text in ["[", "{", "- ", "? ", "a: ", "&a ", "*a ", "'", "|\n", "a: b\n", "{? a", "%a\n", "- - a\n"] {
        for prefix in ["", "[", "{", "- |\n  "] {
            // A quadratic reader would take minutes, and the test runner has a limit.
            let _ = parse_yaml(format!("{prefix}{}", text.repeat((32 << 10) / text.len())).as_bytes());
        }
    }
}

#[test]
fn tabs_in_the_indentation_are_named() {
    fails("a:\n\tb: 1\n", 2, 2, "a tab in the indentation; YAML takes spaces only");
    fails("a:\n  - b: 1\n\tc: 2\n", 2, 8, "found a tab");
    // Elsewhere a tab is white space, and in a text a tab stays.
    reads(
        "a:\t1\t# comment\n\"\u{e9}\":\t\tx\nt: |\n  k:\tv\n",
        "{\"a\":1,\"\u{e9}\":\"x\",\"t\":\"k:\\tv\\n\"}",
    );
    reads("a:\tx\n".repeat(MAX_TAB_REPAIRS), &format!("{{{}}}", [r#""a":"x""#; MAX_TAB_REPAIRS].join(",")));
    fails("a:\tx\n".repeat(MAX_TAB_REPAIRS + 1), 65, 4, "a tab after ':'");
}

#[test]
fn grammar_errors_name_the_place() {
    fails("a: b\n- c\n", 2, 3, "did not find expected key");
    fails("a: [1, 2\n", 2, 1, "");
    fails("a: 'text\n", 1, 4, "");
}

#[test]
fn byte_order_marks_are_taken() {
    reads(b"\xEF\xBB\xBFa: \xC3\xA9\n", "{\"a\":\"\u{e9}\"}");
    let little: Vec<u8> = "\u{feff}a: \u{1F600}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = "\u{feff}a: \u{1F600}\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    reads(little, "{\"a\":\"\u{1F600}\"}");
    reads(big, "{\"a\":\"\u{1F600}\"}");
    fails(b"\xFF\xFEa", 1, 1, "ends in half a unit");
    fails(b"\xFF\xFE\x00\xD8a\x00", 1, 1, "the UTF-16 unit 0xD800 has no pair");
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    fails(b"a: 1\nb: x\xFFy\n", 2, 5, "the byte 0xFF is not UTF-8");
    fails(b"a: 1\nb: \0\n", 2, 4, "the control character U+0000 is not allowed");
    fails("a: \u{9f}\n", 1, 4, "U+009F");
    reads("a: \"\\0\"\n", "{\"a\":\"\\0\"}");
}

#[test]
fn windows_line_ends_are_line_ends() {
    reads("a: 1\r\nb: |\r\n  x\r\n  y\r\nc: z\r\n", r#"{"a":1,"b":"x\ny\n","c":"z"}"#);
    fails("a: 1\r\nb: .inf\r\n", 2, 4, "JSON cannot hold the number");
}

#[test]
fn block_scalars_follow_their_indicators() {
    reads(
        "a: |\n  one\n   two\nb: |-\n  x\nc: >-\n  x\n  y\nd: |+\n  z\n\n",
        r#"{"a":"one\n two\n","b":"x","c":"x y","d":"z\n\n"}"#,
    );
}
