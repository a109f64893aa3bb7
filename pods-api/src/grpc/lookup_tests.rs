use super::*;
use crate::pod::testing::{PodSketch, snapshot_of};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Knows what the test says.
#[derive(Debug, Default)]
struct Known {
    /// Containers by their cgroups.
    containers: Vec<(&'static str, &'static str)>,
}

impl Locate for Known {
    fn process(&self, pid: Pid, _: &Snapshot) -> Located {
        match pid.as_raw() {
            1 => Located::NotYet("process 1 runs in no pod".into()),
            2 => Located::Never("2 is a thread of process 1".into()),
            number => Located::In(Place { pod: format!("u{number}").into(), container: Some("abc0".into()) }),
        }
    }

    fn cgroup(&self, id: CgroupId, pods: &Snapshot) -> Located {
        self.process(Pid::new(i32::try_from(id.0).unwrap()).unwrap(), pods)
    }

    fn cgroup_path(&self, _: &str, _: &Snapshot) -> Located {
        Located::In(Place { pod: "u3".into(), container: None })
    }

    fn containers(&self, prefix: &str, limit: usize, _: &Snapshot) -> Vec<Place> {
        let found = self.containers.iter().filter(|(id, _)| id.starts_with(prefix));
        found
            .map(|(id, pod)| Place { pod: (*pod).into(), container: Some((*id).into()) })
            .take(limit)
            .collect()
    }

    fn add_waker(&self, _: &Waker) {}
}

/// The pod's UID, the container's name and ID; or the status, `?` before it if an answer may still come.
fn find_as(grant: &str, pods: &[PodSketch], known: &Known, key: Key) -> Result<[String; 3], String> {
    let grant = match grant {
        "" => Grant::of_everything("uid=0"),
        options => Grant::clone(&format!("uid=1,{options}").parse::<crate::access::Rule>().unwrap().grant),
    };
    let pods = snapshot_of(pods);
    let key = LookupKey::of(Some(key)).map_err(|status| format!("{:?}: {}", status.code, status.message))?;
    match (Look { pods: &pods, locate: known, grant: &grant }).find(&key) {
        Ok(response) => {
            let uid = response.pod.unwrap().metadata.unwrap_or_default().uid.unwrap_or_default();
            Ok([uid, response.container_name, response.container_id])
        }
        Err(Failure::NotYet(status)) => Err(format!("? {:?}: {}", status.code, status.message)),
        Err(Failure::Final(status)) => Err(format!("{:?}: {}", status.code, status.message)),
    }
}

fn find(pods: &[PodSketch], known: &Known, key: Key) -> Result<[String; 3], String> {
    find_as("", pods, known, key)
}

fn found(uid: &str, name: &str, id: &str) -> Result<[String; 3], String> {
    Ok([uid.to_owned(), name.to_owned(), id.to_owned()])
}

fn container(id: &str) -> Key {
    Key::ContainerId(id.to_owned())
}

fn web() -> PodSketch {
    PodSketch::new("u3").namespace("shop").name("web").container_id("containerd://abc0").container_id("abd1")
}

#[test]
fn container_is_found_by_its_id_or_a_unique_beginning_with_or_without_scheme() {
    // CRI-3
    let pods = [web()];
    for id in ["abc0", "abc", "containerd://abc0", "cri-o://abc"] {
        assert_eq!(find(&pods, &Known::default(), container(id)), found("u3", "c0", "abc0"), "{id}");
    }
    assert_eq!(find(&pods, &Known::default(), container("abd")), found("u3", "c1", "abd1"));
    let ambiguous = "FailedPrecondition: container ID \"ab\" is ambiguous: abc0 (shop/web), abd1 (shop/web); give more of it";
    assert_eq!(find(&pods, &Known::default(), container("ab")), Err(ambiguous.into()));
    assert_eq!(
        find(&pods, &Known::default(), container("x")),
        Err("? NotFound: container x not found".into())
    );
    assert!(
        find(&pods, &Known::default(), container("containerd://"))
            .unwrap_err()
            .starts_with("InvalidArgument")
    );
}

#[test]
fn whole_id_is_not_ambiguous_with_what_it_begins() {
    let known = Known { containers: vec![("abc0", "u3"), ("abc01", "u3"), ("abc02", "u4")] };
    assert_eq!(find(&[web()], &known, container("abc0")), found("u3", "c0", "abc0"));
    let error = find(&[web()], &known, container("a")).unwrap_err();
    assert!(error.contains("abc0 (shop/web), abc01 (shop/web), abc02, …"), "{error}");
}

#[test]
fn container_that_only_its_cgroup_tells_of_is_answered_with_its_pod() {
    let known = Known { containers: vec![("new9", "u3"), ("lost9", "u9")] };
    assert_eq!(find(&[web()], &known, container("new")), found("u3", "", "new9"));
    let error =
        "? NotFound: container lost not found: it belongs to a pod with UID u9, which no source has told of";
    assert_eq!(find(&[web()], &known, container("lost")), Err(error.into()));
}

