//! Files that are wrong, and files that change.

use super::authority::{Authority, both, dialling, serving};
use super::pipe::connected;
use crate::error::Error;
use crate::stream::tls::{Client, Identity, Server};

fn refusal(identity: Identity) -> String {
    match Server::new(serving(identity)) {
        Err(Error::Config(text)) => text,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("taken"),
    }
}

#[test]
fn an_error_names_the_file_and_what_is_wrong_in_it() {
    let ca = Authority::new();
    let good = ca.sign("server", "localhost", false);
    let other = ca.sign("other", "localhost", false);
    let with = |certificate: &str, key: &str| Identity {
        certificate: ca.folder.join(certificate),
        key: ca.folder.join(key),
    };
    let text = refusal(with("missing.pem", "server.key"));
    assert!(text.contains("missing.pem: No such file"), "{text}");
    let text = refusal(with("server.key", "server.key"));
    assert!(
        text.contains("server.key: no certificate in it") && text.contains("a private key"),
        "{text}"
    );
    let text = refusal(with("server.pem", "server.pem"));
    assert!(
        text.contains("server.pem: no private key") && text.contains("a certificate"),
        "{text}"
    );
    let text = refusal(Identity {
        key: other.key,
        ..good.clone()
    });
    assert!(text.contains("other.key: the key is not that of"), "{text}");
    std::fs::write(
        ca.folder.join("locked.key"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let text = refusal(with("server.pem", "locked.key"));
    assert!(
        text.contains("is encrypted") && text.contains("openssl pkey"),
        "{text}"
    );
    let mut cut = std::fs::read(&good.certificate).unwrap();
    cut.truncate(200);
    std::fs::write(ca.folder.join("cut.pem"), cut).unwrap();
    let text = refusal(with("cut.pem", "server.key"));
    assert!(text.contains("cut.pem: the PEM text is damaged"), "{text}");
    let mut client = dialling(ca.ca());
    client.server_name = Some("no name".into());
    assert!(matches!(Client::new(client), Err(Error::Config(text)) if text.contains("no name")));
}

#[test]
fn a_new_certificate_is_shown_without_a_restart() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let shown = |client: &Client| {
        connected(&server, client, usize::MAX, 1 << 20)
            .0
            .peer()
            .unwrap()
            .certificates
    };
    let before = shown(&client);
    ca.sign("server", "localhost", false);
    assert_ne!(shown(&client), before);
}

#[test]
fn files_that_do_not_fit_leave_the_old_ones_in_use() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let shown = || {
        connected(&server, &client, usize::MAX, 1 << 20)
            .0
            .peer()
            .unwrap()
            .certificates
    };
    let before = shown();
    let old = std::fs::read(ca.folder.join("server.key")).unwrap();
    ca.sign("server", "localhost", false);
    let new = std::fs::read(ca.folder.join("server.key")).unwrap();
    std::fs::write(ca.folder.join("server.key"), old).unwrap();
    assert_eq!(
        shown(),
        before,
        "key and certificate do not belong together"
    );
    assert!(
        server
            .failure()
            .is_some_and(|error| error.to_string().contains("server.key"))
    );
    assert!(server.reload().is_err());
    std::fs::write(ca.folder.join("server.key"), new).unwrap();
    assert!(server.reload().is_ok() && server.failure().is_none());
    assert_ne!(shown(), before);
}
