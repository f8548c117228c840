//! Guests in machines of this host's KVM. Without KVM each test says so and does nothing.

mod bed;
mod c_guest;
mod functions;
mod hostile;
mod words;
