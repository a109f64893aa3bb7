//! Bytes in, bytes out, timers and limits.

use super::*;
use crate::transport::bulk;
use std::net::Shutdown;
use std::thread;

over_both_drivers! {
    fn pieces_of_any_size_come_back_in_order(transport) {
        let server = Server::start(transport);
        let clients: Vec<_> = (0..8).map(|seed| {
            let mut client = server.connect();
            command(&mut client, b'e', 0);
            let sizes: Vec<usize> = (0..200).map(|step| 1 + (step * 7919 + seed * 104_729) % 20_011).collect();
            let total: usize = sizes.iter().sum();
            let mut reader = client.try_clone().unwrap();
            let reading = thread::spawn(move || {
                let mut received = vec![0; total];
                reader.read_exact(&mut received).unwrap();
                assert_pattern(&received, 0);
            });
            let writing = thread::spawn(move || {
                let mut from = 0;
                for size in sizes {
                    client.write_all(&pattern(from, size)).unwrap();
                    from += size;
                }
            });
            [reading, writing]
        }).collect();
        for client in clients.into_iter().flatten() {
            client.join().unwrap();
        }
        let expected = server.total(|counters| counters.bytes_sent);
        assert_eq!(server.total(|counters| counters.bytes_received), expected + 8 * 5);
    }

    fn twelve_megabytes_arrive_whole_in_few_or_many_pieces(transport) {
        let server = Server::start(transport);
        for piece in [12 << 20, 64 << 10, 777] {
            let mut client = server.connect();
            command(&mut client, b'c', piece);
            command(&mut client, b's', 12 << 20);
            command(&mut client, b'q', 0);
            assert_pattern_and_end(client, 12 << 20);
        }
    }

    fn a_slow_reader_gets_everything(transport) {
        let server = Server::start(transport);
        let mut client = server.connect();
        command(&mut client, b's', 1 << 20);
        let mut received = Vec::new();
        let mut piece = [0; 1000];
        while received.len() < 1 << 20 {
            let length = client.read(&mut piece).unwrap();
            received.extend_from_slice(&piece[..length]);
            thread::yield_now();
        }
        assert_pattern(&received, 0);
        assert_answers(&mut client);
    }

    fn a_half_closed_connection_is_answered_to_the_end(transport) {
        let server = Server::start(transport);
        let mut client = server.connect();
        command(&mut client, b's', 3 << 20);
        client.shutdown(Shutdown::Write).unwrap();
        assert_pattern_and_end(client, 3 << 20);
        eventually("the connection is finished", || server.closed_for(Close::Finished) == 1);
    }

    fn a_peer_that_goes_while_it_is_sent_to_harms_nobody(transport) {
        let server = Server::start(transport);
        let mut witness = server.connect();
        for round in 0..20 {
            let mut client = server.connect();
            command(&mut client, b's', 12 << 20);
            let mut some = vec![0; round * 4096];
            client.read_exact(&mut some).unwrap();
            drop(client);
            assert_answers(&mut witness);
        }
        eventually("they are all closed", || server.closed_for(Close::PeerGone) == 20);
        assert_eq!(server.reactor.status().connections, 1);
    }

    fn a_peer_that_goes_after_its_half_close_is_noticed(transport) {
        let server = Server::start(transport);
        let mut client = server.connect();
        // Watches go on after the half-close of this protocol only as long as something is to be sent.
        command(&mut client, b's', 8 << 20);
        client.shutdown(Shutdown::Write).unwrap();
        let mut some = [0; 1000];
        client.read_exact(&mut some).unwrap();
        drop(client);
        eventually("the connection is closed", || server.closed_for(Close::PeerGone) == 1);
    }

    fn a_peer_that_takes_nothing_is_closed_and_one_that_takes_little_is_not(transport) {
        let send_stall = Duration::from_secs(1);
        let server = Server::with(ReactorConfig { transport, send_stall, ..ReactorConfig::default() });
        let mut slow = server.connect();
        command(&mut slow, b's', 8 << 20);
        let mut stopped = server.connect();
        command(&mut stopped, b's', 8 << 20);
        let mut received = 0;
        let mut piece = vec![0; 32 << 10];
        while server.closed_for(Close::Stalled) == 0 {
            let started = Instant::now();
            slow.read_exact(&mut piece).unwrap();
            received += piece.len();
            assert!(received < 8 << 20, "the stopped peer is still there");
            // The buffer takes 400 KiB, and progress shows when it is nearly empty: this is thrice in the limit.
            eventually("time passes", || started.elapsed() > send_stall / 40);
        }
        let mut rest = vec![0; (8 << 20) - received];
        slow.read_exact(&mut rest).unwrap();
        assert_answers(&mut slow);
        assert_eq!(server.closed_for(Close::Stalled), 1);
        let mut left = Vec::new();
        stopped.read_to_end(&mut left).unwrap();
        assert!(left.len() < 8 << 20);
    }

    fn a_deadline_is_kept_while_nothing_else_happens(transport) {
        let server = Server::start(transport);
        let mut client = server.connect();
        let mut answer = [0];
        for milliseconds in [30, 1, 0, 10] {
            let started = Instant::now();
            command(&mut client, b't', milliseconds);
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"t");
            assert!(started.elapsed() >= Duration::from_millis(milliseconds.into()));
        }
    }

    fn a_deadline_that_moves_closer_is_kept(transport) {
        let server = Server::start(transport);
        let mut client = server.connect();
        command(&mut client, b't', 3_600_000);
        assert_answers(&mut client);
        command(&mut client, b't', 5);
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"t");
    }

    fn connections_over_the_limit_are_closed_at_once_and_counted(transport) {
        let server = Server::with(ReactorConfig { transport, max_connections: 3, ..ReactorConfig::default() });
        let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(assert_answers);
        let mut refused = server.connect();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
        assert_eq!(server.total(|counters| counters.refused), 1);
        assert!(server.reactor.status().accepting);
        drop(clients.pop());
        eventually("the place is free", || server.reactor.status().connections == 2);
        let mut next = server.connect();
        assert_answers(&mut next);
        clients.iter_mut().for_each(assert_answers);
    }

    fn stalled_connections_hold_little_and_only_a_few_hold_more(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 1, ..ReactorConfig::default() });
        let sent = || server.total(|counters| counters.bytes_sent);
        let mut clients = Vec::new();
        let mut stall = |at_least: u64| {
            let start = sent();
            for _ in 0..bulk::HOLDERS {
                let before = sent();
                let mut client = server.connect();
                command(&mut client, b's', 4 << 20);
                clients.push(client);
                eventually("it is stuck", || sent() - before >= at_least);
            }
            sent() - start
        };
        // What the buffers hold when they are full, less the kernel's overhead.
        let large = stall(384 << 10);
        let small = stall(24 << 10);
        // The usual buffer is 16 KiB, which the kernel doubles.
        assert!(small <= 33 * 1024 * bulk::HOLDERS as u64, "{small} bytes in the small ones");
        assert!(large > 8 * small, "{large} bytes in the large buffers, {small} in the small ones");
    }

    fn a_large_buffer_goes_from_those_that_are_done_to_those_that_need_it(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 1, ..ReactorConfig::default() });
        let mut clients: Vec<_> = (0..2 * bulk::HOLDERS).map(|_| server.connect()).collect();
        for client in &mut clients {
            command(client, b's', 1 << 20);
            let mut received = vec![0; 1 << 20];
            client.read_exact(&mut received).unwrap();
            assert_pattern(&received, 0);
        }
        let before = server.total(|counters| counters.bytes_sent);
        let mut next = server.connect();
        command(&mut next, b's', 4 << 20);
        eventually("it fills more than a small buffer", || {
            server.total(|counters| counters.bytes_sent) - before > 64 * 1024
        });
    }

    fn one_greedy_connection_does_not_hold_up_the_others(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 1, ..ReactorConfig::default() });
        let mut greedy = server.connect();
        // The same piece over and over, so that it is all there at once.
        command(&mut greedy, b's', 64 << 20);
        let mut reader = greedy.try_clone().unwrap();
        let reading = thread::spawn(move || {
            let mut received = vec![0; 64 << 20];
            reader.read_exact(&mut received).unwrap();
        });
        let mut modest = server.connect();
        let before = server.total(|counters| counters.bytes_sent);
        for _ in 0..10 {
            assert_answers(&mut modest);
        }
        let meanwhile = server.total(|counters| counters.bytes_sent) - before;
        assert!(meanwhile < 40 << 20, "ten answers had to wait for {meanwhile} bytes");
        reading.join().unwrap();
    }
}

