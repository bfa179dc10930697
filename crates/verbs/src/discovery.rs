//! Finds and opens RDMA devices.
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_tensor::Error;

use crate::sys::device::{Domain, names};
use crate::sys::layout::Gid;
use crate::sys::pair::Address;

/// Ports of a device that are examined.
const PORTS_MAX: u8 = 8;
/// Addresses of a port that are examined.
const GIDS_MAX: u8 = 64;
/// The prefix of an IPv4-mapped address: `::ffff:192.168.0.1`.
const IPV4_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Description of a usable device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name, such as `mlx5_0` or `rxe0`.
    pub device: String,
    /// The port to use.
    pub port: u8,
    /// The index of the port's address to use.
    pub gid_index: u8,
    /// Whether keys on parts of registered memory can be revoked one by one (windows of type 2B).
    pub has_windows: bool,
}

/// The usable devices, for `forebay doctor` and for choosing a fabric. Opens and closes each.
///
/// # Errors
///
/// Why no device is usable, as a message: no library, no device, none with an active port.
pub fn devices() -> Result<Vec<Found>, String> {
    let mut reasons = Vec::new();
    let mut found = Vec::new();
    for name in names()? {
        match Adapter::open(Some(&name)) {
            Ok(adapter) => found.push(adapter.found),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    if found.is_empty() {
        return Err(reasons.join("; "));
    }
    Ok(found)
}

/// An opened device, with the port and address of its connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Adapter {
    found: Found,
    gid: Gid,
    lid: u16,
    mtu: u32,
    pub(super) domain: Arc<Domain>,
}

impl Adapter {
    /// Open a device by its name, or the first usable one.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] with a message about what is missing.
    pub fn open(name: Option<&str>) -> Result<Self, Error> {
        if let Some(name) = name {
            return Self::open_device(name).map_err(|why| Error::Broken { why });
        }
        let mut reasons = Vec::new();
        for name in names().map_err(|why| Error::Broken { why })? {
            match Self::open_device(&name) {
                Ok(adapter) => return Ok(adapter),
                Err(reason) => reasons.push(reason),
            }
        }
        reasons.push("no RDMA device is usable".to_owned());
        Err(Error::Broken {
            why: reasons.join("; "),
        })
    }

    fn open_device(name: &str) -> Result<Self, String> {
        let failed =
            |what: &str, error: std::io::Error| format!("RDMA device {name}: {what}: {error}");
        let domain = Domain::open(name).map_err(|error| failed("cannot be opened", error))?;
        let has_windows = domain
            .has_windows()
            .map_err(|error| failed("cannot be queried", error))?;
        let ports = (1..=PORTS_MAX).map_while(|number| Some((number, domain.port(number).ok()?)));
        let (number, port) = (ports.into_iter().find(|(_, port)| port.is_active))
            .ok_or_else(|| format!("RDMA device {name} has no active port"))?;
        let (gid_index, gid) = address(&domain, name, number)
            .ok_or_else(|| format!("port {number} of RDMA device {name} has no address"))?;
        Ok(Self {
            found: Found {
                device: name.to_owned(),
                port: number,
                gid_index,
                has_windows,
            },
            gid,
            lid: port.lid,
            mtu: port.mtu,
            domain,
        })
    }

    /// Its description.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The address of the queue pair with this number.
    pub(super) fn address(&self, number: u32, sequence: u32) -> Address {
        Address {
            gid: self.gid,
            lid: self.lid,
            number,
            sequence,
            mtu: self.mtu,
        }
    }
}

/// The best reachable address of a port: over Ethernet a RoCE v2 address (which routers forward) that maps an IPv4
/// address, else a RoCE v2 address that is not link-local, else the first one.
fn address(domain: &Domain, device: &str, port: u8) -> Option<(u8, Gid)> {
    let gids = (0..GIDS_MAX).map_while(|index| Some((index, domain.gid(port, index).ok()?)));
    let there = gids.filter(|(_, gid)| gid.iter().any(|byte| *byte != 0));
    there.min_by_key(|(index, gid)| {
        let routable = kind(device, port, *index).is_some_and(|kind| kind.trim() == "RoCE v2");
        let has_ipv4 = gid.starts_with(&IPV4_PREFIX);
        let of_the_link = gid.starts_with(&[0xfe, 0x80]);
        (!routable, !has_ipv4, routable && of_the_link, *index)
    })
}

fn kind(device: &str, port: u8, index: u8) -> Option<String> {
    let folder = PathBuf::from(format!("/sys/class/infiniband/{device}/ports/{port}"));
    fs::read_to_string(folder.join(format!("gid_attrs/types/{index}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_device_says_what_is_missing() {
        let nothing =
            Adapter::open(Some("no-such-device")).expect_err("there is none of this name");
        assert!(
            matches!(&nothing, Error::Broken { why } if why.contains("no-such-device")),
            "{nothing}"
        );
        match (devices(), Adapter::open(None)) {
            (Ok(found), Ok(adapter)) => assert!(found.contains(adapter.found())),
            (Err(reason), Err(_)) => assert!(reason.len() > 10, "{reason}"),
            differ => panic!("{differ:?}"),
        }
    }
}
