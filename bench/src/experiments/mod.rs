//! The experiments: a folder for each topic, in it a file or folder for each experiment.

mod data_plane;
mod dataflow;
mod instances;
mod io;
mod machines;
mod many_nfs;
mod sharing;
mod signals;
mod use_cases;
mod xdp;

use crate::experiment::{Experiment, Topic};

/// All topics, in the order in which `list` and `report` show them.
pub const TOPICS: &[Topic] = &[
    data_plane::TOPIC,
    io::TOPIC,
    sharing::TOPIC,
    signals::TOPIC,
    many_nfs::TOPIC,
    xdp::TOPIC,
    instances::TOPIC,
    machines::TOPIC,
    use_cases::TOPIC,
    dataflow::TOPIC,
];

/// Returns all experiments, topic by topic.
pub fn all() -> Vec<&'static Experiment> {
    TOPICS.iter().flat_map(|topic| topic.experiments).collect()
}
