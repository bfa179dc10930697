//! Who is let in, who is not, and which words say so.

use super::authority::{Authority, both, dialling, serving};
use super::pipe::{connected, ends, handshake, pipes, receive};
use crate::stream::tls::{Certificate, Client, ClientSettings, Server, ServerSettings, Version};
use crate::stream::{Stream, StreamFault};

/// What both ends have to say about each other: client, then server.
fn clash(serving: ServerSettings, dialling: ClientSettings) -> [String; 2] {
    let server = Server::new(serving).expect("a server");
    let client = Client::new(dialling).expect("a client");
    let (mut one, mut other) = ends(&server, &client, usize::MAX, 1 << 20);
    handshake(&mut one, &mut other).map(|outcome| match outcome {
        Ok(()) => String::new(),
        Err(StreamFault::Tls(text)) => text,
        Err(other) => panic!("{other}"),
    })
}

#[test]
fn a_server_of_another_ca_is_refused_in_words_of_both_sides() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let words = clash(
        serving(theirs.sign("server", "localhost", false)),
        dialling(ours.ca()),
    );
    assert!(
        words[0].contains("not issued by the CA given here"),
        "{words:?}"
    );
    assert!(words[1].contains("unknown_ca"), "{words:?}");
}

#[test]
fn a_name_is_checked_unless_it_is_said_not_to() {
    let ca = Authority::new();
    let identity = ca.sign("server", "example.org", false);
    let words = clash(serving(identity.clone()), dialling(ca.ca()));
    assert!(
        words[0].contains("example.org") && words[0].contains("localhost"),
        "{words:?}"
    );
    let unchecked = ClientSettings {
        check_hostname: false,
        ..dialling(ca.ca())
    };
    assert_eq!(clash(serving(identity.clone()), unchecked), ["", ""]);
    let named = ClientSettings {
        server_name: Some("example.org".into()),
        ..dialling(ca.ca())
    };
    assert_eq!(clash(serving(identity), named), ["", ""]);
}

#[test]
fn an_expired_certificate_is_refused() {
    let ca = Authority::new();
    let words = clash(
        serving(ca.sign("server", "localhost", true)),
        dialling(ca.ca()),
    );
    assert!(words[0].contains("expired"), "{words:?}");
}

#[test]
fn a_client_certificate_is_asked_for_and_shown() {
    let ca = Authority::new();
    let wants = ServerSettings {
        client_ca: Some(ca.ca()),
        ..serving(ca.sign("server", "localhost", false))
    };
    let words = clash(wants.clone(), dialling(ca.ca()));
    assert!(words[0].contains("wants a client certificate"), "{words:?}");
    assert!(
        words[1].contains("showed no client certificate"),
        "{words:?}"
    );

    let shows = ClientSettings {
        identity: Some(ca.sign("client", "worker-7", false)),
        ..dialling(ca.ca())
    };
    let (server, client) = (Server::new(wants).unwrap(), Client::new(shows).unwrap());
    let (_, other) = connected(&server, &client, usize::MAX, 1 << 20);
    let peer = other.peer().expect("connected");
    let certificate = Certificate::read(&peer.certificates[0]).expect("a certificate");
    assert_eq!(
        certificate.alternative_names,
        [("DNS", "worker-7".to_owned())]
    );
    assert!(certificate.not_before < certificate.not_after && certificate.version == 3);
}

#[test]
fn a_certificate_that_lies_in_the_ca_file_needs_no_chain() {
    let ca = Authority::new();
    let lonely = ca.lonely("localhost");
    let itself = lonely.certificate.clone();
    assert_eq!(
        clash(serving(lonely.clone()), dialling(itself.clone())),
        ["", ""]
    );
    let mutual = ServerSettings {
        client_ca: Some(itself.clone()),
        ..serving(lonely.clone())
    };
    let shows = ClientSettings {
        identity: Some(lonely),
        ..dialling(itself)
    };
    assert_eq!(clash(mutual, shows), ["", ""]);
    let other = ca.lonely("example.org");
    let words = clash(serving(other.clone()), dialling(other.certificate));
    assert!(
        words[0].contains("example.org"),
        "its name is checked all the same: {words:?}"
    );
}

#[test]
fn versions_and_protocols_have_to_meet() {
    let ca = Authority::new();
    let identity = ca.sign("server", "localhost", false);
    let old = ServerSettings {
        version: Version::Tls12,
        alpn: vec![b"forebay/1".to_vec(), b"other".to_vec()],
        ..serving(identity)
    };
    let client = ClientSettings {
        alpn: vec![b"forebay/1".to_vec()],
        ..dialling(ca.ca())
    };
    let server = Server::new(old.clone()).unwrap();
    let (one, _) = connected(&server, &Client::new(client).unwrap(), usize::MAX, 1 << 20);
    let peer = one.peer().expect("connected");
    assert_eq!(peer.alpn.as_deref(), Some(&b"forebay/1"[..]));
    assert_eq!(
        (peer.version, peer.cipher.contains("AES")),
        ("TLSv1.3", true)
    );
    let alien = ClientSettings {
        alpn: vec![b"h2".to_vec()],
        ..dialling(ca.ca())
    };
    let words = clash(old, alien);
    assert!(
        words
            .iter()
            .all(|text| text.contains("no_application_protocol")),
        "{words:?}"
    );
}

#[test]
fn a_second_handshake_resumes_the_first() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let (first, _) = connected(&server, &client, usize::MAX, 1 << 20);
    let (second, _) = connected(&server, &client, usize::MAX, 1 << 20);
    let resumed = [first, second].map(|end| end.peer().expect("connected").resumed);
    assert_eq!(resumed, [false, true]);
    for counted in [server.handshakes(), client.handshakes()] {
        let counts = (counted.full(), counted.resumed(), counted.failed());
        assert_eq!(counts, (1, 1, 0));
    }
}

#[test]
fn a_peer_that_speaks_no_tls_is_named() {
    let ca = Authority::new();
    let (server, _) = both(&ca);
    let (mut plain, other) = pipes(usize::MAX, 1 << 20);
    let mut end = server.accept(other).unwrap();
    plain
        .send(&[std::io::IoSlice::new(b"FBAY\x01\0\0\0")])
        .unwrap();
    let Err(StreamFault::Tls(words)) = receive(&mut end, 100) else {
        panic!("taken")
    };
    assert!(
        words.contains("does not speak TLS") && words.contains("plain"),
        "{words}"
    );
    assert_eq!(plain.into.borrow().bytes[0], 0x15, "it is told by an alert");
    assert_eq!(server.handshakes().failed(), 1);
}
