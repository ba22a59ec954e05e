//! TLS, ended by a proxy before the broker.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use lapin::types::FieldTable;
use posthaste_rabbitmq::RabbitPublisher;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use support::{Place, at, options, outcome, publish, record, unavailable};

/// A proxy for `localhost`, and the file with the certificate to trust.
async fn proxy(to: String, dir: &tempfile::TempDir) -> (SocketAddr, PathBuf) {
    let mut ca_params = CertificateParams::new(Vec::new()).unwrap();
    ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = ca_params.self_signed(&ca_key).unwrap();
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, ca.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &Issuer::new(ca_params, ca_key)).unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, to) = (acceptor.clone(), to.clone());
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, file)
}

#[tokio::test]
async fn the_broker_is_trusted_by_its_certificate_and_its_name_or_not_at_all() {
    let place = Place::new().await;
    let queue = place.queue("#", FieldTable::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let (address, file) = proxy(support::address(&place.url), &dir).await;
    let secure = |host: &str| {
        let url = at(&place.url, format!("{host}:{}", address.port())).replace("amqp:", "amqps:");
        options(&url).exchange(&place.exchange)
    };
    let trusted = RabbitPublisher::start(secure("localhost").ca_file(&file)).unwrap();
    for n in 0..100 {
        assert_eq!(outcome(&publish(&trusted, record(&n.to_string())).await), Ok(()));
    }
    assert_eq!(place.take(&queue).await.len(), 100);
    trusted.close().await;
    let stranger = RabbitPublisher::start(secure("localhost")).unwrap();
    assert_eq!(outcome(&publish(&stranger, record("r")).await), unavailable("TLS handshake failed"));
    let other_name = RabbitPublisher::start(secure("127.0.0.1").ca_file(&file)).unwrap();
    assert_eq!(outcome(&publish(&other_name, record("r")).await), unavailable("TLS handshake failed"));
    let plain = at(&place.url, format!("localhost:{}", address.port()));
    let plain = RabbitPublisher::start(options(&plain)).unwrap();
    let class = publish(&plain, record("r")).await.unwrap_err().class();
    assert_eq!(class, posthaste::FailureClass::Unavailable);
}
