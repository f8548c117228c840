//! Clients of the servers: another TCP stack on the other end of a wire.

mod bed;
mod configuration;
mod daytime;
mod hostile;
mod http;
