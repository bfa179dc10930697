//! Files of a state directory that its user alone may read and write.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrivateFileError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("it is no regular file; remove it")]
    NoFile,
    #[error("other users can read or write it; remove it")]
    Exposed,
}

/// Open a file that is this user's and closed to others; one that is made has mode 0600. A link is not followed.
///
/// # Errors
/// `System`, with `NotFound` where there is none and none is to be made, `NoFile`, `Exposed`.
pub(crate) fn open_private(
    path: &Path,
    options: &mut OpenOptions,
) -> Result<(File, Metadata), PrivateFileError> {
    // Nonblocking: a pipe of that name would wait for its other end.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(PrivateFileError::NoFile);
    }
    if found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(PrivateFileError::Exposed);
    }
    Ok((file, found))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_others_can_open_or_is_no_file_is_refused() {
        let unique = format!("forebay-private-{}", std::process::id());
        let directory = std::env::temp_dir().join(unique);
        drop(fs::remove_dir_all(&directory));
        fs::create_dir(&directory).expect("a directory");
        let path = directory.join("file");
        let open = |path: &Path| open_private(path, OpenOptions::new().read(true));
        let made = OpenOptions::new().create_new(true).append(true).clone();
        let (_, found) = open_private(&path, &mut made.clone()).expect("a new file");
        assert_eq!(found.mode() & 0o777, 0o600);
        open(&path).expect("the same file");
        for mode in [0o640, 0o604, 0o620, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("open to others");
            assert!(
                matches!(open(&path), Err(PrivateFileError::Exposed)),
                "{mode:o}"
            );
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("closed");
        let link = directory.join("link");
        symlink(&path, &link).expect("a link");
        assert!(matches!(open(&link), Err(PrivateFileError::System(_))));
        assert!(matches!(open(&directory), Err(PrivateFileError::NoFile)));
        let absent = open(&directory.join("absent")).expect_err("a file");
        let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        assert!(matches!(absent, PrivateFileError::System(error) if is_absent(&error)));
        fs::remove_dir_all(&directory).expect("removed");
    }
}
