//! One channel: it sends what comes, and tells what became of it. It is opened anew when the broker closes it.
//!
//! Only this task publishes on its channel. lapin counts a publish and queues its frames in two steps, so two tasks on
//! one channel could get each other's confirmations.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lapin::Channel;
use posthaste::{FailureClass, PublishError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use crate::failure::{CHANNEL_CLOSED, NACKED, NOT_CONFIRMED, Trouble, UNROUTABLE, blamed, code};
use crate::in_flight::{Answer, InFlight, Job, Sent};
use crate::link::Link;

/// When so many publishes that nobody waits for any more are still not confirmed, the channel is opened anew.
const MAX_FORGOTTEN: usize = 1_000;

/// How an open channel ended.
enum End {
    /// The link is still good.
    Channel,
    /// So has the link.
    Link,
}

/// What a channel has to do.
enum Work {
    Settled(Vec<Sent>),
    Expired,
    NoMoreJobs,
}

struct Courier {
    link: Arc<Link>,
    jobs: UnboundedReceiver<Job>,
    in_flight: InFlight,
}

/// Works until the link has ended. Nobody is left waiting.
pub(crate) async fn run(link: Arc<Link>, jobs: UnboundedReceiver<Job>) {
    let mut courier = Courier { link: link.clone(), jobs, in_flight: InFlight::default() };
    let trouble = tokio::select! {
        biased;
        trouble = link.ended() => trouble,
        () = courier.work() => link.ended().await,
    };
    for mut sent in courier.in_flight.take_all() {
        if trouble.blames() {
            link.suspects.add(sent.id);
        }
        sent.tell(Err(trouble.unavailable()));
    }
    courier.jobs.close();
    while let Ok(job) = courier.jobs.try_recv() {
        refuse(job, &trouble);
    }
}

/// An error: nobody waits any more.
fn refuse(job: Job, trouble: &Trouble) {
    let _ = job.reply.send(Err(trouble.unavailable()));
}

impl Courier {
    async fn work(&mut self) {
        loop {
            self.wait_for_exchange().await;
            let channel = match self.link.open_channel().await {
                Ok(channel) => Arc::new(channel),
                Err(trouble) => return self.link.end(trouble),
            };
            match self.serve(&channel).await {
                End::Channel => tracing::debug!("a channel is opened anew"),
                End::Link => return,
            }
        }
    }

    /// As long as the exchange is missing, publishing to it would only close the channel.
    async fn wait_for_exchange(&mut self) {
        let mut exchange = self.link.exchange();
        let mut there = pin!(exchange.wait_for(|missing| !missing));
        loop {
            tokio::select! {
                biased;
                _ = &mut there => return,
                Some(job) = self.jobs.recv() => refuse(job, &Trouble::EXCHANGE_MISSING),
            }
        }
    }

    async fn serve(&mut self, channel: &Arc<Channel>) -> End {
        let far = Duration::from_hours(1);
        let mut expiry = pin!(sleep_until(Instant::now() + far));
        loop {
            let work = poll_fn(|cx| {
                if let Poll::Ready(work) = self.poll(cx, channel) {
                    return Poll::Ready(work);
                }
                // Deadlines come in the order of sending, so that only the first one matters.
                let next = self.in_flight.awaited().next().map(|sent| sent.deadline);
                if let Some(next) = next
                    && expiry.deadline() != next
                {
                    expiry.as_mut().reset(next);
                }
                expiry.as_mut().poll(cx).map(|()| {
                    expiry.as_mut().reset(Instant::now() + far);
                    Work::Expired
                })
            });
            let end = match work.await {
                Work::Settled(settled) => self.settle(settled),
                Work::Expired => self.expire(),
                Work::NoMoreJobs => Some(End::Link),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, channel: &Arc<Channel>) -> Poll<Work> {
        while let Poll::Ready(job) = self.jobs.poll_recv(cx) {
            let Some(job) = job else { return Poll::Ready(Work::NoMoreJobs) };
            if job.reply.is_closed() {
                continue;
            }
            self.link.sent();
            let settings = &self.link.settings;
            self.in_flight.send(channel.clone(), settings.exchange.clone(), settings.mandatory, job);
        }
        self.in_flight.poll_settled(cx).map(Work::Settled)
    }

    fn settle(&mut self, settled: Vec<Sent>) -> Option<End> {
        let mut lost = Vec::new();
        let mut cause = None;
        for mut sent in settled {
            let result = match sent.answer() {
                Answer::Acked => Ok(()),
                Answer::Nacked => Err(PublishError::failed(NACKED)),
                Answer::Returned => Err(PublishError::failed(UNROUTABLE)),
                Answer::Lost(error) => {
                    // One says why; the others only that the channel is closed.
                    if cause.is_none() || code(&error).is_some() {
                        cause = Some(error);
                    }
                    lost.push(sent);
                    continue;
                }
            };
            self.link.settled(1);
            self.link.confirmed();
            self.link.suspects.clear(sent.id);
            sent.tell(result);
        }
        let cause = cause?;
        lost.extend(self.in_flight.take_all());
        let (count, alone) = (lost.len(), lost.len() == 1 && self.link.in_flight() == 1);
        let end = self.lose(lost, alone, cause);
        // What went down with the connection stays counted, or the last of its channels would seem to have been alone.
        if matches!(end, End::Channel) {
            self.link.settled(count);
        }
        Some(end)
    }

    /// The channel was closed with these under way. `alone`: nothing else was, on any channel.
    fn lose(&self, mut lost: Vec<Sent>, alone: bool, cause: lapin::Error) -> End {
        let closed = code(&cause);
        let connected = self.link.is_connected();
        // The broker says 404 of an exchange and of nothing else that is published to.
        if closed == Some(404) {
            self.link.exchange_is_missing();
            tell_all(&mut lost, &Trouble::EXCHANGE_MISSING.because(cause));
            return End::Channel;
        }
        let of_channel = matches!(closed, Some(311 | 313 | 403 | 405 | 406)) && connected;
        if of_channel {
            match (closed, lost.as_mut_slice()) {
                (Some(403), _) if !self.link.lets_others_in() => {
                    tell_all(&mut lost, &Trouble::ACCESS_REFUSED.because(cause));
                }
                (Some(code), [guilty]) => self.blame(guilty, code, cause),
                _ => self.suspect(lost, &Trouble::CHANNEL_CLOSED.because(cause)),
            }
            return End::Channel;
        }
        if closed.is_none() && connected {
            tell_all(&mut lost, &Trouble::CHANNEL_CLOSED.because(cause));
            return End::Channel;
        }
        let trouble = Trouble::of_connection(cause.clone());
        match (closed, lost.as_mut_slice()) {
            (Some(code), [guilty]) if alone && trouble.blames() => self.blame(guilty, code, cause),
            _ if trouble.blames() => self.suspect(lost, &trouble),
            _ => tell_all(&mut lost, &trouble),
        }
        self.link.end(trouble);
        End::Link
    }

    fn blame(&self, guilty: &mut Sent, code: u16, cause: lapin::Error) {
        self.link.suspects.clear(guilty.id);
        let (class, reason) = blamed(code);
        if class == FailureClass::Failed {
            // It would take others with it again.
            self.link.suspects.add(guilty.id);
        }
        guilty.tell(Err(PublishError::new(class, reason).with_source(cause)));
    }

    fn suspect(&self, lost: Vec<Sent>, trouble: &Trouble) {
        for mut sent in lost {
            self.link.suspects.add(sent.id);
            sent.tell(Err(trouble.unavailable()));
        }
    }

    /// The time of some is over.
    fn expire(&mut self) -> Option<End> {
        let (now, patience) = (Instant::now(), self.link.settings.publish_timeout / 2);
        let (blocked, answers) = (self.link.is_blocked(), self.link.answers());
        for sent in self.in_flight.awaited().filter(|sent| sent.deadline <= now) {
            // One that waited long for a connection has not given it much time.
            let in_vain = now.duration_since(sent.since) >= patience;
            sent.tell(Err(match (blocked, answers, in_vain) {
                (true, ..) => Trouble::BLOCKED.unavailable(),
                // The broker answers, but not for this one: its queue is in trouble.
                (false, true, true) => PublishError::failed(NOT_CONFIRMED),
                (false, _, false) => Trouble::NO_ANSWER.unavailable(),
                (false, false, true) => {
                    self.link.end(Trouble::NO_ANSWER);
                    return Some(End::Link);
                }
            }));
        }
        let forgotten = self.in_flight.len() - self.in_flight.awaited().count();
        if blocked || forgotten < MAX_FORGOTTEN {
            return None;
        }
        let mut lost = self.in_flight.take_all();
        self.link.settled(lost.len());
        for sent in &mut lost {
            sent.tell(Err(PublishError::unavailable(CHANNEL_CLOSED)));
        }
        Some(End::Channel)
    }
}

fn tell_all(lost: &mut [Sent], trouble: &Trouble) {
    for sent in lost {
        sent.tell(Err(trouble.unavailable()));
    }
}
