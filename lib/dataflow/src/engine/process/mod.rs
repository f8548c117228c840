//! PEs as processes: what a slice's kernels do harms no other slice.
//!
//! A PE has a process per slice, which shares memory with the core manager and with the slice's other PEs, and with nobody else
//! ([`region`]). The core manager believes nothing that it reads there: a word that is no answer to what it has asked, a process
//! that ends or does not come back costs that slice's graphs on that PE. The process is killed, and another takes its place.
//!
//! Processes are forked by a thread that does nothing else ([`maker`]): a fork takes hundreds of microseconds, in which the core
//! manager goes on.

pub mod apart;
mod child;
mod form;
mod maker;
mod places;
pub mod region;
mod seat;
mod seats;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::job::Shape;
use super::work::Application;
use crate::manager::SliceId;
use apart::{Apart, Form};
use region::Region;

#[cfg(test)]
pub use child::everything;
pub use maker::{Maker, PeSettings};
pub use seats::Seats;

/// Most bytes that a slice's graphs under way take. What is not touched takes no memory.
pub const REGION_BYTES: usize = 512 << 20;
/// Forms of graphs that are kept in a region: the one in use, and the one before.
const FORMS: usize = 2;

/// Each process calls this before its first task, to take away from itself what a PE does not need.
pub type Confine = fn() -> io::Result<()>;

/// A slice whose kernels run in processes.
pub struct Tenant {
    pub slice: SliceId,
    name: String,
    application: Arc<dyn Application>,
    region: Arc<Region>,
    forms: Mutex<VecDeque<Form>>,
}

impl Tenant {
    /// Maps the memory of a slice.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        slice: SliceId,
        name: &str,
        application: Arc<dyn Application>,
    ) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            slice,
            name: name.to_owned(),
            application,
            region: Region::new(REGION_BYTES)?,
            forms: Mutex::default(),
        }))
    }

    /// Lays an interval out; `None` if there is no room.
    pub fn lay_out(&self, shape: &Shape, input: &[u8], measures: bool) -> Option<Apart> {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let known = forms.iter().find(|form| form.shape == shape.number);
        let form = match known {
            Some(form) => form.clone(),
            None => {
                let form = Form::write(&self.region, shape)?;
                forms.truncate(FORMS - 1);
                forms.push_front(form.clone());
                form
            }
        };
        Apart::new(&self.region, &form, shape, input, measures)
    }
}
