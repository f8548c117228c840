//! State that all handlers share.

use super::function::Places;
use super::respond::Calls;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// State that all handlers share.
pub(super) struct Shared<S> {
    /// For functions, which have places of their own, and for what does not block.
    pub server: Arc<S>,
    /// For who only asks: changes that do not end take no place of these.
    pub views: Calls<S>,
    /// For changes.
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
