//! Orders to the process of the I/O threads, and its reports.

use nfluid_control::io::{IoIdle, IoModel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of the threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Cores of the split workers, at least one.
    pub cores: Vec<u32>,
    /// The behaviour of threads when there is nothing to forward.
    pub idle: IoIdle,
}

/// An order to the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// To make the calls of an instance, from whatever thread made them before. With it come, as
    /// descriptors: the eventfd of the instance's I/O thread, the pipe that wakes the instance, and
    /// for each port its rings and, if it has one, the doorbell of its link's peer.
    Serve(Entrusted),
    /// To make an instance's calls no longer.
    Leave {
        /// The instance.
        instance: String,
    },
    /// To be otherwise.
    Set(Setup),
}

/// An instance whose calls are made by a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entrusted {
    /// The name of the instance.
    pub instance: String,
    /// The I/O model of the instance.
    pub model: IoModel,
    /// Cores on which the instance may run, at most [`CORES_MAX`]; empty: any.
    pub cores: Vec<usize>,
    /// The ports of the instance: number, and whether a doorbell of a link's peer comes with it.
    pub ports: Vec<(u32, bool)>,
}

/// The threads that make the calls of instances: of all instances, or of those in an order.
pub type IoStatus = BTreeMap<String, ThreadRef>;

/// Most cores that an order names: a longer list is as good as none.
pub const CORES_MAX: usize = 256;

/// The thread that makes an instance's calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRef {
    /// The I/O model of the thread.
    pub model: IoModel,
    /// The thread's name.
    pub name: String,
    /// The thread's number.
    pub tid: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_the_largest_instance_is_understood_and_fits() {
        let order = Order::Serve(Entrusted {
            instance: "i".repeat(63),
            model: IoModel::Merge,
            cores: vec![8191; CORES_MAX],
            ports: vec![(u32::MAX, false); 64],
        });
        let text = serde_json::to_string(&order).unwrap();
        assert!(text.len() < 4096 && !text.contains('\n'), "{text}");
        let Ok(Order::Serve(understood)) = serde_json::from_str(&text) else {
            panic!("{text}");
        };
        assert_eq!(understood.ports.len(), 64);
        assert_eq!(understood.model, IoModel::Merge);
    }
}