#[test]
fn processes_and_cgroups_lead_to_their_container() {
    let pods = [web()];
    let known = Known::default();
    assert_eq!(find(&pods, &known, Key::Pid(3)), found("u3", "c0", "abc0"));
    assert_eq!(find(&pods, &known, Key::CgroupId(3)), found("u3", "c0", "abc0"));
    assert_eq!(find(&pods, &known, Key::CgroupPath("/kubepods/podu3".into())), found("u3", "", ""));
    assert_eq!(find(&pods, &known, Key::Pid(1)), Err("? NotFound: process 1 runs in no pod".into()));
    assert_eq!(find(&pods, &known, Key::Pid(2)), Err("NotFound: 2 is a thread of process 1".into()));
    let unknown = find(&pods, &known, Key::Pid(7)).unwrap_err();
    assert!(
        unknown.starts_with("? NotFound: pod of process 7 not found") && unknown.contains("u7"),
        "{unknown}"
    );
    for key in [Key::Pid(0), Key::Pid(-1), Key::CgroupId(0), Key::CgroupPath(String::new()), container("")] {
        let error = find(&pods, &known, key).unwrap_err();
        assert!(error.starts_with("InvalidArgument"), "{error}");
    }
}

#[test]
fn what_a_caller_may_not_see_is_not_there() {
    let pods = [web()];
    let known = Known { containers: vec![("abc0", "u3"), ("abx", "u9")] };
    for key in [container("ab"), Key::Pid(3), Key::CgroupId(3), Key::CgroupPath("/kubepods/podu3".into())] {
        let error = find_as("namespaces=other", &pods, &known, key).unwrap_err();
        assert!(error.starts_with("? NotFound") && !error.contains("UID"), "{error}");
    }
    assert_eq!(find_as("namespaces=shop", &pods, &known, container("abc")), found("u3", "c0", "abc0"));
    // The name and the ID are the status's, and go with it.
    let seen = find_as("fields=metadata.uid", &pods, &known, Key::Pid(3));
    assert_eq!(seen, found("u3", "", ""));
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + 'a>>;

/// A lookup that nothing answers until `found` is set.
fn waits<'a>(waiting: &'a Waiting, is_process: bool, found: &'a Cell<bool>) -> Answer<'a> {
    let look = || if found.get() { Ok(()) } else { Err(not_yet("nothing yet".into())) };
    Box::pin(waiting.until_found(MAX_WAIT, is_process, look))
}

fn poll(answer: &mut Answer<'_>) -> Poll<Result<(), Status>> {
    answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn with_time(test: impl AsyncFnOnce()) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test());
}

#[test]
fn waiting_lookups_are_bounded_and_one_that_ends_frees_its_place() {
    with_time(async || {
        let (waiting, found) = (Arc::new(Waiting::default()), Cell::new(false));
        for is_process in [false, true] {
            let mut answers: Vec<_> = (0..MAX_WAITING).map(|_| waits(&waiting, is_process, &found)).collect();
            assert!(answers.iter_mut().all(|answer| poll(answer).is_pending()));
            let Poll::Ready(Err(status)) = poll(&mut waits(&waiting, is_process, &found)) else {
                panic!("one too many waits");
            };
            assert_eq!(status.code, Code::ResourceExhausted);
            assert!(status.message.starts_with("256 lookups are waiting already"), "{}", status.message);
            // One that need not wait is answered all the same.
            let once = waiting.until_found(Duration::ZERO, is_process, || Err::<(), _>(not_yet("x".into())));
            assert_eq!(once.await.unwrap_err().code, Code::NotFound);
            found.set(true);
            assert!(matches!(poll(&mut waits(&waiting, is_process, &found)), Poll::Ready(Ok(()))));
            found.set(false);
            // Cancelled.
            answers.pop();
            let mut next = waits(&waiting, is_process, &found);
            assert!(poll(&mut next).is_pending());
            assert!(poll(&mut waits(&waiting, is_process, &found)).is_ready());
            // Answered.
            found.set(true);
            waiting.clone().wake();
            assert!(next.await.is_ok());
            found.set(false);
            assert!(poll(&mut waits(&waiting, is_process, &found)).is_pending());
        }
    });
}

#[test]
fn publications_hasten_no_look_at_a_process_but_any_other() {
    with_time(async || {
        for (is_process, expected) in [(true, 1), (false, 11)] {
            let (waiting, looks) = (Arc::new(Waiting::default()), Cell::new(0));
            let look = || {
                looks.set(looks.get() + 1);
                Err::<(), _>(not_yet("nothing yet".into()))
            };
            let start = Instant::now();
            let mut answer: Answer<'_> = Box::pin(waiting.until_found(MAX_WAIT, is_process, look));
            assert!(poll(&mut answer).is_pending());
            for _ in 0..10 {
                waiting.clone().wake();
                assert!(poll(&mut answer).is_pending());
            }
            // Where this thread was held up, one more for each interval.
            let late = start.elapsed().as_millis() / PROCESS_INTERVAL.as_millis();
            let most = expected + if is_process { late } else { 0 };
            assert!((expected..=most).contains(&looks.get()), "{}", looks.get());
        }
    });
}
