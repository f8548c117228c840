//! State that all handlers share.

use super::function::Places;
use super::respond::Calls;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// State that all handlers share.
pub(super) struct Shared<S> {
    /// The server, for functions, which have places of their own, and for methods that do not block.
    pub server: Arc<S>,
    /// Places for reads: changes that take long use none of these.
    pub views: Calls<S>,
    /// Places for changes.
    pub changes: Calls<S>,
    /// Places for captures; a capture holds one as long as its client listens.
    pub captures: Arc<Semaphore>,
    /// Places for functions.
    pub functions: Arc<Places>,
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Shared {
            server: self.server.clone(),
            views: self.views.clone(),
            changes: self.changes.clone(),
            captures: self.captures.clone(),
            functions: self.functions.clone(),
        }
    }
}
