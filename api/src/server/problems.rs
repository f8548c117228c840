//! The problems of the OpenAPI document.

use crate::types::Problem;
use std::collections::BTreeMap;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

fn problem(status: &str) -> BTreeMap<String, RefOr<Response>> {
    let schema = Ref::from_schema_name(Problem::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new().content("application/problem+json", content);
    BTreeMap::from([(status.to_owned(), response.build().into())])
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident = $status:literal),+ $(,)?) => {$(
        $(#[$doc])*
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                problem($status)
            }
        }
    )+};
}

problems! {
    /// The request cannot be read.
    Unreadable = "400",
    /// No object has this name.
    Missing = "404",
    /// The body is too large.
    TooLarge = "413",
    /// The document has errors.
    Invalid = "422",
    /// The change failed.
    Failed = "500",
    /// The daemon is overloaded.
    Busy = "503",
    /// A disk is full.
    Full = "507",
    /// Any other problem.
    Other = "default",
}
