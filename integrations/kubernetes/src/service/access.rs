//! Who calls, and what the caller may do. Kubernetes decides, as for a kubelet (its webhook modes): the token of a caller is shown to the API server,
//! and the API server is asked whether the caller may use the node.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A caller, as Kubernetes knows users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    user: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    /// Returns the user of a certificate: its common name, with its organizations as groups.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let subject = parsed.subject();
        let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization();
        let groups = groups
            .filter_map(|it| Some(it.as_str().ok()?.to_owned()))
            .collect();
        Some(Caller {
            user,
            groups,
            ..Caller::default()
        })
    }
}

/// The API server, which decides.
pub struct Access {
    client: Client,
    node: String,
}

impl Access {
    /// Creates the access to the node `node`.
    pub fn new(client: Client, node: String) -> Self {
        Access { client, node }
    }

    /// Returns the caller of a token; `None`: it is nobody's.
    async fn of_token(&self, token: &str) -> kube::Result<Option<Caller>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await?;
        let status = review
            .status
            .filter(|status| status.authenticated == Some(true));
        Ok(status.and_then(|it| it.user).map(|user| Caller {
            user: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    /// Returns true if a caller may do this with the node.
    async fn may(&self, caller: Caller, verb: &str, part: &str) -> kube::Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.user),
                uid: caller.uid,
                groups: Some(caller.groups),
                extra: Some(caller.extra),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(part.to_owned()),
                    name: Some(self.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

/// Returns verb and subresource of the node that a path needs, as a kubelet's.
fn need(path: &str) -> (&'static str, &'static str) {
    match path.split('/').nth(1) {
        Some("metrics") => ("get", "metrics"),
        Some("healthz") => ("get", "healthz"),
        Some("containerLogs") => ("get", "proxy"),
        // A command changes something, whatever the method by which it is asked for.
        _ => ("create", "proxy"),
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ")
}

/// Lets a request through if its caller may make it.
pub async fn admit(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let shown = request
        .extensions()
        .get::<Option<Caller>>()
        .cloned()
        .flatten();
    let caller = match (shown, token(request.headers())) {
        (Some(caller), _) => Ok(Some(caller)),
        (None, Some(token)) => access.of_token(token).await,
        (None, None) => Ok(None),
    };
    let path = request.uri().path();
    let (verb, part) = need(path);
    let is_allowed = match caller {
        Ok(Some(caller)) => access.may(caller, verb, part).await,
        Ok(None) => return (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response(),
        Err(error) => Err(error),
    };
    match is_allowed {
        Ok(true) => next.run(request).await,
        Ok(false) => (
            StatusCode::FORBIDDEN,
            format!("Forbidden: {verb} nodes/{part}\n"),
        )
            .into_response(),
        Err(error) => {
            tracing::warn!(%error, "asking Kubernetes about a caller");
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "Kubernetes does not say who calls\n",
            )
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    // promise: 26.5
    #[test]
    fn a_command_needs_more_than_looking() {
        assert_eq!(need("/metrics/resource"), ("get", "metrics"));
        assert_eq!(need("/containerLogs/a/b/c"), ("get", "proxy"));
        for path in [
            "/exec/a/b/c",
            "/",
            "",
            "/of/tomorrow",
            "//containerLogs/a/b/c",
        ] {
            assert_eq!(need(path), ("create", "proxy"), "{path}");
        }
    }

    #[test]
    fn a_certificate_is_a_user_with_groups() {
        let mut params = CertificateParams::new(["x".to_owned()]).expect("a name");
        params
            .distinguished_name
            .push(DnType::CommonName, "apiserver");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        let caller = Caller::of_certificate(certificate.der()).expect("a user");
        assert_eq!(
            (caller.user.as_str(), &caller.groups[..]),
            ("apiserver", &["system:masters".to_owned()][..])
        );
        assert_eq!(
            Caller::of_certificate(&CertificateDer::from(vec![1, 2, 3])),
            None
        );
    }
}
