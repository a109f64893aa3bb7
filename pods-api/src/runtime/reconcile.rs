//! The loop that keeps the store in step with the runtime: lists, reads, events, hints.
//!
//! One task on the `runtime` thread owns all state; lists and reads are tasks of their own that answer to it, so that
//! one that hangs holds up nothing else. A list is taken each second, or, while an event stream stands, each 30 s. When
//! the connection ends, what was known stays as it is until a runtime answers again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::cri::{CriError, ListedPod, Listing, PodRead, Session, SocketChoice};
use super::events::{self, EventSource, RuntimeEvent, StreamNews};
use super::hints::{Hint, HintQueue, RuntimeHints};
use super::ledger::{Change, Ledger};
use super::live::{LivePod, Surroundings, Unread};
use super::report::RuntimeStatus;
use super::source::RuntimeConfig;
use super::statics::StaticPods;
use super::status::RuntimePod;
use crate::pod::{ContainerId, LiveStatus, PodUid, Update};

/// Events that wait for the loop; beyond that the runtime's own queue takes them.
const STREAM_QUEUE: usize = 256;
/// Lists are not taken more often than this, whatever is wished for.
const MIN_LIST_INTERVAL: Duration = Duration::from_millis(2);
/// A list that failed is taken again after this, events or not; where one is wished for, after the shorter time: a
/// runtime in trouble is not made to suffer from its own events.
const FAILED_LIST_RETRY: Duration = Duration::from_secs(1);
const FAILED_LIST_PAUSE: Duration = Duration::from_millis(200);
/// How often each pod is read whatever happens.
const REFRESH: Duration = Duration::from_secs(60);
/// The same where the runtime's events tell of changed limits too, so that images alone are left.
const REFRESH_WITH_EVENTS: Duration = Duration::from_secs(600);

/// Everything that the loop owns beyond a session.
pub(super) struct Reconciler<S> {
    config: RuntimeConfig,
    status: Arc<RuntimeStatus>,
    ledger: Ledger,
    statics: StaticPods,
    manifests: mpsc::Receiver<Update>,
    hints: HintQueue,
    hint_sender: RuntimeHints,
    /// Where updates go: the store's queue. Blocks while that is full.
    sink: S,
    has_listed: bool,
    has_told_all: bool,
}

/// The answer of a task.
enum Answer {
    List(Instant, Result<Listing, CriError>),
    Read(PodUid, Instant, Result<(ListedPod, PodRead), CriError>),
    Owner(ContainerId, Result<Option<PodUid>, CriError>),
}

/// The state of one session's loop.
struct Run {
    session: Session,
    surroundings: Arc<Surroundings>,
    tasks: JoinSet<Answer>,
    news: mpsc::Receiver<StreamNews>,
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

fn delays() -> backon::ExponentialBackoff {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times()
        .build()
}

impl<S: FnMut(Update)> Reconciler<S> {
    pub(super) fn new(
        config: RuntimeConfig,
        status: Arc<RuntimeStatus>,
        manifests: mpsc::Receiver<Update>,
        hints: HintQueue,
        hint_sender: RuntimeHints,
        sink: S,
    ) -> Self {
        let statics = StaticPods::new(config.hold_back);
        let ledger = Ledger::default();
        Self {
            config,
            status,
            ledger,
            statics,
            manifests,
            hints,
            hint_sender,
            sink,
            has_listed: false,
            has_told_all: false,
        }
    }

    /// Runs until told to stop.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        let mut waits = delays();
        loop {
            match Session::open(&self.config.socket, self.config.deadline).await {
                Ok(session) => {
                    waits = delays();
                    self.status.count_session();
                    self.greet(&session);
                    let Some(error) = self.serve(session, &mut stop).await else { return };
                    tracing::warn!(
                        error = chain(&error),
                        "the container runtime is gone; states stay as they are"
                    );
                    self.lose(&error);
                }
                Err(error) => self.lose(&error),
            }
            // The backoff never ends: it has no limit of times.
            let wait = waits.next().unwrap_or(Duration::from_secs(2));
            if !self.idle(Instant::now() + wait, &mut stop).await {
                return;
            }
        }
    }

    fn greet(&self, session: &Session) {
        let version = session.version();
        tracing::info!(
            socket = %session.socket().display(),
            runtime = version.name,
            version = version.version,
            "container runtime answers"
        );
        self.status.change(|report| {
            report.runtime = Some(version.clone());
            report.socket = Some(session.socket().to_owned());
            report.error = None;
        });
    }

    fn lose(&self, error: &CriError) {
        let text = chain(error);
        self.status.change(|report| {
            if report.runtime.is_none() && report.error.as_ref() != Some(&text) {
                tracing::warn!(error = text, "no container runtime answers");
            }
            report.runtime = None;
            report.events = EventSource::None;
            report.error = Some(text.clone());
        });
    }

