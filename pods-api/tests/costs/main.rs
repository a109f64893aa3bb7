//! What an operation costs in things that do not drift with the machine: heap allocations and instructions.
//!
//! Nothing here has a socket, so that only our own work is counted. Instructions are counted by callgrind on the test
//! profile: they say nothing about speed, but when they change, the work has changed. System calls are counted by the
//! integration tests, on the running server.
#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod allocations;
mod callgrind;
mod client;
mod node;

use client::{Client, Exchange};
use node::{Node, Step};

/// Allocations that one operation may make, as measured.
const ALLOCATIONS: [(Operation, u64); 9] = [
    (Operation::Call(Exchange::Get), 1),
    (Operation::Call(Exchange::MaskedGet), 6),
    (Operation::Call(Exchange::List), 2),
    (Operation::Call(Exchange::MaskedList), 3),
    (Operation::Call(Exchange::Event), 0),
    (Operation::Step(Step::Publish), 22),
    (Operation::Step(Step::Take), 0),
    (Operation::Step(Step::Project), 0),
    (Operation::Step(Step::HpackDecode), 0),
];

/// What calls of these functions took when this was written, in thousands of instructions, with the tolerance below.
const INSTRUCTIONS: [(&str, f64); 11] = [
    ("::get_counted", 47.7),
    ("::masked_get_counted", 89.4),
    ("::list_counted", 174.0),
    ("::masked_list_counted", 123.0),
    ("::event_counted", 11.4),
    ("::publish_counted", 124.7),
    // Parts of a publication.
    ("::View::event", 1.07),
    ("::Log<T>::append", 1.91),
    ("::take_counted", 7.25),
    ("::project_counted", 43.1),
    ("::decode_counted", 31.9),
];

/// How far instructions may be off before it counts as a change: compilers and libraries move them by a few percent.
const TOLERANCE: f64 = 0.15;

/// Set for the run under callgrind.
const COUNTED: &str = "PODS_API_COSTS_COUNTED";
const REPETITIONS: u64 = 20;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Call(Exchange),
    Step(Step),
}

/// What operations run on.
struct Fixture {
    client: Client,
    node: Node,
}

impl Fixture {
    fn new() -> Self {
        Self { client: Client::new(), node: Node::new() }
    }

    /// Runs an operation; returns its allocations.
    fn run(&mut self, operation: Operation) -> u64 {
        match operation {
            Operation::Call(exchange) => self.client.run(exchange),
            Operation::Step(step) => self.node.run(step),
        }
    }
}

#[test]
fn operations_allocate_no_more_than_their_budget() {
    let mut fixture = Fixture::new();
    let mut misses = Vec::new();
    for (operation, budget) in ALLOCATIONS {
        (0..50).for_each(|_| {
            let _ = fixture.run(operation);
        });
        // The usual cost: now and then a buffer grows.
        let mut costs: Vec<u64> = (0..51).map(|_| fixture.run(operation)).collect();
        costs.sort_unstable();
        eprintln!("{operation:?}: {} allocations, budget {budget}", costs[25]);
        if costs[25] > budget {
            misses.push(format!("{operation:?}: {}, budget {budget}", costs[25]));
        }
    }
    assert!(misses.is_empty(), "allocations: {misses:#?}");
}

#[test]
fn operations_take_the_instructions_they_took() {
    if std::env::var_os(COUNTED).is_some() {
        let mut fixture = Fixture::new();
        for (operation, _) in ALLOCATIONS {
            (0..REPETITIONS).for_each(|_| {
                let _ = fixture.run(operation);
            });
        }
        return;
    }
    let profile = callgrind::profile("operations_take_the_instructions_they_took", COUNTED);
    let mut misses = Vec::new();
    for (function, budget) in INSTRUCTIONS {
        let thousands = profile.instructions_per_call(function) / 1000.0;
        eprintln!("{function}: {thousands:.2} thousand instructions, before {budget}");
        // Fewer are a miss too: the budget is then to be lowered, or the next loss goes unseen.
        if (thousands / budget - 1.0).abs() > TOLERANCE {
            misses.push(format!("{function}: {thousands:.2}, before {budget}"));
        }
    }
    assert!(misses.is_empty(), "thousands of instructions per call: {misses:#?}");
}
