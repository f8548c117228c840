//! Strongly connected components (Tarjan, 1972).

/// Returns the sets of two or more nodes that reach each other, each in ascending order. `edges`: for each node, the
/// targets of its edges.
pub fn cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        order: vec![None; edges.len()],
        low: vec![0; edges.len()],
        stack: Vec::new(),
        on_stack: vec![false; edges.len()],
        seen: 0,
        found: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.found.sort();
    search.found
}

struct Search<'a> {
    edges: &'a [Vec<usize>],
    /// Visit number of each node.
    order: Vec<Option<usize>>,
    /// The lowest visit number that is reachable from each node.
    low: Vec<usize>,
    stack: Vec<usize>,
    on_stack: Vec<bool>,
    seen: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// The recursion is as deep as the longest path of modules.
    fn visit(&mut self, node: usize) {
        let at = self.seen;
        self.seen += 1;
        self.order[node] = Some(at);
        self.low[node] = at;
        self.stack.push(node);
        self.on_stack[node] = true;
        for next in &self.edges[node] {
            match self.order[*next] {
                None => {
                    self.visit(*next);
                    self.low[node] = self.low[node].min(self.low[*next]);
                }
                Some(order) if self.on_stack[*next] => {
                    self.low[node] = self.low[node].min(order);
                }
                Some(_) => {}
            }
        }
        if self.low[node] != at {
            return;
        }
        let first = self.stack.iter().position(|on| *on == node).unwrap_or(0);
        let mut set = self.stack.split_off(first);
        for member in &set {
            self.on_stack[*member] = false;
        }
        if set.len() > 1 {
            set.sort_unstable();
            self.found.push(set);
        }
    }
}
