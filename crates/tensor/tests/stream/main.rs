//! Links and servers over real sockets.
mod connect;
mod endings;
mod liar;
mod moves;
mod peers;
mod ports;
mod sys;
