//! The fields of a message, appended or taken one after another.

use super::{Deadlines, Handle, Launch};
use crate::confine::{Confinement, Limits};
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::readiness::Readiness;

/// A number that stands for no message.
pub const UNKNOWN: Error = Error::Malformed {
    what: "unknown message",
};

/// Append fields to a message.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn bytes(self, value: &[u8]) -> Self {
        // Messages are far below 4 GiB: their limit is checked when they are sent.
        let mut written = self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        written.0.extend(value);
        written
    }
    pub fn length(self, count: usize) -> Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }
    pub fn handle(self, handle: Handle) -> Self {
        self.u32(handle.slot).u64(handle.generation)
    }
    pub fn deadlines(self, deadlines: Deadlines) -> Self {
        self.u64(deadlines.start_ms)
            .u64(deadlines.idle_ms)
            .u64(deadlines.lifetime_ms)
            .u32(deadlines.key)
            .u64(deadlines.private_bytes_max)
            .limits(&deadlines.limits)
    }
    pub fn limits(self, limits: &Limits) -> Self {
        self.u64(limits.memory_bytes)
            .u32(limits.cpu_millis)
            .u32(limits.open_files)
            .u32(limits.processes)
            .u8(limits.advisory.into())
            .u8(limits.stateful.into())
    }
    pub fn confinement(self, confinement: Option<&Confinement>) -> Self {
        match confinement {
            None => self.u8(0),
            Some(given) => self
                .u8(1)
                .bytes(&given.group)
                .u64(given.data_bytes)
                .u32(given.open_files)
                .u8(given.alone.into()),
        }
    }
    pub fn death(self, death: &Death) -> Self {
        self.u8(death.cause.code())
            .i32(death.pid)
            .i32(death.code)
            .u64(death.peak_bytes)
            .u64(death.limit_bytes)
            .bytes(&death.text)
    }
    pub fn launch(self, launch: &Launch) -> Self {
        let mut written = self.u32(u32::try_from(launch.arguments.len()).unwrap_or(u32::MAX));
        for argument in &launch.arguments {
            written = written.bytes(argument);
        }
        written = written.u32(u32::try_from(launch.environment.len()).unwrap_or(u32::MAX));
        for (name, value) in &launch.environment {
            written = written.bytes(name).bytes(value);
        }
        let (code, text) = launch.readiness.parts();
        let written = written.bytes(&launch.directory).u8(code).bytes(text);
        written
            .u8(u8::from(launch.caller_looks))
            .u8(u8::from(launch.stdio))
    }
}

/// Take fields from a message.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Error::Malformed {
            what: "a field is cut short",
        })?;
        self.0 = rest;
        Ok(head)
    }
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        let count = self.u32()? as usize;
        self.take(count).map(<[u8]>::to_vec)
    }
    pub fn flag(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }
    pub fn port(&mut self) -> Result<u16> {
        u16::try_from(self.u32()?).map_err(|_| Error::Malformed {
            what: "a port above 65,535",
        })
    }
    pub fn handle(&mut self) -> Result<Handle> {
        Ok(Handle {
            slot: self.u32()?,
            generation: self.u64()?,
        })
    }
    pub fn deadlines(&mut self) -> Result<Deadlines> {
        Ok(Deadlines {
            start_ms: self.u64()?,
            idle_ms: self.u64()?,
            lifetime_ms: self.u64()?,
            key: self.u32()?,
            private_bytes_max: self.u64()?,
            limits: self.limits()?,
        })
    }
    pub fn limits(&mut self) -> Result<Limits> {
        Ok(Limits {
            memory_bytes: self.u64()?,
            cpu_millis: self.u32()?,
            open_files: self.u32()?,
            processes: self.u32()?,
            advisory: self.u8()? != 0,
            stateful: self.u8()? != 0,
        })
    }
    pub fn confinement(&mut self) -> Result<Option<Confinement>> {
        if self.u8()? == 0 {
            return Ok(None);
        }
        Ok(Some(Confinement {
            group: self.bytes()?,
            data_bytes: self.u64()?,
            open_files: self.u32()?,
            alone: self.u8()? != 0,
        }))
    }
    pub fn death(&mut self) -> Result<Death> {
        Ok(Death {
            cause: Cause::from_code(self.u8()?)?,
            pid: self.i32()?,
            code: self.i32()?,
            peak_bytes: self.u64()?,
            limit_bytes: self.u64()?,
            text: self.bytes()?,
        })
    }
    pub fn launch(&mut self) -> Result<Launch> {
        let mut launch = Launch::default();
        for _ in 0..self.u32()? {
            launch.arguments.push(self.bytes()?);
        }
        for _ in 0..self.u32()? {
            launch.environment.push((self.bytes()?, self.bytes()?));
        }
        launch.directory = self.bytes()?;
        launch.readiness = Readiness::from_parts(self.u8()?, self.bytes()?)?;
        launch.caller_looks = self.u8()? != 0;
        launch.stdio = self.u8()? != 0;
        Ok(launch)
    }
    pub fn end<T>(self, value: T) -> Result<T> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(Error::Malformed {
                what: "bytes after the last field",
            })
        }
    }
}
