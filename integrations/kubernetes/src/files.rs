//! The files that a pod mounts from ConfigMaps and Secrets. They are read by the instance's configuration, and lie on no disk.

use k8s_openapi::api::core::v1::{Container, KeyToPath, Pod, Volume};
use std::collections::BTreeMap;

/// Where the API server mounts a token for programs that call it. Instances call nobody.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The kind of an object with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Kind {
    /// Returns the name as Kubernetes writes it in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }
}

/// The data of an object, by key.
pub type Data = BTreeMap<String, Vec<u8>>;

/// A reference of a pod to an object with data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
}

/// What a volume has of an object.
struct Source {
    reference: Reference,
    items: Option<Vec<KeyToPath>>,
    is_optional: bool,
}

/// A volume as the agent sees it.
enum Origin {
    Objects(Vec<Source>),
    /// A folder of the host.
    Folder(String),
    Token,
    Unknown,
}

fn origin(volume: &Volume) -> Origin {
    let source =
        |kind, name: &str, items: &Option<Vec<KeyToPath>>, optional: Option<bool>| Source {
            reference: Reference {
                kind,
                name: name.to_owned(),
            },
            items: items.clone(),
            is_optional: optional.unwrap_or(false),
        };
    if let Some(it) = &volume.config_map {
        return Origin::Objects(vec![source(
            Kind::ConfigMap,
            &it.name,
            &it.items,
            it.optional,
        )]);
    }
    if let Some(it) = &volume.secret {
        let name = it.secret_name.as_deref().unwrap_or_default();
        return Origin::Objects(vec![source(Kind::Secret, name, &it.items, it.optional)]);
    }
    if let Some(it) = &volume.host_path {
        return Origin::Folder(it.path.clone());
    }
    let Some(projected) = &volume.projected else {
        return Origin::Unknown;
    };
    let parts = projected.sources.as_deref().unwrap_or_default();
    if parts
        .iter()
        .any(|part| part.service_account_token.is_some())
    {
        return Origin::Token;
    }
    let mut sources = Vec::new();
    for part in parts {
        if let Some(it) = &part.config_map {
            sources.push(source(Kind::ConfigMap, &it.name, &it.items, it.optional));
        } else if let Some(it) = &part.secret {
            sources.push(source(Kind::Secret, &it.name, &it.items, it.optional));
        } else {
            return Origin::Unknown;
        }
    }
    Origin::Objects(sources)
}

fn volumes(pod: &Pod) -> &[Volume] {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default()
}

/// Returns the objects that a pod refers to.
pub fn references(pod: &Pod) -> Vec<Reference> {
    let mut all: Vec<_> = volumes(pod)
        .iter()
        .flat_map(|volume| match origin(volume) {
            Origin::Objects(sources) => sources,
            _ => Vec::new(),
        })
        .map(|source| source.reference)
        .collect();
    all.sort();
    all.dedup();
    all
}

/// What a container mounts.
#[derive(Debug, Default, PartialEq)]
pub struct Mounts {
    /// Contents of files from objects, by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Folders of the host: the folder, its path in the container, and whether the container writes there.
    pub folders: Vec<(String, String, bool)>,
}

impl Mounts {
    /// Returns the mounts of a container, with the present data of the objects; `None`: there is no such object.
    ///
    /// # Errors
    /// All that cannot be mounted.
    pub fn of(
        pod: &Pod,
        container: &Container,
        look: impl Fn(&Reference) -> Option<Data>,
    ) -> Result<Self, Vec<String>> {
        let mut mounts = Mounts::default();
        let mut faults = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let place = format!(
                "spec.containers[{}].volumeMounts[{}]",
                container.name, mount.name
            );
            let volume = volumes(pod).iter().find(|volume| volume.name == mount.name);
            let at = mount.mount_path.trim_end_matches('/');
            match volume.map_or(Origin::Unknown, origin) {
                Origin::Token if at == TOKEN => {}
                Origin::Token | Origin::Unknown => faults.push(format!(
                    "{place}: volumes here are of ConfigMaps, Secrets and folders of the host"
                )),
                Origin::Folder(_) if mount.sub_path.is_some() => {
                    faults.push(format!("{place}: write the whole path in hostPath"));
                }
                Origin::Folder(folder) => {
                    let writes = mount.read_only != Some(true);
                    mounts.folders.push((folder, at.to_owned(), writes));
                }
                Origin::Objects(sources) => {
                    let sub_path = mount.sub_path.as_deref();
                    let found = sources.iter().try_for_each(|source| {
                        for (path, content) in source.content(&look)? {
                            let path = match sub_path {
                                None => format!("{at}/{path}"),
                                Some(sub_path) if sub_path == path => at.to_owned(),
                                Some(_) => continue,
                            };
                            mounts.files.insert(path, content);
                        }
                        Ok::<_, String>(())
                    });
                    faults.extend(found.err().map(|why| format!("{place}: {why}")));
                }
            }
        }
        if faults.is_empty() {
            Ok(mounts)
        } else {
            Err(faults)
        }
    }

    /// Returns the text of a file.
    ///
    /// # Errors
    /// The container mounts no such file, or the file is no text.
    pub fn text(&self, path: &str) -> Result<String, String> {
        let content = self.files.get(path).ok_or_else(|| {
            format!("the container mounts no file '{path}' from a ConfigMap or a Secret")
        })?;
        String::from_utf8(content.clone()).map_err(|_| format!("'{path}' is no text in UTF-8"))
    }
}

