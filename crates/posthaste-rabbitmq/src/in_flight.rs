//! What was sent on one channel and is not confirmed yet.
//!
//! lapin hands a returned message to whichever confirmation it completes next. Where the broker confirms several at
//! once, or not in order, that is another message's, and the unroutable one would count as published. So returned
//! messages are matched here, by message id and routing key; `returns.rs` says when that is certain.
//!
//! It rests on seeing confirmations in the order in which lapin completes them. Looks go through all of them until one
//! brings nothing new: what is seen then was completed before what is not.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation, PublisherConfirm};
use posthaste::{MessageId, PublishError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::content::Content;
use crate::returns::{Mark, Returns};

/// A record to be published.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) content: Content,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<(), PublishError>>,
}

/// What became of a publish.
#[derive(Debug)]
pub(crate) enum Answer {
    Acked,
    Nacked,
    /// The broker sent it back: no queue takes it.
    Returned,
    Lost(lapin::Error),
}

/// A record that was sent.
pub(crate) struct Sent {
    pub(crate) id: MessageId,
    pub(crate) since: Instant,
    pub(crate) deadline: Instant,
    /// `None` once nobody waits any more.
    pub(crate) reply: Option<oneshot::Sender<Result<(), PublishError>>>,
    message_id: ShortString,
    routing_key: ShortString,
    step: Step,
    mark: Mark,
}

enum Step {
    Sending(BoxFuture<'static, lapin::Result<PublisherConfirm>>),
    Waiting(PublisherConfirm),
    Done(Result<Verdict, lapin::Error>),
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Ack,
    Nack,
    /// There are no confirms on this channel. It must not count as one.
    None,
}

impl Sent {
    /// Tells who waits for it.
    pub(crate) fn tell(&mut self, result: Result<(), PublishError>) {
        if let Some(reply) = self.reply.take() {
            // An error: nobody waits any more.
            let _ = reply.send(result);
        }
    }

    /// What became of it, once it is settled.
    pub(crate) fn answer(&self) -> Answer {
        match &self.step {
            Step::Done(Ok(Verdict::Ack)) if self.mark.returned => Answer::Returned,
            Step::Done(Ok(Verdict::Ack)) => Answer::Acked,
            Step::Done(Ok(Verdict::Nack)) => Answer::Nacked,
            Step::Done(Err(error)) => Answer::Lost(error.clone()),
            Step::Done(Ok(Verdict::None)) | Step::Sending(_) | Step::Waiting(_) => {
                Answer::Lost(lapin::ErrorKind::FutureCompleted.into())
            }
        }
    }

    /// Whether this look has settled it. A returned message that came along, its own or not, goes to `messages`.
    fn look(&mut self, cx: &mut Context<'_>, messages: &mut Vec<BasicReturnMessage>) -> bool {
        if let Step::Sending(sending) = &mut self.step {
            match sending.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(confirm)) => self.step = Step::Waiting(confirm),
                Poll::Ready(Err(error)) => {
                    self.step = Step::Done(Err(error));
                    return true;
                }
            }
        }
        let Step::Waiting(confirm) = &mut self.step else { return false };
        let Poll::Ready(result) = Pin::new(confirm).poll(cx) else { return false };
        self.step = Step::Done(result.map(|confirmation| {
            let verdict = match &confirmation {
                Confirmation::Ack(_) => Verdict::Ack,
                Confirmation::Nack(_) => Verdict::Nack,
                Confirmation::NotRequested => Verdict::None,
            };
            let message = confirmation.take_message();
            self.mark.carried = message.is_some();
            messages.extend(message);
            verdict
        }));
        true
    }

    fn error(&self) -> Option<&lapin::Error> {
        match &self.step {
            Step::Done(Err(error)) => Some(error),
            _ => None,
        }
    }

    fn is_settled(&self) -> bool {
        matches!(self.step, Step::Done(_))
    }

    fn is(&self, message: &BasicReturnMessage) -> bool {
        message.delivery.routing_key == self.routing_key
            && message.delivery.properties.message_id().as_ref() == Some(&self.message_id)
    }
}

/// Everything under way on one channel, in the order in which it was sent.
#[derive(Default)]
pub(crate) struct InFlight {
    sent: Vec<Sent>,
    returns: Returns,
}

impl InFlight {
    /// Sends a record, once it is looked at.
    pub(crate) fn send(&mut self, channel: Arc<Channel>, exchange: ShortString, mandatory: bool, job: Job) {
        let Content { id, message_id, routing_key, properties, payload, .. } = job.content;
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let key = routing_key.clone();
        let sending =
            async move { channel.basic_publish(exchange, key, options, &payload, properties).await }.boxed();
        self.sent.push(Sent {
            id,
            since: Instant::now(),
            deadline: job.deadline,
            reply: Some(job.reply),
            message_id,
            routing_key,
            step: Step::Sending(sending),
            mark: self.returns.publish(),
        });
    }

    /// What is settled now, in the order in which it was sent.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Sent>> {
        let (mut any, mut messages) = (false, Vec::new());
        loop {
            let mut news = false;
            for sent in &mut self.sent {
                news |= sent.look(cx, &mut messages);
            }
            if !news {
                break;
            }
            any = true;
        }
        if !any {
            return Poll::Pending;
        }
        for message in messages {
            self.match_return(&message);
        }
        let owed = self.sent.iter().any(|sent| sent.mark.returned && !sent.is_settled());
        let lost = self.sent.iter().find_map(Sent::error).cloned();
        let returns = &self.returns;
        let certain = |sent: &mut Sent| {
            if !sent.is_settled() || returns.certain(&sent.mark, owed || lost.is_some()) {
                return sent.is_settled();
            }
            // No further confirmation comes that could tell.
            if let Some(error) = &lost {
                sent.step = Step::Done(Err(error.clone()));
            }
            lost.is_some()
        };
        let settled: Vec<_> = self.sent.extract_if(.., certain).collect();
        if settled.is_empty() { Poll::Pending } else { Poll::Ready(settled) }
    }

    fn match_return(&mut self, message: &BasicReturnMessage) {
        // The same message may be under way twice; returns come in the order of sending.
        if let Some(sent) = self.sent.iter_mut().find(|sent| !sent.mark.returned && sent.is(message)) {
            self.returns.returned(&mut sent.mark);
        } else {
            tracing::debug!("a message was returned that nobody waits for");
        }
    }

    /// Those for whom somebody waits.
    pub(crate) fn awaited(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.sent.iter_mut().filter(|sent| sent.reply.is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}
