//! The results of an experiment, measured (`nfluid-bench`) or simulated (`nfluid-sim`):
//!
//! - [`statistics`]: repetitions, their median and spread.
//! - [`record`]: figures and plots of one run, and what repeats it; [`environment`]: where it ran.
//! - [`plot`]: lines over an axis, drawn as SVG.
//! - [`results`]: the folder in which the files of all runs lie.
//! - [`terminal`]: tables, and `figure ID VALUE UNIT` lines.
//!
//! The crate measures nothing, and knows no experiment.

pub mod environment;
pub mod plot;
pub mod record;
pub mod results;
pub mod statistics;
pub mod terminal;
