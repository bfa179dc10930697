//! The state directory: its permissions, its contents, the file systems that it may be on.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::error::{Result, StoreError};
use crate::items::ITEMS;

/// For its owner alone: arguments and results are private.
const DIRECTORY_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
pub(super) const DATABASE: &str = "requests.db";
pub(super) const RESULTS: &str = "results";
pub(super) const LOGS: &str = "logs";

/// Network file systems by their magic number; statfs(2), and `linux/magic.h` of Linux 6.18.
const NETWORK: [(u64, &str); 11] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB2"),
    (0xff53_4d42, "CIFS"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x1983_0326, "BeeGFS"),
];

/// Create the directory and what belongs into it, for its owner alone. Refuses a file system on which a database is
/// unsafe.
pub(super) fn prepare(directory: &Path) -> Result<()> {
    make(directory)?;
    let stat = rustix::fs::statfs(directory).map_err(StoreError::file(
        "cannot determine the file system of",
        directory,
    ))?;
    // The kernel's number has 32 bits; on some machines its type is wider and signed.
    #[allow(clippy::cast_sign_loss)]
    if let Some(kind) = network_kind(stat.f_type as u64) {
        return Err(StoreError::Network {
            directory: directory.into(),
            kind,
        });
    }
    for inner in [RESULTS, LOGS, ITEMS] {
        make(&directory.join(inner))?;
    }
    // SQLite gives the files beside the database its mode, so the database is created here with the right one.
    let database = directory.join(DATABASE);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&database);
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(StoreError::file("cannot make", database)(error))
        }
        _ => Ok(()),
    }
}

fn network_kind(magic: u64) -> Option<&'static str> {
    let magic = magic & 0xffff_ffff;
    let known = NETWORK.iter().find(|(number, _)| *number == magic);
    known.map(|(_, kind)| *kind)
}

fn make(directory: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE);
    builder
        .create(directory)
        .map_err(StoreError::file("cannot make the directory", directory))?;
    let mode = std::fs::metadata(directory)
        .map_err(StoreError::file("cannot look at", directory))?
        .permissions()
        .mode();
    if mode.trailing_zeros() >= 6 {
        // Nothing for group and others.
        return Ok(());
    }
    std::fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
        .map_err(StoreError::file("cannot close to others", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_number() {
        assert_eq!(network_kind(0x6969), Some("NFS"));
        assert_eq!(network_kind(0xffff_ffff_ff53_4d42), Some("CIFS"));
        assert_eq!(network_kind(0xef53), None, "ext4");
        assert_eq!(network_kind(0x0102_1994), None, "tmpfs");
    }
}