impl Source {
    fn content(
        &self,
        look: impl Fn(&Reference) -> Option<Data>,
    ) -> Result<Vec<(String, Vec<u8>)>, String> {
        let Reference { kind, name } = &self.reference;
        let Some(data) = look(&self.reference) else {
            return if self.is_optional {
                Ok(Vec::new())
            } else {
                Err(format!("{} \"{name}\" not found", kind.name()))
            };
        };
        let Some(items) = &self.items else {
            return Ok(data.into_iter().collect());
        };
        let mut content = Vec::new();
        for item in items {
            match data.get(&item.key) {
                Some(value) => content.push((item.path.clone(), value.clone())),
                None if self.is_optional => {}
                None => {
                    return Err(format!(
                        "{} \"{name}\" has no key \"{}\"",
                        kind.name(),
                        item.key
                    ));
                }
            }
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(volumes: Value, mounts: Value) -> Pod {
        let pod = json!({ "spec": { "volumes": volumes, "containers": [{ "name": "fw", "volumeMounts": mounts }] } });
        serde_json::from_value(pod).expect("a pod")
    }

    fn mounts(volumes: Value, mounts: Value) -> Result<Mounts, Vec<String>> {
        let pod = pod(volumes, mounts);
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        Mounts::of(&pod, container, |reference| {
            (reference.name == "rules").then(|| {
                [("a", "1"), ("b", "2")]
                    .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
                    .into()
            })
        })
    }

    #[test]
    fn files_are_where_kubernetes_would_put_them() {
        let volume = json!([{ "name": "r", "configMap": { "name": "rules" } }]);
        let mount = |at: &str| json!([{ "name": "r", "mountPath": at }]);
        let whole = mounts(volume.clone(), mount("/etc/nf/")).expect("there");
        assert_eq!(whole.text("/etc/nf/b").as_deref(), Ok("2"));
        assert!(whole.text("/etc/nf/c").is_err());
        let one = json!([{ "name": "r", "mountPath": "/etc/rules", "subPath": "a" }]);
        let one = mounts(volume, one).expect("there");
        assert_eq!(one.files.keys().collect::<Vec<_>>(), ["/etc/rules"]);
        let renamed = json!([{ "name": "r", "projected": { "sources": [{ "secret": {
            "name": "rules", "items": [{ "key": "a", "path": "fw/rules" }] } }] } }]);
        let renamed = mounts(renamed, mount("/etc")).expect("there");
        assert_eq!(renamed.files.keys().collect::<Vec<_>>(), ["/etc/fw/rules"]);
    }

    // promise: 26.4
    #[test]
    fn what_is_missing_is_named_unless_it_may_be() {
        let mount = json!([{ "name": "r", "mountPath": "/r" }]);
        let with = |volume: Value| mounts(json!([volume]), mount.clone());
        let faults = with(json!({ "name": "r", "configMap": { "name": "none" } }));
        assert_eq!(
            faults.expect_err("missing"),
            ["spec.containers[fw].volumeMounts[r]: configmap \"none\" not found"]
        );
        let optional = json!({ "name": "r", "configMap": { "name": "none", "optional": true } });
        assert_eq!(with(optional), Ok(Mounts::default()));
        let key = json!({ "name": "r", "secret": { "secretName": "rules", "items": [{ "key": "x", "path": "x" }] } });
        assert!(with(key).is_err());
        assert!(with(json!({ "name": "r", "emptyDir": {} })).is_err());
        let token = json!([{ "name": "kube-api-access-x", "projected": { "sources": [
            { "serviceAccountToken": { "path": "token" } }, { "configMap": { "name": "kube-root-ca.crt" } }] } }]);
        let mount = json!([{ "name": "kube-api-access-x", "mountPath": TOKEN }]);
        assert_eq!(mounts(token.clone(), mount.clone()), Ok(Mounts::default()));
        assert_eq!(references(&pod(token, mount)), []);
    }
}
