//! Runs a test of this binary under callgrind and reads what calls of a function took.

use std::collections::HashMap;
use std::process::Command;

/// What callgrind has counted, by function.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    functions: HashMap<String, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: u64,
    /// Of the function and all that it calls.
    instructions: u64,
}

/// Runs one test under callgrind, with an environment variable set that tells it so.
pub(crate) fn profile(test: &str, variable: &str) -> Profile {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(variable, "1")
        .output()
        .expect("valgrind is installed by cargo xtask setup --for test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Profile::parse(&std::fs::read_to_string(file).unwrap())
}

impl Profile {
    /// The mean of all calls of the one function whose name ends so.
    pub(crate) fn instructions_per_call(&self, name: &str) -> f64 {
        let found: Vec<_> = self.functions.iter().filter(|(function, _)| function.ends_with(name)).collect();
        let [(_, counts)] = found[..] else { panic!("{name} is not one function: {found:?}") };
        assert!(counts.calls > 0, "{name} was not called");
        counts.instructions as f64 / counts.calls as f64
    }

    /// Reads the format that callgrind writes: for each function its own costs, line by line, and after each `calls=`
    /// what those calls took in all. Names are written once, and then by number.
    fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut function, mut callee) = ("", "");
        for line in text.lines() {
            if let Some(reference) = line.strip_prefix("fn=") {
                function = resolve(&mut names, reference);
            } else if let Some(reference) = line.strip_prefix("cfn=") {
                callee = resolve(&mut names, reference);
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls: u64 = calls.split(' ').next().and_then(|calls| calls.parse().ok()).unwrap();
                profile.of(callee).calls += calls;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                // A place and its cost, the function's own or that of the calls in the line before.
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
                profile.of(function).instructions += cost.unwrap_or_default();
            }
        }
        profile
    }

    fn of(&mut self, function: &str) -> &mut Counts {
        if !self.functions.contains_key(function) {
            self.functions.insert(function.to_owned(), Counts::default());
        }
        self.functions.get_mut(function).unwrap()
    }
}

fn resolve<'a>(names: &mut HashMap<&'a str, &'a str>, reference: &'a str) -> &'a str {
    match reference.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names[reference],
    }
}

#[test]
fn costs_of_calls_are_the_callers_too() {
    let text = "fn=(1) main\n1 5\ncfn=(2) a::work\ncalls=2 7\n+3 100\n* 4\n\nfn=(2)\n7 60\ncfn=(3) b\ncalls=1 9\n8 40\n";
    let profile = Profile::parse(text);
    assert_eq!(profile.instructions_per_call("::work"), 50.0);
    assert_eq!(profile.functions["main"].instructions, 109);
    assert_eq!(profile.functions["b"].calls, 1);
}
