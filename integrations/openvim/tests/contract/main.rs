//! The interface of OpenVIM, as its clients use it, over hosts in memory.

mod content;
mod fixture;
mod hosts;
mod networks;
mod refusals;
mod rights;
mod servers;
