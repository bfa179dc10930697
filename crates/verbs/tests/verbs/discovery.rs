//! The device of the guest is found, with what it can do.
use forebay_verbs::{Adapter, Found, devices};

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn the_guests_device_is_found_by_its_routable_address() {
    let found = Found {
        device: "rxe0".to_owned(),
        port: 1,
        gid_index: 1, // 0 is of the link alone
        has_windows: true,
    };
    assert_eq!(devices(), Ok(vec![found.clone()]));
    assert_eq!(Adapter::open(None).expect("a device").found(), &found);
    assert!(Adapter::open(Some("rxe1")).is_err());
}
