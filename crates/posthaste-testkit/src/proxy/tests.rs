use std::io::ErrorKind;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant, timeout};

use super::{Fault, FaultProxy};

/// Long enough for a busy machine, and not reached when all is well.
const ENOUGH: Duration = Duration::from_secs(30);
/// Something that would come comes within this time, or the test proves less.
const A_WHILE: Duration = Duration::from_millis(60);

/// A server that answers each byte with the next one, and tells what it got.
struct Echo {
    address: String,
    got: tokio::sync::watch::Receiver<Vec<u8>>,
}

async fn echo(step: u8) -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, got) = tokio::sync::watch::channel(Vec::new());
    let sender = Arc::new(sender);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Ok(byte) = client.read_u8().await {
                    sender.send_modify(|got| got.push(byte));
                    client.write_u8(byte.wrapping_add(step)).await.unwrap();
                }
            });
        }
    });
    Echo { address, got }
}

async fn bed() -> (Echo, FaultProxy, TcpStream) {
    let echo = echo(1).await;
    let proxy = FaultProxy::start(&echo.address);
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    (echo, proxy, client)
}

async fn ask(client: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    timeout(ENOUGH, async {
        client.write_u8(byte).await?;
        client.read_u8().await
    })
    .await
    .expect("an answer, or an error")
}

#[tokio::test]
async fn everything_comes_through_and_so_does_the_end() {
    let (_echo, proxy, mut client) = bed().await;
    for byte in 0..100 {
        assert_eq!(ask(&mut client, byte).await.unwrap(), byte + 1);
    }
    assert_eq!((proxy.open(), proxy.accepted()), (1, 1));
    client.shutdown().await.unwrap();
    assert_eq!(
        timeout(ENOUGH, client.read_u8()).await.unwrap().unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    proxy.until_open(|open| open == 0).await;
}

#[tokio::test]
async fn a_blackhole_holds_everything_back_until_it_is_healed() {
    let (echo, proxy, mut client) = bed().await;
    ask(&mut client, 1).await.unwrap();
    proxy.set(Fault::Blackhole);
    client.write_u8(7).await.unwrap();
    assert!(timeout(A_WHILE, client.read_u8()).await.is_err());
    assert_eq!(*echo.got.borrow(), [1], "the server got nothing either");
    let mut late = TcpStream::connect(proxy.address()).await.unwrap();
    late.write_u8(20).await.unwrap();
    assert!(timeout(A_WHILE, late.read_u8()).await.is_err());
    proxy.heal();
    assert_eq!(timeout(ENOUGH, client.read_u8()).await.unwrap().unwrap(), 8);
    assert_eq!(timeout(ENOUGH, late.read_u8()).await.unwrap().unwrap(), 21);
}

#[tokio::test]
async fn mute_lets_the_question_through_and_no_answer() {
    let (mut echo, proxy, mut client) = bed().await;
    proxy.set(Fault::Mute);
    client.write_u8(7).await.unwrap();
    timeout(ENOUGH, echo.got.wait_for(|got| got == &[7])).await.unwrap().unwrap();
    assert!(timeout(A_WHILE, client.read_u8()).await.is_err());
    proxy.heal();
    assert_eq!(timeout(ENOUGH, client.read_u8()).await.unwrap().unwrap(), 8);
}

#[tokio::test]
async fn a_reset_ends_connections_and_new_ones() {
    let (_echo, proxy, mut client) = bed().await;
    ask(&mut client, 1).await.unwrap();
    proxy.set(Fault::Reset);
    assert_eq!(
        timeout(ENOUGH, client.read_u8()).await.unwrap().unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let mut late = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(timeout(ENOUGH, late.read_u8()).await.unwrap().is_err());
    proxy.heal();
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut again, 1).await.unwrap(), 2);
}

#[tokio::test]
async fn refused_connections_are_refused_and_the_port_is_kept() {
    let (_echo, proxy, mut client) = bed().await;
    for _ in 0..20 {
        ask(&mut client, 1).await.unwrap();
        proxy.set(Fault::Refuse);
        assert!(timeout(ENOUGH, client.read_u8()).await.unwrap().is_err());
        let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        proxy.heal();
        client = TcpStream::connect(proxy.address()).await.unwrap();
    }
}

#[tokio::test]
async fn half_closed_the_client_reads_the_end_and_the_server_notices_nothing() {
    let (echo, proxy, mut client) = bed().await;
    ask(&mut client, 1).await.unwrap();
    proxy.set(Fault::HalfClose);
    assert_eq!(
        timeout(ENOUGH, client.read_u8()).await.unwrap().unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    client.write_u8(9).await.unwrap();
    proxy.heal();
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut again, 30).await.unwrap(), 31);
    assert_eq!(*echo.got.borrow(), [1, 30]);
    proxy.until_open(|open| open == 2).await;
    drop(client);
    proxy.until_open(|open| open == 1).await;
}

#[tokio::test]
async fn slow_connections_are_slow_and_lose_nothing() {
    let (_echo, proxy, mut client) = bed().await;
    for (fault, at_least) in [
        (Fault::Delay(Duration::from_millis(40)), Duration::from_millis(80)),
        (Fault::Throttle(100), Duration::from_millis(20)),
    ] {
        proxy.set(fault);
        let began = Instant::now();
        assert_eq!(ask(&mut client, 1).await.unwrap(), 2);
        assert!(began.elapsed() >= at_least, "{fault:?}: {:?}", began.elapsed());
    }
    proxy.set(Fault::Delay(Duration::from_hours(1)));
    client.write_u8(3).await.unwrap();
    assert!(timeout(A_WHILE, client.read_u8()).await.is_err());
    proxy.heal();
    assert_eq!(timeout(ENOUGH, client.read_u8()).await.unwrap().unwrap(), 4);
}

#[tokio::test]
async fn further_connections_go_where_they_are_led() {
    let (_echo, proxy, mut client) = bed().await;
    // Until then it may still be waiting to be let in.
    assert_eq!(ask(&mut client, 1).await.unwrap(), 2);
    let other = echo(2).await;
    proxy.lead_to(&other.address);
    let mut late = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut late, 1).await.unwrap(), 3);
    assert_eq!(ask(&mut client, 1).await.unwrap(), 2, "where it was");
}

#[tokio::test]
async fn nothing_is_left_of_a_proxy_that_is_dropped() {
    let (_echo, proxy, mut client) = bed().await;
    ask(&mut client, 1).await.unwrap();
    let address = proxy.address();
    drop(proxy);
    assert!(timeout(ENOUGH, client.read_u8()).await.unwrap().is_err());
    assert!(TcpStream::connect(address).await.is_err());
}
