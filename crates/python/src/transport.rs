//! Connections and listeners for Python.

mod allocate;
mod budget;
mod connection;
mod conversion;
mod frames;
mod gather;
mod items;
mod lend;
mod listener;
mod look;
mod messages;
mod native;
mod owner;
mod selector;
mod sleeper;
mod tls;
mod wait;

pub use connection::Connection;
pub(crate) use conversion::seconds;
pub use messages::MessageConnection;
pub(crate) use owner::listening;
pub use tls::TlsServer;

use forebay_transport::limit;
use pyo3::prelude::*;

use crate::sys::frame::Frame;

/// Add the classes, functions and limits to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("OUTBOX_BYTES_HIGH", limit::OUTBOX_BYTES_HIGH)?;
    module.add("OUTBOX_BYTES_LOW", limit::OUTBOX_BYTES_LOW)?;
    module.add("STALL_BYTES_MIN", limit::STALL_BYTES_MIN)?;
    module.add("TOKEN_BYTES_MAX", limit::TOKEN_BYTES_MAX)?;
    gather::register(module)?;
    module.add_function(wrap_pyfunction!(budget::limit_process, module)?)?;
    module.add_function(wrap_pyfunction!(budget::process_has_room, module)?)?;
    module.add_function(wrap_pyfunction!(budget::process_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(budget::transport_totals, module)?)?;
    items::register(module)?;
    lend::register(module)?;
    module.add_class::<Connection>()?;
    module.add_class::<Frame>()?;
    module.add_class::<messages::Waiting>()?;
    module.add_class::<MessageConnection>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<native::NativeService>()?;
    module.add_class::<native::NativeStore>()?;
    module.add_class::<native::NativeHealth>()?;
    module.add_class::<native::NativeServer>()?;
    module.add_class::<look::Look>()?;
    module.add_class::<owner::Owners>()?;
    module.add_class::<selector::Selector>()?;
    module.add_class::<TlsServer>()?;
    module.add_class::<tls::TlsClient>()?;
    module.add_function(wrap_pyfunction!(listener::stop_listening, module)?)?;
    module.add_function(wrap_pyfunction!(listener::connect_unix, module)?)
}
