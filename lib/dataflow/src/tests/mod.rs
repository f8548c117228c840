mod engine;
mod examples;
mod faults;
mod graphs;
mod managers;
mod plans;
mod queues;
mod schedules;
