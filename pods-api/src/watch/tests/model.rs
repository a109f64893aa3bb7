//! Random histories, watched in every way, against a naive model.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// Changes or adds a pod; `web` labels it.
    Put {
        pod: u8,
        web: bool,
    },
    Remove {
        pod: u8,
    },
    /// Publishes what has been staged.
    Publish,
    Open {
        ring: usize,
        coalesce: bool,
        only_web: bool,
    },
    Fill {
        client: u8,
    },
    Take {
        client: u8,
        messages: usize,
    },
    Close {
        client: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..12u8, any::<bool>()).prop_map(|(pod, web)| Step::Put { pod, web }),
        3 => (0..12u8).prop_map(|pod| Step::Remove { pod }),
        8 => Just(Step::Publish),
        1 => (1..6usize, any::<bool>(), any::<bool>())
            .prop_map(|(ring, coalesce, only_web)| Step::Open { ring, coalesce, only_web }),
        6 => any::<u8>().prop_map(|client| Step::Fill { client }),
        4 => (any::<u8>(), 0..8usize).prop_map(|(client, messages)| Step::Take { client, messages }),
        1 => any::<u8>().prop_map(|client| Step::Close { client }),
    ]
}

struct Watched {
    client: Client,
    only_web: bool,
    coalesce: bool,
    ended: Option<EndReason>,
}

/// The events a client with that selector gets one by one.
fn selected(history: &[(Event, bool, bool)], since: u64) -> Vec<(ChangeKind, String, i64)> {
    history
        .iter()
        .filter(|(event, ..)| event.revision > since)
        .filter_map(|(event, before, after)| {
            let kind = match (before, after) {
                (false, false) => return None,
                (false, true) => ChangeKind::Added,
                (true, true) => ChangeKind::Modified,
                (true, false) => ChangeKind::Deleted,
            };
            let generation = if kind == ChangeKind::Deleted { 0 } else { event.generation };
            Some((kind, event.uid.clone(), generation))
        })
        .collect()
}

/// Which events a selector on `app=web` concerns: (event, selected before, selected after).
fn web_history(history: &[Event], web: &BTreeMap<i64, bool>) -> Vec<(Event, bool, bool)> {
    let mut current = BTreeMap::<String, bool>::new();
    history
        .iter()
        .map(|event| {
            let before = current.remove(&event.uid).unwrap_or(false);
            let after = event.kind != ChangeKind::Deleted && web[&event.generation];
            current.insert(event.uid.clone(), after);
            (event.clone(), before, after)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn every_client_ends_equal_to_the_list(steps in prop::collection::vec(step(), 1..250)) {
        let mut node = Node::with_pods(0);
        let mut web = BTreeMap::new();
        let mut watched: Vec<Watched> = Vec::new();
        for step in steps {
            match step {
                Step::Put { pod, web: is_web } => {
                    let uid = format!("{pod:02}");
                    let sketch = PodSketch::new(&uid);
                    node.stage_as(&uid, if is_web { sketch.label("app", "web") } else { sketch });
                    web.insert(node.last_generation as i64, is_web);
                }
                Step::Remove { pod } => drop(node.pods.remove(&format!("{pod:02}"))),
                Step::Publish => node.publish(),
                Step::Open { ring, coalesce, only_web } => {
                    let selector = if only_web { selecting("app=web") } else { None };
                    let client = node.watch(WatchOptions { selector, ..options(ring, coalesce) });
                    watched.push(Watched { client, only_web, coalesce, ended: None });
                }
                Step::Fill { client } if !watched.is_empty() => {
                    let index = usize::from(client) % watched.len();
                    watched[index].client.watcher.fill();
                }
                Step::Take { client, messages } if !watched.is_empty() => {
                    let index = usize::from(client) % watched.len();
                    if let Some(Next::End(reason)) = watched[index].client.take(messages) {
                        watched[index].ended = Some(reason);
                    }
                }
                Step::Close { client } if !watched.is_empty() => {
                    drop(watched.swap_remove(usize::from(client) % watched.len()));
                }
                Step::Fill { .. } | Step::Take { .. } | Step::Close { .. } => {}
            }
        }
        node.publish();
        let list = node.list();
        prop_assert_eq!(&list, &node.history.state_at(u64::MAX));
        let all: Vec<_> = node.history.after(0);
        let web_events = web_history(&all, &web);
        let all_events: Vec<_> = all
            .iter()
            .map(|event| (event.clone(), event.kind != ChangeKind::Added, event.kind != ChangeKind::Deleted))
            .collect();
        for Watched { mut client, only_web, coalesce, ended } in watched {
            let ended = ended.or_else(|| client.drain());
            prop_assert!(client.synced);
            let history = if only_web { &web_events } else { &all_events };
            let expected = selected(history, client.since());
            if ended.is_some() {
                prop_assert!(!coalesce);
                prop_assert!(expected.len() > client.events.len());
            } else {
                let is_listed = |generation: &i64| !only_web || web[generation];
                let wanted: State =
                    list.clone().into_iter().filter(|(_, generation)| is_listed(generation)).collect();
                prop_assert_eq!(&client.state, &wanted);
            }
            if !coalesce && client.events.len() == expected.len() {
                prop_assert_eq!(client.events, expected);
            }
        }
        let held: usize = node.published.load().iter().map(|record| record.held_bytes()).sum();
        node.writer.apply([], Now { instant: Instant::now(), unix_seconds: 0 });
        prop_assert_eq!(node.meter.bytes(), held, "nothing is kept for watchers that are gone");
    }
}
