//! The key of a state directory, in a file that its user alone can read.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use ring::hmac::{self, HMAC_SHA256, Tag};
use ring::rand::{SecureRandom, SystemRandom};

use super::KEY_NAME_LEN;
use crate::error::{Error, Result};
use crate::private_file::{PrivateFileError, open_private};

const KEY_LEN: usize = 32;
/// What the name of a key is derived from: nothing of the key can be seen in it.
const NAMED: &[u8] = b"forebay: the name of this key";

/// The key under which secrets are sealed.
pub struct SecretKey {
    key: hmac::Key,
    name: [u8; KEY_NAME_LEN],
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKey").finish_non_exhaustive()
    }
}

impl SecretKey {
    /// The key of a state directory, which is made where there is none.
    ///
    /// # Errors
    /// `Config` for a file that others can read or that is no key, `System`.
    pub fn of_directory(state: &Path) -> Result<Self> {
        let path = state.join("secret.key");
        match read(&path)? {
            Some(bytes) => Ok(Self::of(&bytes)),
            None => make(state, &path),
        }
    }

    pub(super) fn of(bytes: &[u8; KEY_LEN]) -> Self {
        let key = hmac::Key::new(HMAC_SHA256, bytes);
        let tag = hmac::sign(&key, NAMED);
        let mut name = [0; KEY_NAME_LEN];
        name.copy_from_slice(&tag.as_ref()[..KEY_NAME_LEN]);
        Self { key, name }
    }

    /// What tells this key from another one.
    pub(super) fn name(&self) -> [u8; KEY_NAME_LEN] {
        self.name
    }

    /// The key of one value.
    pub(super) fn derive(&self, salt: &[u8]) -> Tag {
        hmac::sign(&self.key, salt)
    }
}

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::Config("the machine gives no random bytes".into()))?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<Option<[u8; KEY_LEN]>> {
    let (mut file, found) = match open_private(path, OpenOptions::new().read(true)) {
        Ok(opened) => opened,
        Err(PrivateFileError::System(error)) if error.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(unusable(path, error)),
    };
    let mut bytes = [0; KEY_LEN];
    if found.len() != KEY_LEN as u64 || file.read_exact(&mut bytes).is_err() {
        return Err(Error::Config(format!(
            "{} is no key of {KEY_LEN} bytes; restore it, or remove it: what it sealed is lost then",
            path.display()
        )));
    }
    Ok(Some(bytes))
}

/// A new key, which is on disk before anything is sealed with it. The server alone writes into its state directory.
fn make(state: &Path, path: &Path) -> Result<SecretKey> {
    let what = || format!("write {}", path.display());
    let bytes = random::<KEY_LEN>()?;
    let fresh = path.with_extension("key.new");
    drop(fs::remove_file(&fresh)); // of a server that died
    let made = open_private(&fresh, OpenOptions::new().write(true).create_new(true));
    let (mut file, _) = made.map_err(|error| unusable(&fresh, error))?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&fresh, path));
    let synced = renamed.and_then(|()| File::open(state)?.sync_all());
    synced.map_err(Error::system(what()))?;
    Ok(SecretKey::of(&bytes))
}

fn unusable(path: &Path, error: PrivateFileError) -> Error {
    let path = path.display();
    match error {
        PrivateFileError::System(error) => Error::system(format!("open {path}"))(error),
        error => Error::Config(format!(
            "the key of secret arguments {path}: {error}, and change the secrets"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let unique = format!("forebay-secret-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(unique);
            drop(fs::remove_dir_all(&path));
            fs::create_dir(&path).expect("a directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_key_is_made_once_for_this_user_alone() {
        let directory = Directory::new("once");
        let first = SecretKey::of_directory(&directory.0).expect("a key");
        let again = SecretKey::of_directory(&directory.0).expect("the same key");
        assert_eq!(first.name(), again.name());
        let path = directory.0.join("secret.key");
        let mode = fs::metadata(&path).expect("its mode").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read(&path).expect("the key").len(), KEY_LEN);
        assert_eq!(format!("{first:?}"), "SecretKey { .. }");
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_damaged_is_refused() {
        let directory = Directory::new("refused");
        SecretKey::of_directory(&directory.0).expect("a key");
        let path = directory.0.join("secret.key");
        let refused = || SecretKey::of_directory(&directory.0).expect_err("a key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("open to others");
        assert!(refused().to_string().contains("other users"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
        fs::write(&path, b"short").expect("damaged");
        assert!(refused().to_string().contains("no key"));
    }
}
