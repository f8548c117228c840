//! Requests at their times, whatever the engine answers: a slow engine has more of them at once.

use crate::load::Load;
use anyhow::{Context, bail, ensure};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Api, Client, Config, discovery};
use nfluid_control::yaml;
use nfluid_figures::statistics::Samples;
use nfluid_figures::terminal::{significant, table_text};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;

/// What is asked for, and its turns in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    object: Value,
    turns: u32,
}

/// Reads templates: `FILE`, or `FILE=TURNS`.
///
/// # Errors
/// A file cannot be read, or is no object.
pub fn templates(arguments: &[String]) -> anyhow::Result<Vec<Template>> {
    let one = |argument: &String| {
        let (file, turns) = match argument.rsplit_once('=') {
            Some((file, turns)) => (
                file,
                turns
                    .parse()
                    .with_context(|| format!("'{turns}' is no number of turns"))?,
            ),
            None => (argument.as_str(), 1),
        };
        let text = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
        let node = yaml::parse(&text)
            .map_err(|error| anyhow::anyhow!("{file}:{}: {}", error.mark.line, error.message))?;
        let object = node.to_json();
        ensure!(
            object.is_object() && turns > 0,
            "{file}: an object, and at least one turn, are expected"
        );
        Ok(Template { object, turns })
    };
    arguments.iter().map(one).collect()
}

/// An engine.
#[derive(Clone)]
pub enum Engine {
    /// Kubernetes' API server.
    Kubernetes(Client),
    /// Nomad's agent.
    Nomad(Client),
    /// Nova's API, with a token.
    OpenStack(Client, String),
}

/// The variable with a token of Keystone.
const TOKEN: &str = "OS_TOKEN";

impl Engine {
    /// Finds Kubernetes' API server by a file, or as kubectl would.
    ///
    /// # Errors
    /// There is none.
    pub async fn kubernetes(kubeconfig: Option<&Path>) -> anyhow::Result<Self> {
        let config = match kubeconfig {
            None => Config::infer().await?,
            Some(file) => {
                let read =
                    Kubeconfig::read_from(file).with_context(|| file.display().to_string())?;
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
            }
        };
        Ok(Engine::Kubernetes(Client::try_from(config)?))
    }

    /// Finds Nomad's agent by its address.
    ///
    /// # Errors
    /// It is no address.
    pub fn nomad(address: &str) -> anyhow::Result<Self> {
        let address = address
            .parse()
            .with_context(|| format!("'{address}' is no address: http://HOST:4646"))?;
        Ok(Engine::Nomad(Client::try_from(Config::new(address))?))
    }

    /// Finds Nova by its address, and a token in the environment.
    ///
    /// # Errors
    /// The address is none, or the environment has no token.
    pub fn openstack(address: &str) -> anyhow::Result<Self> {
        let token = std::env::var(TOKEN).with_context(|| {
            format!("{TOKEN}: a token ('openstack token issue -f value -c id') is expected")
        })?;
        let address = address
            .parse()
            .with_context(|| format!("'{address}' is no address: http://HOST:8774/v2.1"))?;
        Ok(Engine::OpenStack(
            Client::try_from(Config::new(address))?,
            token,
        ))
    }

