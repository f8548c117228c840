//! Flavors and images, which tenants see when they are attached to them or public.

use crate::fault::Fault;
use crate::objects::{Flavor, Image, Object, Public, Server};
use crate::store::View;
use std::collections::BTreeSet;
use uuid::Uuid;

/// An object that tenants see when it is attached to them.
pub trait Attached: Object {
    /// Returns the tenants to which it is attached.
    fn tenants(&mut self) -> &mut BTreeSet<Uuid>;

    /// Returns who else sees it.
    fn public(&self) -> Public;

    /// Returns true if a server is made of it.
    fn is_used_by(&self, server: &Server) -> bool;

    /// Returns true if servers that are made of both are alike.
    fn is_alike(&self, other: &Self) -> bool;
}

impl Attached for Flavor {
    fn tenants(&mut self) -> &mut BTreeSet<Uuid> {
        &mut self.tenants
    }

    fn public(&self) -> Public {
        self.public
    }

    fn is_used_by(&self, server: &Server) -> bool {
        server.flavor == self.id
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.ram == other.ram && self.extended == other.extended
    }
}

impl Attached for Image {
    fn tenants(&mut self) -> &mut BTreeSet<Uuid> {
        &mut self.tenants
    }

    fn public(&self) -> Public {
        self.public
    }

    fn is_used_by(&self, server: &Server) -> bool {
        server.image == self.id
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.path == other.path && self.metadata == other.metadata
    }
}

/// Returns true if a tenant sees an object.
pub fn is_visible(object: &mut impl Attached, tenant: Uuid) -> bool {
    object.public() == Public::Yes || object.tenants().contains(&tenant)
}

/// Returns an object that a tenant sees.
pub fn visible<T: Attached>(view: &impl View, id: Uuid, tenant: Uuid) -> Result<T, Fault> {
    let mut object: T = view.get(id)?;
    if !is_visible(&mut object, tenant) {
        return Err(Fault::unknown(T::WORD, id));
    }
    Ok(object)
}
