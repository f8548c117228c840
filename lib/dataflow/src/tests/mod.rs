pub mod engine;
pub mod examples;
mod faults;
mod graphs;
mod managers;
mod plans;
mod processes;
mod queues;
mod schedules;
