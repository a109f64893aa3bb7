//! One session with the runtime: the tasks that ask it, its event stream, and when each is due.
//!
//! Owned by the loop in [`super::reconcile`], on the `runtime` thread; the tasks answer to it. What the answers mean is
//! not known here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cri::{CriError, ListedPod, Listing, PodRead, Session};
use super::events::{self, EventSource, StreamNews};
use super::live::{LivePod, Surroundings, Unread};
use super::source::RuntimeConfig;
use super::status::RuntimePod;
use crate::pod::{ContainerId, LiveStatus, PodUid};

/// Events that wait for the loop; beyond that the runtime's own queue takes them.
const STREAM_QUEUE: usize = 256;
/// Lists are not taken more often than this, whatever is wished for.
const MIN_LIST_INTERVAL: Duration = Duration::from_millis(2);
/// A list that failed is taken again after this, events or not; where one is wished for, after the shorter time: a
/// runtime in trouble is not made to suffer from its own events.
const FAILED_LIST_RETRY: Duration = Duration::from_secs(1);
const FAILED_LIST_PAUSE: Duration = Duration::from_millis(200);
/// A stream that stood for this long has shown that it works: after its end it is tried again soon.
const STEADY_STREAM: Duration = Duration::from_secs(10);
/// How often each pod is read whatever happens.
const REFRESH: Duration = Duration::from_secs(60);
/// The same where the runtime's events tell of changed limits too, so that images alone are left.
const REFRESH_WITH_EVENTS: Duration = Duration::from_secs(600);

/// The answer of a task.
pub(super) enum Answer {
    List(Instant, Result<Listing, CriError>),
    Read(PodUid, Instant, Result<(ListedPod, PodRead), CriError>),
    Owner(ContainerId, Result<Option<PodUid>, CriError>),
}

/// The state of one session's loop.
pub(super) struct Run {
    session: Session,
    surroundings: Arc<Surroundings>,
    pub(super) tasks: JoinSet<Answer>,
    pub(super) news: mpsc::Receiver<StreamNews>,
    news_sender: mpsc::Sender<StreamNews>,
    streams: JoinSet<()>,
    /// The streams that have not been refused, best first.
    sources: &'static [EventSource],
    stream: StreamState,
    stream_waits: backon::ExponentialBackoff,
    is_listing: bool,
    /// When the last list was begun.
    last_list: Option<Instant>,
    next_list: Instant,
    /// Until when no list is taken, whoever wishes for one.
    no_list_before: Instant,
    config: RuntimeConfig,
}

enum StreamState {
    /// None, and no more to try.
    Absent,
    /// `up` is when it was said to stand.
    Following {
        source: EventSource,
        up: Option<Instant>,
    },
    RetryAt(Instant),
}

/// The waits before one thing is tried again and again.
pub(super) fn delays() -> backon::ExponentialBackoff {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times()
        .build()
}

