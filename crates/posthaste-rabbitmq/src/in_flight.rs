//! What was sent on one channel and is not confirmed yet.
//!
//! lapin hands a returned message to whichever confirmation it completes next. Where the broker confirms several at
//! once, or not in order, that is another message's, and the unroutable one would count as published. So returned
//! messages are matched here, by message id and routing key.
//!
//! A return comes before its own confirmation, and lapin completes confirmations one after another. So when a
//! confirmation is seen, whatever holds its return was completed before it, and the next look at all of them finds it.
//! Nothing is settled until a look at all of them has brought nothing new.

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
    returned: bool,
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
            Step::Done(Ok(Verdict::Ack)) if self.returned => Answer::Returned,
            Step::Done(Ok(Verdict::Ack)) => Answer::Acked,
            Step::Done(Ok(Verdict::Nack)) => Answer::Nacked,
            Step::Done(Err(error)) => Answer::Lost(error.clone()),
            Step::Done(Ok(Verdict::None)) | Step::Sending(_) | Step::Waiting(_) => {
                Answer::Lost(lapin::ErrorKind::FutureCompleted.into())
            }
        }
    }

    /// Whether this look has settled it. A returned message that came along, its own or not, goes to `returns`.
    fn look(&mut self, cx: &mut Context<'_>, returns: &mut Vec<BasicReturnMessage>) -> bool {
        loop {
            self.step = match &mut self.step {
                Step::Sending(sending) => match sending.as_mut().poll(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(confirm)) => Step::Waiting(confirm),
                    Poll::Ready(Err(error)) => Step::Done(Err(error)),
                },
                Step::Waiting(confirm) => match Pin::new(confirm).poll(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(result) => Step::Done(result.map(|confirmation| {
                        let verdict = match &confirmation {
                            Confirmation::Ack(_) => Verdict::Ack,
                            Confirmation::Nack(_) => Verdict::Nack,
                            Confirmation::NotRequested => Verdict::None,
                        };
                        returns.extend(confirmation.take_message());
                        verdict
                    })),
                },
                Step::Done(_) => return true,
            };
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
pub(crate) struct InFlight(Vec<Sent>);

impl InFlight {
    /// Sends a record, once it is looked at.
    pub(crate) fn send(&mut self, channel: Arc<Channel>, exchange: ShortString, mandatory: bool, job: Job) {
        let Content { id, message_id, routing_key, properties, payload, .. } = job.content;
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let key = routing_key.clone();
        let sending =
            async move { channel.basic_publish(exchange, key, options, &payload, properties).await }.boxed();
        self.0.push(Sent {
            id,
            since: Instant::now(),
            deadline: job.deadline,
            reply: Some(job.reply),
            message_id,
            routing_key,
            step: Step::Sending(sending),
            returned: false,
        });
    }

    /// What is settled now, in the order in which it was sent.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Sent>> {
        let (mut settled, mut returns) = (0, Vec::new());
        loop {
            let now = self.0.iter_mut().map(|sent| usize::from(sent.look(cx, &mut returns))).sum();
            if now == settled {
                break;
            }
            settled = now;
        }
        for message in returns {
            // The same message may be under way twice; the earlier one is answered first.
            if let Some(sent) = self.0.iter_mut().find(|sent| !sent.returned && sent.is(&message)) {
                sent.returned = true;
            } else {
                tracing::debug!("a message was returned that nobody waits for");
            }
        }
        if settled == 0 {
            return Poll::Pending;
        }
        Poll::Ready(self.0.extract_if(.., |sent| sent.is_settled()).collect())
    }

    /// Those for whom somebody waits.
    pub(crate) fn awaited(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.0.iter_mut().filter(|sent| sent.reply.is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.0)
    }
}
