//! Whether a connection leads straight to a server process of a primary, or to a pooler that hands it another one at
//! each transaction.
//!
//! A server tells each client the number of its process, to be named when a query is to be cancelled. A pooler makes that
//! number up. The driver does not show it, but it writes it into a cancel request, which is made here and sent nowhere.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Whether the process that the client was told of is the one that answers, and its server is no standby. It cannot become
/// one without a restart, which ends the connection.
pub(crate) async fn is_direct_to_primary(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let sql = "SELECT pg_backend_pid() WHERE NOT pg_is_in_recovery()";
    let answer = client.query_typed(sql, &[]).await?;
    let backend = answer.first().map(|row| row.get::<_, i32>(0));
    let mut nowhere = Nowhere::default();
    client.cancel_token().cancel_query_raw(&mut nowhere, PassThrough).await?;
    Ok(backend.is_some() && nowhere.process() == backend)
}

/// Takes what is written and sends it nowhere. Asked whether it speaks TLS, it says yes.
#[derive(Debug, Default)]
struct Nowhere(Vec<u8>);

impl Nowhere {
    /// The process that a cancel request names: the last 16 bytes are its length, its code, the process and a secret.
    fn process(&self) -> Option<i32> {
        let request = self.0.last_chunk::<16>()?;
        Some(i32::from_be_bytes(*request[8..].first_chunk()?))
    }
}

impl AsyncRead for Nowhere {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buf.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Nowhere {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for &mut Nowhere {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

struct PassThrough;

impl<'a> TlsConnect<&'a mut Nowhere> for PassThrough {
    type Stream = &'a mut Nowhere;
    type Error = io::Error;
    type Future = Ready<io::Result<&'a mut Nowhere>>;

    fn connect(self, stream: &'a mut Nowhere) -> Self::Future {
        ready(Ok(stream))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection;
    use crate::target::Target;

    /// What is found out about the server that a variable names; `None` where there is none.
    async fn looks_direct(variable: &str, parameters: &str) -> Option<bool> {
        let url = std::env::var(variable).ok()?;
        let separator = if url.contains('?') { '&' } else { '?' };
        let limit = Duration::from_secs(5);
        let target =
            Target::parse("database", &format!("{url}{separator}{parameters}"), limit, limit).unwrap();
        let (client, _task) = connection::start(&target, limit).await.unwrap();
        Some(is_direct_to_primary(&client).await.unwrap())
    }

    #[tokio::test]
    async fn a_server_is_told_from_a_pooler() {
        for mode in ["sslmode=disable", "sslmode=prefer"] {
            assert_ne!(looks_direct("POSTHASTE_TEST_POSTGRES", mode).await, Some(false), "{mode}");
        }
        assert_ne!(looks_direct("POSTHASTE_TEST_POSTGRES_POOLER", "sslmode=disable").await, Some(true));
    }

    #[test]
    fn the_process_is_read_from_a_cancel_request_with_and_without_a_request_for_tls() {
        let request = [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 1, 2, 9, 9, 9, 9];
        assert_eq!(Nowhere(request.to_vec()).process(), Some(258));
        let after_tls: Vec<_> = [0, 0, 0, 8, 4, 210, 22, 47].into_iter().chain(request).collect();
        assert_eq!(Nowhere(after_tls).process(), Some(258));
        assert_eq!(Nowhere(vec![0; 8]).process(), None);
    }
}
