//! Which boot of the machine this is.

/// The id of this boot of the machine; `None` if the kernel does not say.
pub(super) fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().into())
}

/// This boot, and the time namespace whose clock counts in it.
pub(super) fn origin() -> Option<String> {
    let boot = boot_id()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{boot}/{}", namespace.display()))
}