    /// Prepares a template.
    async fn prepare(&self, template: &Template) -> anyhow::Result<Prepared> {
        match self {
            Engine::Kubernetes(client) => {
                let types: TypeMeta = serde_json::from_value(template.object.clone())
                    .context("the object has no apiVersion and kind")?;
                let kind = GroupVersionKind::try_from(&types)?;
                let (resource, capabilities) = discovery::pinned_kind(client, &kind).await?;
                let namespace = template.object["metadata"]["namespace"]
                    .as_str()
                    .unwrap_or("default");
                let api = match capabilities.scope {
                    discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
                    discovery::Scope::Namespaced => {
                        Api::namespaced_with(client.clone(), namespace, &resource)
                    }
                };
                let name = template.object["metadata"]["name"].as_str();
                Ok(Prepared {
                    name: name.context("the object has no name")?.to_owned(),
                    object: template.object.clone(),
                    way: Way::Objects(api),
                })
            }
            Engine::Nomad(client) => {
                // As 'nomad job run -output' prints it, or the job alone.
                let job = match &template.object["Job"] {
                    Value::Null => template.object.clone(),
                    job => job.clone(),
                };
                let name = job["ID"].as_str().context("the job has no ID")?.to_owned();
                Ok(Prepared {
                    name,
                    object: job,
                    way: Way::Jobs(client.clone()),
                })
            }
            Engine::OpenStack(client, token) => {
                // As the API takes it, or what is in it alone.
                let server = match &template.object["server"] {
                    Value::Null => template.object.clone(),
                    server => server.clone(),
                };
                let name = server["name"].as_str().context("the server has no name")?;
                Ok(Prepared {
                    name: name.to_owned(),
                    object: server,
                    way: Way::Servers(client.clone(), token.clone()),
                })
            }
        }
    }
}

enum Way {
    Objects(Api<DynamicObject>),
    Jobs(Client),
    Servers(Client, String),
}

/// A template, and the way to the engine.
struct Prepared {
    name: String,
    object: Value,
    way: Way,
}

