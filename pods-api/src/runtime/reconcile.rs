//! The loop that keeps the store in step with the runtime: lists, reads, events, hints.
//!
//! One task on the `runtime` thread owns all state; lists and reads are tasks of their own that answer to it, so that
//! one that hangs holds up nothing else. A list is taken each second, or, while an event stream stands, each 30 s. When
//! the connection ends, what was known stays as it is until a runtime answers again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::cri::{CriError, Session, SocketChoice};
use super::events::{EventSource, RuntimeEvent, StreamNews};
use super::hints::{Hint, HintQueue, RuntimeHints};
use super::ledger::{Change, Ledger};
use super::live::Surroundings;
use super::report::{RuntimeStatus, chain};
use super::run::{Answer, Run, delays};
use super::source::RuntimeConfig;
use super::statics::StaticPods;
use crate::pod::{LiveStatus, PodUid, Update};

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
        let surroundings = Surroundings {
            runtime_name: session.version().name.clone(),
            node: self.config.node.clone(),
            divergences: self.status.divergences().clone(),
            hints: self.hint_sender.clone(),
        };
        let mut run = Run::new(session, surroundings, &self.config);
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
        run.follow_if_due(now);
        if self.ledger.take_relist_wish() || self.hints.take_overflow() {
            run.list_soon(now);
        }
        run.list_if_due(now);
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
        let due = [run.next_due(), self.ledger.next_due(), self.statics.next_due()];
        due.into_iter().flatten().min().unwrap_or(now + Duration::from_secs(1))
    }

    fn take_news(&mut self, run: &mut Run, news: StreamNews) {
        match news {
            StreamNews::Up(source) => {
                tracing::info!(source = source.as_str(), "runtime events stand");
                self.status.change(|report| report.events = source);
                run.gain_stream(source);
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
                run.end_list();
                self.status.count_list();
                let took = now.duration_since(began);
                if !listing.pods.is_empty() {
                    // The runtime with the pods is the node's: while it is away no other one may answer for it.
                    self.config.socket = SocketChoice::Path(run.session().socket().to_owned());
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
                run.fail_list(now);
                return self.take_error(error);
            }
            Answer::Read(uid, began, Ok(read)) => {
                let change = self.ledger.take_read(&uid, began, read, now);
                self.tell(run, change);
            }
            Answer::Read(uid, _, Err(error)) => {
                if self.ledger.take_failure(&uid, now) {
                    self.tell_live(vec![run.live(uid, None)]);
                }
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
        self.tell_live(changes.into_iter().map(|(uid, pod)| run.live(uid, Some(pod))).collect());
    }

    fn tell_live(&mut self, pods: Vec<(PodUid, Arc<dyn LiveStatus>)>) {
        if self.has_told_all && !pods.is_empty() {
            (self.sink)(Update::Live { pods });
        }
    }

    fn tell_all(&mut self, run: &Run, now: Instant) {
        let Some(pods) = self.ledger.take_first_pass() else { return };
        self.has_told_all = true;
        tracing::info!(pods = pods.len(), "first pass over the container runtime is complete");
        let pods = pods.into_iter().map(|(uid, pod)| run.live(uid, pod)).collect();
        (self.sink)(Update::LiveSet { pods, absent: run.absent(now) });
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
