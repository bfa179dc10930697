//! Checks msgpack against the part of JSON Schema that `msgspec.json.schema` writes.
//!
//! A schema is compiled once, when an application's manifest is installed, into nodes that refer to each other by
//! number; a check then walks the bytes and the nodes side by side, and allocates only to describe a mismatch. What the
//! schema leaves open is open here too: the worker decodes with the types themselves, and decides in the end. Unknown
//! keywords are no constraints; those that msgspec never writes (`not`, `if`) are not known.
//!
//! Two forms that JSON does not have: bytes are bin where the schema says base64, and `"x-forebay": "array"` is an
//! extension of type 1; a time with its zone is the extension -1 where the schema says text. Sources: JSON Schema
//! 2020-12 (validation), the `MessagePack` specification.

mod check;
mod compile;
mod describe;
mod node;
mod set;

pub use check::Mismatch;
pub use compile::Compiler;
pub(crate) use describe::shown;
pub use node::{Field, NodeId, find};
pub use set::Set;

use node::Node;

/// Compiled schemas, which may share definitions.
#[derive(Debug, Default)]
pub struct Schemas {
    nodes: Vec<Node>,
}

impl Schemas {
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

#[cfg(test)]
mod tests;