impl Prepared {
    async fn ask(&self, name: &str) -> anyhow::Result<()> {
        let mut object = self.object.clone();
        match &self.way {
            Way::Objects(api) => {
                object["metadata"]["name"] = name.into();
                let object: DynamicObject = serde_json::from_value(object)?;
                api.create(&PostParams::default(), &object).await?;
            }
            Way::Jobs(client) => {
                object["ID"] = name.into();
                object["Name"] = name.into();
                let body = json!({ "Job": object });
                send(client, None, "POST", "/v1/jobs", &body).await?;
            }
            Way::Servers(client, token) => {
                object["name"] = name.into();
                let body = json!({ "server": object });
                send(client, Some(token), "POST", "/servers", &body).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> anyhow::Result<()> {
        match &self.way {
            Way::Objects(api) => drop(api.delete(name, &DeleteParams::default()).await?),
            Way::Jobs(client) => {
                let path = format!("/v1/job/{name}?purge=true");
                send(client, None, "DELETE", &path, &Value::Null).await?;
            }
            Way::Servers(client, token) => {
                let path = format!("/servers?name=^{name}$");
                let found = send(client, Some(token), "GET", &path, &Value::Null).await?;
                let found: Value = serde_json::from_str(&found)?;
                for server in found["servers"].as_array().into_iter().flatten() {
                    let id = server["id"].as_str().context("a server without an id")?;
                    let path = format!("/servers/{id}");
                    send(client, Some(token), "DELETE", &path, &Value::Null).await?;
                }
            }
        }
        Ok(())
    }
}

async fn send(
    client: &Client,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> anyhow::Result<String> {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request
            .header("x-auth-token", token)
            .header("openstack-api-version", "compute 2.60");
    }
    Ok(client.request_text(request.body(body)?).await?)
}

/// A request.
#[derive(Clone, Debug, Serialize)]
struct Asked {
    name: String,
    /// In milliseconds since 1970: when it was due, was sent, and was answered.
    due_ms: f64,
    sent_ms: f64,
    answered_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What became of a load.
#[derive(Debug, Default)]
pub struct Report {
    all: Vec<Asked>,
    seconds: f64,
}

impl Report {
    /// The number of requests that were refused.
    pub fn refused(&self) -> usize {
        self.all.iter().filter(|it| it.error.is_some()).count()
    }

    /// A line of JSON for each request, in the order of their numbers.
    pub fn lines(&self) -> String {
        let lines = self
            .all
            .iter()
            .filter_map(|it| serde_json::to_string(it).ok());
        lines.map(|line| line + "\n").collect()
    }

    /// A table for people, and each reason of a refusal with its number.
    pub fn summary(&self) -> String {
        let samples = |of: fn(&Asked) -> f64| self.all.iter().map(of).collect::<Samples>();
        let row = |what: &str, samples: Samples| {
            let numbers = [samples.median(), samples.p99(), samples.quantile(1.0)];
            let mut row = vec![what.to_owned()];
            row.extend(numbers.map(significant));
            row
        };
        let rows = [
            row(
                "sent after it was due",
                samples(|it| it.sent_ms - it.due_ms),
            ),
            row(
                "answered after it was sent",
                samples(|it| it.answered_ms - it.sent_ms),
            ),
        ];
        let rate = self.all.len() as f64 / self.seconds.max(f64::MIN_POSITIVE);
        let title = format!(
            "{} requests in {} s, {} per second; in ms",
            self.all.len(),
            significant(self.seconds),
            significant(rate)
        );
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for error in self.all.iter().filter_map(|it| it.error.as_deref()) {
            *reasons.entry(error).or_default() += 1;
        }
        let refused = reasons
            .iter()
            .map(|(why, count)| format!("refused {count} times: {why}\n"));
        table_text(&title, &["", "median", "p99", "most"], &rows) + &refused.collect::<String>()
    }
}

/// Asks for everything at its time, and waits for the answers. With `removes`, what was made is removed then.
///
/// # Errors
/// A template is nothing that the engine knows, or something cannot be removed.
pub async fn run(
    engine: Engine,
    templates: &[Template],
    load: &Load,
    removes: bool,
) -> anyhow::Result<Report> {
    let mut round = Vec::new();
    for template in templates {
        let prepared = Arc::new(engine.prepare(template).await?);
        round.extend((0..template.turns).map(|_| Arc::clone(&prepared)));
    }
    if round.is_empty() {
        bail!("there is no template");
    }
    let (begun, begun_ms) = (Instant::now(), since_1970());
    let ms = move |at: Instant| begun_ms + at.duration_since(begun).as_secs_f64() * 1e3;
    let mut tasks = JoinSet::new();
    for (number, (due, prepared)) in load.due().into_iter().zip(round.iter().cycle()).enumerate() {
        let prepared = Arc::clone(prepared);
        tokio::time::sleep_until((begun + due).into()).await;
        tasks.spawn(async move {
            let name = format!("{}-{number}", prepared.name);
            let sent = Instant::now();
            let asked = prepared.ask(&name).await;
            let answered = Instant::now();
            let [due_ms, sent_ms, answered_ms] = [begun + due, sent, answered].map(ms);
            // The same reason for another request is the same reason.
            let error = asked
                .err()
                .map(|error| reason(&error).replace(&name, &format!("{}-N", prepared.name)));
            (
                number,
                prepared,
                Asked {
                    name,
                    due_ms,
                    sent_ms,
                    answered_ms,
                    error,
                },
            )
        });
    }
    let mut done = tasks.join_all().await;
    done.sort_by_key(|(number, ..)| *number);
    let seconds = begun.elapsed().as_secs_f64();
    if removes {
        for (_, prepared, asked) in done.iter().filter(|(.., asked)| asked.error.is_none()) {
            prepared
                .remove(&asked.name)
                .await
                .with_context(|| format!("removing {}", asked.name))?;
        }
    }
    Ok(Report {
        all: done.into_iter().map(|(.., asked)| asked).collect(),
        seconds,
    })
}

/// Returns why a request was refused, in the engine's words.
fn reason(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.message.trim().to_owned(),
        _ => format!("{error:#}"),
    }
}

fn since_1970() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 28.2
    #[test]
    fn a_report_has_each_request_and_each_reason_once() {
        let asked = |number: u32, error: Option<&str>| Asked {
            name: format!("x-{number}"),
            due_ms: 10.0,
            sent_ms: 11.0,
            answered_ms: 14.0,
            error: error.map(str::to_owned),
        };
        let all = vec![
            asked(0, None),
            asked(1, Some("quota")),
            asked(2, Some("quota")),
        ];
        let report = Report { all, seconds: 2.0 };
        assert_eq!(report.refused(), 2);
        assert_eq!(report.lines().lines().count(), 3);
        let summary = report.summary();
        assert!(
            summary.contains("refused 2 times: quota") && summary.contains("1.500 per second"),
            "{summary}"
        );
    }
}
