//! `--http`: `/livez`, `/readyz` and `/metrics`, and nothing else. Whoever asks slowly or too often is in nobody's way.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::health::Health;
use crate::metrics::{self, Metrics, State};

/// The most connections at a time; further ones wait to be taken.
const MOST_CONNECTIONS: usize = 64;
/// How long a request's head may take, and how long a connection may last.
const HEAD: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(120);
/// After an error of the listener itself (no more file descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// What there is to tell.
pub(crate) struct Page {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) state: State,
}

/// A server. Dropped, it is gone.
pub(crate) struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts to listen.
pub(crate) async fn serve(address: SocketAddr, page: Arc<Page>) -> Result<Server, Failure> {
    let cannot =
        |error| Failure::failed(format!("{address} cannot be listened at: {error}")).hint("see --http");
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    tracing::info!(%address, "serving /livez, /readyz and /metrics");
    Ok(Server(tokio::spawn(accept(listener, page))))
}

async fn accept(listener: TcpListener, page: Arc<Page>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // It is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let page = page.clone();
                tokio::spawn(async move {
                    // Too late: whoever it is, comes again.
                    let _ = tokio::time::timeout(CONNECTION, connection(stream, page)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the HTTP port cannot be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, page: Arc<Page>) {
    let service = service_fn(move |request| {
        let page = page.clone();
        async move { Ok::<_, Infallible>(answer(&request, &page).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::trace!(%error, "an HTTP connection ended");
    }
}

async fn answer(request: &Request<Incoming>, page: &Page) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/livez" if page.health.is_alive() => text(StatusCode::OK, "ok\n"),
        "/livez" => text(StatusCode::SERVICE_UNAVAILABLE, "the relay's loop is stuck\n"),
        "/readyz" => readiness(&page.health),
        "/metrics" => figures(page).await,
        "/" => text(StatusCode::OK, "posthaste: /livez /readyz /metrics\n"),
        _ => text(StatusCode::NOT_FOUND, "there is /livez, /readyz and /metrics\n"),
    }
}

fn readiness(health: &Health) -> Response<Full<Bytes>> {
    let readiness = health.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match serde_json::to_string(&readiness) {
        Ok(json) => respond(status, "application/json", json + "\n"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "no answer\n"),
    }
}

async fn figures(page: &Page) -> Response<Full<Bytes>> {
    page.state.set_ready(page.health.readiness().ready);
    if let Some(table) = page.state.table() {
        table.look().await;
    }
    match page.metrics.text() {
        Ok(figures) => respond(StatusCode::OK, metrics::CONTENT_TYPE, figures),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "no figures\n"),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