impl Run {
    pub(super) fn new(session: Session, surroundings: Surroundings, config: &RuntimeConfig) -> Self {
        let (news_sender, news) = mpsc::channel(STREAM_QUEUE);
        let sources = if config.follow_events { events::sources(session.version()) } else { &[] };
        Self {
            session,
            surroundings: Arc::new(surroundings),
            tasks: JoinSet::new(),
            news,
            news_sender,
            streams: JoinSet::new(),
            sources,
            stream: StreamState::RetryAt(Instant::now()),
            stream_waits: delays(),
            is_listing: false,
            last_list: None,
            next_list: Instant::now(),
            no_list_before: Instant::now(),
            config: config.clone(),
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// When a list is to be begun, or a stream tried.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let list = (!self.is_listing).then(|| self.next_list_at());
        let stream = match self.stream {
            StreamState::RetryAt(at) => Some(at),
            _ => None,
        };
        [list, stream].into_iter().flatten().min()
    }

    /// Tries the next stream if its time has come.
    pub(super) fn follow_if_due(&mut self, now: Instant) {
        if let StreamState::RetryAt(at) = self.stream
            && at <= now
        {
            self.follow();
        }
    }

    /// Has a list taken as soon as one may be.
    pub(super) fn list_soon(&mut self, now: Instant) {
        let soon = self.last_list.map_or(now, |last| last + MIN_LIST_INTERVAL);
        self.next_list = self.next_list.min(soon);
    }

    /// Begins a list if its time has come and none is on its way.
    pub(super) fn list_if_due(&mut self, now: Instant) {
        if self.next_list_at() <= now && !self.is_listing {
            self.begin_list(now);
        }
    }

    /// When a list may be begun: what was wished for while one was on its way that failed has to wait too.
    fn next_list_at(&self) -> Instant {
        self.next_list.max(self.no_list_before)
    }

    /// A list has come in.
    pub(super) fn end_list(&mut self) {
        self.is_listing = false;
    }

    /// A list has failed.
    pub(super) fn fail_list(&mut self, now: Instant) {
        self.is_listing = false;
        self.next_list = self.next_list.min(now + FAILED_LIST_RETRY);
        self.no_list_before = now + FAILED_LIST_PAUSE;
    }

    /// What the store gets of one pod; a pod that could not be read once has no status of ours.
    pub(super) fn live(&self, uid: PodUid, pod: Option<RuntimePod>) -> (PodUid, Arc<dyn LiveStatus>) {
        let live: Arc<dyn LiveStatus> = match pod {
            Some(pod) => Arc::new(LivePod::new(pod, self.surroundings.clone())),
            None => Arc::new(Unread),
        };
        (uid, live)
    }

    /// What the store gets of pods that the runtime does not have.
    pub(super) fn absent(&self, now: Instant) -> Arc<dyn LiveStatus> {
        let absent = RuntimePod::absent(self.last_list.unwrap_or(now));
        Arc::new(LivePod::new(absent, self.surroundings.clone()))
    }

    fn begin_list(&mut self, now: Instant) {
        self.is_listing = true;
        self.last_list = Some(now);
        self.next_list = now + self.list_interval(now);
        let session = self.session.clone();
        self.tasks.spawn(async move { Answer::List(now, session.list().await) });
    }

    /// Reads one pod. With what a full list has of it, the answer is as old as that list.
    pub(super) fn begin_read(&mut self, uid: PodUid, listed: Option<(Instant, ListedPod)>, now: Instant) {
        let session = self.session.clone();
        let began = listed.as_ref().map_or(now, |(began, _)| *began);
        self.tasks.spawn(async move {
            let read = async {
                let listed = match listed {
                    Some((_, listed)) => listed,
                    None => session.list_pod(&uid).await?,
                };
                let read = session.read(&listed).await?;
                Ok((listed, read))
            };
            let answer = read.await;
            Answer::Read(uid, began, answer)
        });
    }

    pub(super) fn begin_lookup(&mut self, id: ContainerId) {
        let session = self.session.clone();
        self.tasks.spawn(async move {
            let owner = session.owner(&id).await;
            Answer::Owner(id, owner)
        });
    }

    fn list_interval(&self, now: Instant) -> Duration {
        match self.stream {
            StreamState::Following { up: Some(up), .. }
                if now.duration_since(up) < self.config.second_list =>
            {
                self.config.list_interval_with_events.min(self.config.second_list)
            }
            StreamState::Following { up: Some(_), .. } => self.config.list_interval_with_events,
            _ => self.config.list_interval,
        }
    }

    /// Whether an event stream stands.
    pub(super) fn is_told_of_changes(&self) -> bool {
        matches!(self.stream, StreamState::Following { up: Some(_), .. })
    }

    /// Whether the stream that stands tells of exits themselves, and soon; CRI's tells once its status calls show them.
    pub(super) fn is_told_of_exits(&self) -> bool {
        matches!(self.stream, StreamState::Following { source: EventSource::Containerd, up: Some(_) })
    }

    pub(super) fn refresh(&self) -> Duration {
        if self.is_told_of_exits() { REFRESH_WITH_EVENTS } else { REFRESH }
    }

    /// A stream stands.
    pub(super) fn gain_stream(&mut self, source: EventSource) {
        let now = Instant::now();
        self.stream = StreamState::Following { source, up: Some(now) };
        // From here on nothing is missed; what was missed before is found now.
        self.next_list = now;
    }

    fn follow(&mut self) {
        let Some(source) = self.sources.first() else {
            self.stream = StreamState::Absent;
            return;
        };
        self.stream = StreamState::Following { source: *source, up: None };
        self.streams.spawn(events::follow(self.session.clone(), *source, self.news_sender.clone()));
    }

    pub(super) fn lose_stream(&mut self, source: EventSource, status: &tonic::Status) {
        let now = Instant::now();
        let source = source.as_str();
        if let StreamState::Following { up: Some(up), .. } = self.stream
            && now.duration_since(up) >= STEADY_STREAM
        {
            self.stream_waits = delays();
        }
        if events::is_refusal(status) {
            tracing::info!(source, code = ?status.code(), "runtime events are refused");
            self.sources = self.sources.get(1..).unwrap_or_default();
            self.stream = StreamState::RetryAt(now);
        } else {
            tracing::warn!(source, error = status.message(), "runtime events ended");
            self.stream =
                StreamState::RetryAt(now + self.stream_waits.next().unwrap_or(Duration::from_secs(2)));
        }
        while self.streams.try_join_next().is_some() {}
        // What was lost with the stream is found by a list, and from now on by frequent ones.
        self.next_list = now;
    }
}
