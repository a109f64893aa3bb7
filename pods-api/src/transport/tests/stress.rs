//! Many connections, and wakes from other threads.

use super::*;
use std::thread;

fn read_value(client: &mut UnixStream) -> u64 {
    let mut value = [0; 8];
    client.read_exact(&mut value).unwrap();
    u64::from_be_bytes(value)
}

over_both_drivers! {
    fn a_thousand_connections_are_spread_evenly_and_served(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 2, ..ReactorConfig::default() });
        let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
        for client in &mut clients {
            command(client, b's', 3);
        }
        for client in &mut clients {
            let mut answer = [0; 3];
            client.read_exact(&mut answer).unwrap();
        }
        let spread: Vec<_> = server.reactor.status().workers.iter().map(|worker| worker.connections).collect();
        assert_eq!(spread, [500, 500]);
        // Those that stay are spread evenly after others have gone, too.
        clients.truncate(100);
        eventually("they are gone", || server.reactor.status().connections == 100);
        clients.extend((0..100).map(|_| server.connect()));
        clients.iter_mut().for_each(assert_answers);
        let spread: Vec<_> = server.reactor.status().workers.iter().map(|worker| worker.connections).collect();
        assert_eq!(spread, [100, 100]);
        assert_eq!(server.total(|counters| counters.completion_overflows), 0);
    }

    // Each value is published only after the one before was received: a single lost wake would stop it for good.
    fn no_wake_is_lost_between_publisher_and_watcher(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 1, ..ReactorConfig::default() });
        let mut client = server.connect();
        command(&mut client, b'w', 0);
        assert_eq!(read_value(&mut client), 0);
        for value in 1..=5_000 {
            server.world.publish(value);
            assert_eq!(read_value(&mut client), value);
        }
    }

    fn news_that_comes_while_its_cause_is_received_is_not_missed(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 1, ..ReactorConfig::default() });
        for value in 1..=100 {
            let mut client = server.connect();
            command(&mut client, b'n', value);
            assert_eq!(read_value(&mut client), u64::from(value));
        }
    }

    fn every_watcher_sees_the_last_of_many_values(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 2, ..ReactorConfig::default() });
        let watchers: Vec<_> = (0..50).map(|_| {
            let mut client = server.connect();
            command(&mut client, b'w', 0);
            let first = read_value(&mut client);
            assert_eq!(first, 0);
            thread::spawn(move || {
                let mut last = 0;
                while last < 20_000 {
                    let value = read_value(&mut client);
                    assert!(value > last, "{value} after {last}");
                    last = value;
                }
            })
        }).collect();
        let publishers: Vec<_> = (1..=20_000).collect();
        for value in publishers {
            server.world.publish(value);
            if value % 64 == 0 {
                thread::yield_now();
            }
        }
        for watcher in watchers {
            watcher.join().unwrap();
        }
    }

    fn connections_come_and_go_while_others_work(transport) {
        let server = Arc::new(Server::start(transport));
        let threads: Vec<_> = (0..4).map(|number| {
            let server = Arc::clone(&server);
            thread::spawn(move || for round in 0..200 {
                let mut client = server.connect();
                match (round + number) % 4 {
                    0 => assert_answers(&mut client),
                    1 => command(&mut client, b's', 1 << 20),
                    2 => command(&mut client, b'q', 0),
                    _ => {}
                }
            })
        }).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let closed = || Close::ALL.iter().map(|cause| server.closed_for(*cause)).sum::<u64>();
        eventually("all have been served and closed", || closed() == 800);
        let mut client = server.connect();
        assert_answers(&mut client);
        assert_eq!(server.reactor.status().connections, 1);
    }
}

#[test]
fn an_event_to_a_hundred_connections_costs_few_system_calls_on_io_uring() {
    let server =
        Server::with(ReactorConfig { transport: Transport::IoUring, workers: 1, ..ReactorConfig::default() });
    let mut clients: Vec<_> = (0..96).map(|_| server.connect()).collect();
    for client in &mut clients {
        command(client, b'w', 0);
        read_value(client);
    }
    let before = server.total(|counters| counters.system_calls);
    for value in 1..=100 {
        server.world.publish(value);
        for client in &mut clients {
            assert_eq!(read_value(client), value);
        }
    }
    let calls = server.total(|counters| counters.system_calls) - before;
    // Six submissions of sixteen sends each and one or two waits.
    assert!(calls <= 100 * 10, "{calls} system calls for 100 events to 96 connections");
}