#[test]
fn an_answer_costs_two_system_calls_on_io_uring() {
    let server =
        Server::with(ReactorConfig { transport: Transport::IoUring, workers: 1, ..ReactorConfig::default() });
    let mut client = server.connect();
    assert_answers(&mut client);
    let before = server.total(|counters| counters.system_calls);
    for _ in 0..1000 {
        assert_answers(&mut client);
    }
    let calls = server.total(|counters| counters.system_calls) - before;
    // One sends the answer, and returns with its completion; one waits for the next request.
    assert!(calls <= 2010, "{calls} system calls for 1000 answers");
}

#[test]
fn many_receivers_at_once_share_the_buffers() {
    let server =
        Server::with(ReactorConfig { transport: Transport::IoUring, workers: 1, ..ReactorConfig::default() });
    let clients: Vec<_> = (0..32)
        .map(|_| {
            let mut client = server.connect();
            thread::spawn(move || {
                command(&mut client, b'e', 0);
                let mut reader = client.try_clone().unwrap();
                let reading = thread::spawn(move || {
                    let mut received = vec![0; 2 << 20];
                    reader.read_exact(&mut received).unwrap();
                    assert_pattern(&received, 0);
                });
                client.write_all(&pattern(0, 2 << 20)).unwrap();
                reading.join().unwrap();
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(server.total(|counters| counters.completion_overflows), 0);
}
