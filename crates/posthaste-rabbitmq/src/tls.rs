//! TLS by rustls. The broker's certificate and name are always checked.

use std::io;
use std::path::Path;
use std::sync::Arc;

use posthaste::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::target::invalid;

/// Makes TLS connections.
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// `ca_file`: a PEM file to trust instead of what the system trusts.
    pub(crate) fn new(ca_file: Option<&Path>) -> Result<Self, Error> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| invalid("TLS cannot be set up").with_source(source))?
            .with_root_certificates(roots(ca_file)?)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|source| io::Error::new(io::ErrorKind::InvalidInput, source))?;
        self.0.connect(name, stream).await
    }
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(file) => {
            let unreadable = |source| {
                invalid(format!("the CA file {} cannot be read as PEM certificates", file.display()))
                    .with_source(source)
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?).map_err(|source| {
                    invalid(format!("the CA file {} holds a certificate that is no root", file.display()))
                        .with_source(source)
                })?;
            }
        }
    }
    if roots.is_empty() {
        return Err(invalid("no certificate to check the broker with; name a PEM file as ca_file"));
    }
    Ok(roots)
}