    /// Waits without a runtime; manifests still pass. False if told to stop.
    async fn idle(&mut self, until: Instant, stop: &mut oneshot::Receiver<()>) -> bool {
        loop {
            let wake = self.statics.next_due().map_or(until, |due| due.min(until));
            tokio::select! {
                _ = &mut *stop => return false,
                Some(update) = self.manifests.recv() => self.take_manifests(update),
                // Without a runtime nobody can be asked: hints lapse, and all is read on the next connection.
                Some(_) = self.hints.queue.recv() => {}
                () = tokio::time::sleep_until(wake.into()) => {
                    self.release_manifests();
                    if Instant::now() >= until {
                        return true;
                    }
                }
            }
        }
    }

    /// Serves one session. Returns why it ended, or nothing if told to stop.
    async fn serve(&mut self, session: Session, stop: &mut oneshot::Receiver<()>) -> Option<CriError> {
        let (news_sender, news) = mpsc::channel(STREAM_QUEUE);
        let surroundings = Arc::new(Surroundings {
            runtime_name: session.version().name.clone(),
            node: self.config.node.clone(),
            divergences: self.status.divergences().clone(),
            hints: self.hint_sender.clone(),
        });
        let sources = if self.config.follow_events { events::sources(session.version()) } else { &[] };
        let mut run = Run {
            session,
            surroundings,
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
            config: self.config.clone(),
        };
        self.ledger.start_over();
        loop {
            let now = Instant::now();
            self.advance(&mut run, now);
            let wake = self.wake(&run, now);
            tokio::select! {
                biased;
                _ = &mut *stop => return None,
                Some(news) = run.news.recv() => self.take_news(&mut run, news),
                Some(answer) = run.tasks.join_next() => {
                    let Ok(answer) = answer else { return Some(CriError::Panicked) };
                    if let Some(error) = self.take_answer(&mut run, answer) {
                        return Some(error);
                    }
                }
                Some(hint) = self.hints.queue.recv() => self.take_hint(&run, hint),
                Some(update) = self.manifests.recv() => self.take_manifests(update),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Begins what is due: streams, lists, reads.
    fn advance(&mut self, run: &mut Run, now: Instant) {
        self.release_manifests();
        self.ledger.advance(now);
        if let StreamState::RetryAt(at) = run.stream
            && at <= now
        {
            run.follow();
        }
        if self.ledger.take_relist_wish() || self.hints.take_overflow() {
            let soon = run.last_list.map_or(now, |last| last + MIN_LIST_INTERVAL).max(run.no_list_before);
            run.next_list = run.next_list.min(soon);
        }
        if run.next_list <= now && !run.is_listing {
            run.begin_list(now);
        }
        // Before the first list there is nothing to tell a new pod from a known one by: it comes at once.
        while let Some((uid, listed)) = self.ledger.next_read() {
            self.status.count_read();
            run.begin_read(uid, listed, now);
        }
        while let Some(id) = self.ledger.next_lookup() {
            run.begin_lookup(id);
        }
        if !self.has_told_all {
            self.tell_all(run, now);
        }
    }

    fn wake(&self, run: &Run, now: Instant) -> Instant {
        let list = (!run.is_listing).then_some(run.next_list);
        let stream = match run.stream {
            StreamState::RetryAt(at) => Some(at),
            _ => None,
        };
        let due = [list, stream, self.ledger.next_due(), self.statics.next_due()];
        due.into_iter().flatten().min().unwrap_or(now + Duration::from_secs(1))
    }

    fn take_news(&mut self, run: &mut Run, news: StreamNews) {
        match news {
            StreamNews::Up(source) => {
                tracing::info!(source = source.as_str(), "runtime events stand");
                self.status.change(|report| report.events = source);
                let now = Instant::now();
                run.stream = StreamState::Following { source, up: Some(now) };
                run.stream_waits = delays();
                // From here on nothing is missed; what was missed before is found now.
                run.next_list = now;
            }
            StreamNews::Event(event) => {
                self.status.count_event();
                let change = self.ledger.take_event(event, Instant::now());
                self.tell(run, change);
            }
            StreamNews::Down(source, status) => {
                self.status.count_lost_stream();
                self.status.change(|report| report.events = EventSource::None);
                run.lose_stream(source, &status);
            }
        }
    }

    /// Returns an error that ends the session.
    fn take_answer(&mut self, run: &mut Run, answer: Answer) -> Option<CriError> {
        let now = Instant::now();
        match answer {
            Answer::List(began, Ok(listing)) => {
                run.is_listing = false;
                self.status.count_list();
                let took = now.duration_since(began);
                if !listing.pods.is_empty() {
                    // The runtime with the pods is the node's: while it is away no other one may answer for it.
                    self.config.socket = SocketChoice::Path(run.session.socket().to_owned());
                }
                self.statics.take_sandboxes(&listing.sandboxes);
                let is_first = !std::mem::replace(&mut self.has_listed, true);
                let gone = self.ledger.take_listing(&listing, began, is_first, run.refresh());
                self.status.change(|report| {
                    report.last_list = Some(now);
                    report.last_list_took = took;
                    report.pods = listing.pods.len();
                    report.error = None;
                });
                self.tell(run, gone);
            }
            Answer::List(_, Err(error)) => {
                run.is_listing = false;
                run.next_list = run.next_list.min(now + FAILED_LIST_RETRY);
                run.no_list_before = now + FAILED_LIST_PAUSE;
                return self.take_error(error);
            }
            Answer::Read(uid, began, Ok(read)) => {
                let change = self.ledger.take_read(&uid, began, read, now);
                self.tell(run, change);
            }
            Answer::Read(uid, _, Err(error)) => {
                self.ledger.take_failure(&uid, now);
                return self.take_error(error);
            }
            Answer::Owner(id, Ok(owner)) => {
                // Who a sandbox is, which tells a static pod's UID, only the full lists say.
                if self.ledger.take_owner(&id, owner) && self.statics.has_provisional() {
                    self.ledger.wish_for_list();
                }
            }
            Answer::Owner(id, Err(error)) => {
                self.ledger.take_failed_lookup(&id);
                return self.take_error(error);
            }
        }
        None
    }

    fn take_error(&self, error: CriError) -> Option<CriError> {
        self.status.count_failure();
        if error.ends_session() {
            return Some(error);
        }
        let text = chain(&error);
        tracing::debug!(error = text, "the container runtime failed a call");
        self.status.change(|report| report.error = Some(text));
        None
    }

    fn take_hint(&mut self, run: &Run, hint: Hint) {
        // A hint is never news in itself, so that none of these changes a pod.
        match hint {
            // With events the runtime tells of it itself, and later, when it is to be seen.
            Hint::Appeared(pod, id) => self.ledger.expect(&pod, &id, !run.is_told_of_changes()),
            Hint::Ended(id) => self.ledger.expect_end(id, run.is_told_of_exits(), Instant::now()),
            Hint::OutOfMemory(id) => {
                drop(self.ledger.take_event(RuntimeEvent::OutOfMemory(id), Instant::now()));
            }
            Hint::Everything => self.ledger.wish_for_list(),
            Hint::Pod(uid) => self.ledger.force(&uid),
        }
    }

    /// Tells the store of pods that changed; before the first pass is complete they wait for it.
    fn tell(&mut self, run: &Run, changes: impl IntoIterator<Item = Change>) {
        let pods: Vec<_> = changes.into_iter().map(|(uid, pod)| run.live(uid, Some(pod))).collect();
        if self.has_told_all && !pods.is_empty() {
            (self.sink)(Update::Live { pods });
        }
    }

    fn tell_all(&mut self, run: &Run, now: Instant) {
        let Some(pods) = self.ledger.take_first_pass() else { return };
        self.has_told_all = true;
        tracing::info!(pods = pods.len(), "first pass over the container runtime is complete");
        let pods = pods.into_iter().map(|(uid, pod)| run.live(uid, pod)).collect();
        let absent = RuntimePod::absent(run.last_list.unwrap_or(now));
        let absent = Arc::new(LivePod::new(absent, run.surroundings.clone()));
        (self.sink)(Update::LiveSet { pods, absent });
        self.release_manifests();
    }

    fn take_manifests(&mut self, update: Update) {
        if let Some(update) = self.statics.take(update, Instant::now()) {
            (self.sink)(update);
        }
    }

    fn release_manifests(&mut self) {
        if let Some(update) = self.statics.release(Instant::now()) {
            (self.sink)(update);
        }
    }
}

impl Run {
    /// What the store gets of one pod; a pod that could not be read once has no status of ours.
    fn live(&self, uid: PodUid, pod: Option<RuntimePod>) -> (PodUid, Arc<dyn LiveStatus>) {
        let live: Arc<dyn LiveStatus> = match pod {
            Some(pod) => Arc::new(LivePod::new(pod, self.surroundings.clone())),
            None => Arc::new(Unread),
        };
        (uid, live)
    }

    fn begin_list(&mut self, now: Instant) {
        self.is_listing = true;
        self.last_list = Some(now);
        self.next_list = now + self.list_interval(now);
        let session = self.session.clone();
        self.tasks.spawn(async move { Answer::List(now, session.list().await) });
    }

    /// Reads one pod. With what a full list has of it, the answer is as old as that list.
    fn begin_read(&mut self, uid: PodUid, listed: Option<(Instant, ListedPod)>, now: Instant) {
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

    fn begin_lookup(&mut self, id: ContainerId) {
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
    fn is_told_of_changes(&self) -> bool {
        matches!(self.stream, StreamState::Following { up: Some(_), .. })
    }

    /// Whether the stream that stands tells of exits themselves, and soon; CRI's tells once its status calls show them.
    fn is_told_of_exits(&self) -> bool {
        matches!(self.stream, StreamState::Following { source: EventSource::Containerd, up: Some(_) })
    }

    fn refresh(&self) -> Duration {
        if self.is_told_of_exits() { REFRESH_WITH_EVENTS } else { REFRESH }
    }

    fn follow(&mut self) {
        let Some(source) = self.sources.first() else {
            self.stream = StreamState::Absent;
            return;
        };
        self.stream = StreamState::Following { source: *source, up: None };
        self.streams.spawn(events::follow(self.session.clone(), *source, self.news_sender.clone()));
    }

    fn lose_stream(&mut self, source: EventSource, status: &tonic::Status) {
        let now = Instant::now();
        let source = source.as_str();
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

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
