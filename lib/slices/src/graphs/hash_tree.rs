//! Hash tree: the root of a binary tree of SHA-256 over an interval's bytes, as dm-verity and content stores compute it. The
//! example that is not radio: leaves run beside each other, each level waits for the one below.

use crate::application::SliceApplication;
use nfluid_dataflow::engine::{Application, Call, Failure, Finished};
use nfluid_dataflow::graph::{Builder, Graph, GraphError, Task, TaskId};
use nfluid_nf::{ConfigError, config};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Blocks of an interval: the tree's leaves.
    blocks: usize,
    /// Bytes of a block.
    block_bytes: usize,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            blocks: 16,
            block_bytes: 4096,
        }
    }
}

const LEAF: u16 = 0;
const NODE: u16 = 1;
const HASH_BYTES: usize = 32;

struct HashTree {
    parameters: Parameters,
    graph: Graph,
    root: TaskId,
}

/// Builds the application.
///
/// # Errors
/// A parameter out of its bounds.
pub fn build(value: &Value) -> Result<Arc<dyn SliceApplication>, ConfigError> {
    let parameters: Parameters = config::parse(value)?;
    if !(1..=1024).contains(&parameters.blocks) {
        return Err(ConfigError::at("blocks", "write 1 to 1024"));
    }
    let bytes = parameters.block_bytes;
    if !(64..=65_536).contains(&bytes) || !bytes.is_multiple_of(4) {
        let bounds = "write a multiple of 4 from 64 to 65536";
        return Err(ConfigError::at("block_bytes", bounds));
    }
    let (graph, root) =
        compose(parameters).map_err(|error| ConfigError::at("", error.to_string()))?;
    Ok(Arc::new(HashTree {
        parameters,
        graph,
        root,
    }))
}

/// Leaves, and levels of nodes with two children each; the last node of a level may have one.
fn compose(parameters: Parameters) -> Result<(Graph, TaskId), GraphError> {
    let mut builder = Builder::new();
    let mut level = Vec::new();
    for block in 0..parameters.blocks {
        level.push(builder.task(Task {
            kind: LEAF,
            output_bytes: HASH_BYTES as u32,
            cost: 4 * parameters.block_bytes as u64,
            argument: block as u64,
        })?);
    }
    while level.len() > 1 {
        let mut above = Vec::new();
        for children in level.chunks(2) {
            let node = builder.task(Task {
                kind: NODE,
                output_bytes: HASH_BYTES as u32,
                cost: 500,
                argument: 0,
            })?;
            for &child in children {
                builder.edge(child, node, 0)?;
            }
            above.push(node);
        }
        level = above;
    }
    let root = level.first().copied().unwrap_or_default();
    Ok((builder.build()?, root))
}

impl Application for HashTree {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        let mut hash = Sha256::new();
        if call.kind == LEAF {
            let bytes = self.parameters.block_bytes;
            let block = call.external.chunks(bytes).nth(call.argument as usize);
            hash.update(block.ok_or_else(|| Failure("a block is missing".to_owned()))?);
        } else {
            call.inputs.iter().for_each(|child| hash.update(child));
        }
        call.output.copy_from_slice(&hash.finalize());
        Ok(())
    }
}

impl SliceApplication for HashTree {
    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["leaf", "node"]
    }

    fn input_bytes(&self) -> usize {
        self.parameters.blocks * self.parameters.block_bytes
    }

    /// The root, 32 bytes.
    fn results(&self, finished: &Finished, sink: &mut dyn FnMut(&[u8])) {
        sink(finished.output(self.root).unwrap_or_default());
    }
}
