//! Many threads open watches while the writer publishes.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// WATCH-2 and WATCH-7: pods are changed, deleted and created again as fast as the writer can, while a thousand watches
/// are opened. Each begins with exactly the state at its revision, gets exactly the later events, and ends equal to the
/// list.
#[test]
fn watches_opened_under_churn_lose_and_repeat_nothing() {
    const THREADS: usize = 4;
    const WATCHES: usize = 1_000;
    let mut node = Node::with_pods(8);
    let (hub, history) = (node.hub.clone(), node.history.clone());
    let opened = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watchers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut kept = Vec::new();
                    loop {
                        let number = opened.fetch_add(1, Ordering::Relaxed);
                        if number >= WATCHES {
                            break kept;
                        }
                        let view = View::whole(Contract::V1alpha1);
                        let options = options(1 << 20, false);
                        let mut client = Client::new(hub.subscribe(view, options).unwrap());
                        client.drain();
                        // What has come so far is a beginning of what must come; the last ones are read to the end.
                        let expected = expected_events(&history, client.since());
                        assert!(client.synced && expected.starts_with(&client.events));
                        if number.is_multiple_of(16) {
                            kept.push(client);
                        }
                    }
                })
            })
            .collect();
        let churn = scope.spawn(|| {
            let mut round = 0usize;
            while !is_over.load(Ordering::Relaxed) {
                let uid = format!("{:03}", round % 8);
                if round % 3 == 2 {
                    node.remove(&uid);
                } else {
                    node.put(&uid);
                }
                round += 1;
                // The recorded history grows with each round; a bounded one is enough.
                if round > 5_000 {
                    break;
                }
            }
            node.list()
        });
        let clients: Vec<_> = watchers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        let list = churn.join().unwrap();
        assert_eq!(clients.len(), WATCHES.div_ceil(16));
        for mut client in clients {
            assert_eq!(client.drain(), None);
            let since = client.since();
            assert!(client.synced);
            assert_eq!(client.events, expected_events(&history, since), "since {since}");
            assert_eq!(client.state, list);
            let mut replayed = history.state_at(since);
            for (kind, uid, generation) in &client.events {
                match kind {
                    ChangeKind::Deleted => replayed.remove(uid),
                    _ => replayed.insert(uid.clone(), *generation),
                };
            }
            assert_eq!(replayed, list);
        }
    });
    assert_eq!(hub.stats().dropped(), 0);
}
