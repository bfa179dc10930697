//! Holding a service to its limits.

use super::Registry;
use crate::confine::Confinement;
use crate::error::Result;
use crate::wire::Handle;

impl Registry {
    /// How a registered service is to confine itself; None, at no cost, where nothing limits it.
    pub(super) fn confine(&mut self, handle: Handle) -> Result<Option<Confinement>> {
        let Some(service) = self.services.get_mut(&handle.slot) else {
            return Ok(None);
        };
        self.housekeeping.measures |= service.deadlines.private_bytes_max > 0;
        if service.deadlines.limits.is_none() {
            return Ok(None);
        }
        let (confinement, group) = self.enforcer.confine(&service.deadlines.limits)?;
        service.group = group;
        Ok(Some(confinement))
    }
}
