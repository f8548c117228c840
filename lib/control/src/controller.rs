//! The path from a request to a changed host: read, check, plan, stage, execute, commit.

use crate::action::Action;
use crate::apply::{ApplyError, Platform, PlatformError, execute, perform};
use crate::capacity::guaranteed;
use crate::change::changes;
use crate::departures;
use crate::desired::Desired;
use crate::diff::Diff;
use crate::document::{Checked, read, read_unchecked};
use crate::guards::guarded_by;
use crate::guests::Guests;
use crate::inventory::Inventory;
use crate::members::{REPLICAS_MAX, front_of};
use crate::model::{Deployment, Link, PortRef};
use crate::plan::plan;
use crate::report::Report;
use crate::single::addition::Addition;
use crate::single::index::Index;
use crate::single::proposal::Proposal;
use crate::single::removal::Removal;
use crate::single::step::Step;
use crate::state::journal::Durable;
use crate::state::tidying::Tidying;
use crate::state::{StateError, Store};
use crate::stopwatch::Stopwatch;
use crate::template::AT;
use crate::validate::{Background, Environment, validate, validate_structure};
use nfluid_api::types::{
    ApplyRequest, ApplyResponse, Change, DeleteRequest, Kind, ObjectName, Problem, Verb,
};
use std::collections::HashSet;
use std::sync::RwLockReadGuard;

/// Owns the desired state and makes the platform follow it.
#[derive(Debug)]
pub struct Controller<P, S> {
    pub(crate) platform: P,
    store: S,
    pub(crate) desired: Desired,
    present: Inventory,
    /// The index of the deployment. The index is built when first needed, and built again after every change of the
    /// whole deployment.
    index: Option<Index>,
    pub(crate) guests: Guests,
}

/// A completed change of single instances.
#[derive(Debug)]
pub struct Stepped {
    /// The response.
    pub response: ApplyResponse,
    /// Signals when the change would survive a power failure.
    pub durable: Durable,
    /// Pending work on the disk. No request waits for this work.
    pub tidying: Option<Tidying>,
    /// The time of each phase so far.
    pub watch: Stopwatch,
}

/// An action of [`Controller::restore`] that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoreFailure {
    /// The action.
    pub action: Action,
    /// The cause.
    pub cause: PlatformError,
}

impl<P: Platform, S: Store> Controller<P, S> {
    /// Loads the desired state. `present` are the objects adopted from an earlier daemon; [`Controller::restore`]
    /// creates the others.
    ///
    /// # Errors
    /// The saved state cannot be read.
    pub fn load(mut platform: P, mut store: S, present: Inventory) -> Result<Self, StateError> {
        let deployment = store.load()?.unwrap_or_default();
        platform.guarantee(guaranteed(&deployment, platform.cpus()));
        Ok(Controller {
            platform,
            store,
            desired: Desired::new(deployment),
            present,
            index: None,
            guests: Guests::new(),
        })
    }

    /// Returns the desired state, locked for reading.
    pub fn deployment(&self) -> RwLockReadGuard<'_, Deployment> {
        self.desired.read()
    }

    /// Returns a handle for readers that do not wait until a change is done.
    pub fn desired(&self) -> Desired {
        self.desired.clone()
    }

    /// Returns the objects that exist.
    pub fn present(&self) -> &Inventory {
        &self.present
    }

    /// Returns the platform.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Returns the platform, for changes of properties that are not part of the desired state.
    pub fn platform_mut(&mut self) -> &mut P {
        &mut self.platform
    }

    /// Notes that an object no longer exists, for example after an interface vanished, so that
    /// [`Controller::restore`] creates it again.
    pub fn lost(&mut self, action: &Action) {
        self.present.record(action);
    }

    /// Creates the desired objects that are missing, one by one: a failure does not prevent the others. Can be called
    /// again at any time. Returns the failures; empty if all desired objects exist.
    pub fn restore(&mut self) -> Vec<RestoreFailure> {
        let actions = plan(&self.present, &Inventory::of(&self.deployment()));
        if actions.is_empty() {
            return Vec::new();
        }
        let mut failures = Vec::new();
        if let (Err(cause), Some(first)) = (self.platform.prepare(&actions), actions.first()) {
            failures.push(RestoreFailure {
                action: first.clone(),
                cause,
            });
            return failures;
        }
        for action in actions {
            let action = self.present.reduce(action);
            if !self.present.allows(&action) {
                // An object that this one needs failed before. That failure is reported already.
                continue;
            }
            match perform(&mut self.platform, &action) {
                Ok(()) => self.present.record(&action),
                Err(cause) => failures.push(RestoreFailure { action, cause }),
            }
        }
        self.platform.finish();
        failures
    }

    /// Reads, checks and applies a document.
    ///
    /// # Errors
    /// The faults of the document, or the reason why the change failed. Nothing was changed.
    pub fn apply(
        &mut self,
        request: &ApplyRequest,
        environment: Environment<'_>,
    ) -> Result<ApplyResponse, Problem> {
        let Checked {
            deployment,
            warnings,
        } = read(request, &self.deployment(), environment).map_err(|errors| {
            let count = errors.len();
            let name = request.file.as_deref().unwrap_or("the document");
            let plural = if count == 1 { "" } else { "s" };
            Problem::invalid(
                format!("{name} has {count} error{plural}; nothing was changed"),
                errors,
            )
        })?;
        let changes = self.change_to(deployment, request.dry_run)?;
        Ok(ApplyResponse {
            dry_run: request.dry_run,
            changes,
            warnings,
            ..ApplyResponse::default()
        })
    }

    /// Adds instances and their links, in a time that does not depend on the size of the deployment. `None`: the
    /// document needs [`Controller::apply`], which handles all changes and reports all faults.
    ///
    /// # Errors
    /// The change failed. Nothing was changed.
    pub fn add(
        &mut self,
        proposal: Proposal,
        environment: Environment<'_>,
    ) -> Option<Result<Stepped, Problem>> {
        let mut watch = proposal.watch.clone();
        let cpus = self.platform.cpus();
        let desired = self.desired();
        let deployment = desired.read();
        let index = self
            .index
            .get_or_insert_with(|| Index::of(&deployment, cpus));
        let addition = Addition::of(proposal, &deployment, index, environment)?;
        let actions = addition.actions(&self.present)?;
        drop(deployment);
        let response = ApplyResponse {
            changes: addition.changes(),
            warnings: addition.warnings.clone(),
            ..ApplyResponse::default()
        };
        let step = Step::Add(&addition.added);
        watch.lap("check");
        let durable = match self.make_step(&step, &actions, &mut watch) {
            Ok(durable) => durable,
            Err(problem) => return Some(Err(problem)),
        };
        if let Some(index) = &mut self.index {
            addition.enter(&mut desired.write(), index);
            self.platform.guarantee(index.guaranteed());
        }
        Some(Ok(Stepped {
            response,
            durable,
            tidying: self.store.tidy(),
            watch,
        }))
    }

    /// Removes instances and their links, in a time that does not depend on the size of the deployment. `None`: the
    /// request needs [`Controller::delete`].
    ///
    /// # Errors
    /// The change failed. Nothing was changed.
    pub fn take_out(&mut self, request: &DeleteRequest) -> Option<Result<Stepped, Problem>> {
        let mut watch = Stopwatch::start();
        let cpus = self.platform.cpus();
        let desired = self.desired();
        let deployment = desired.read();
        let index = self
            .index
            .get_or_insert_with(|| Index::of(&deployment, cpus));
        let removal = Removal::of(request, &deployment, index)?;
        let actions = removal.actions(&self.present)?;
        drop(deployment);
        watch.lap("check");
        let durable = match self.make_step(&Step::Remove(&removal.gone), &actions, &mut watch) {
            Ok(durable) => durable,
            Err(problem) => return Some(Err(problem)),
        };
        if let Some(index) = &mut self.index {
            removal.leave(&mut desired.write(), index);
            self.platform.guarantee(index.guaranteed());
        }
        let response = ApplyResponse {
            changes: removal.changes(),
            ..ApplyResponse::default()
        };
        Some(Ok(Stepped {
            response,
            durable,
            tidying: self.store.tidy(),
            watch,
        }))
    }

    /// Carries out a small change and saves it.
    fn make_step(
        &mut self,
        step: &Step<'_>,
        actions: &[Action],
        watch: &mut Stopwatch,
    ) -> Result<Durable, Problem> {
        departures::check_step(&self.platform, actions)?;
        self.store.stage_step(step).map_err(|e| not_saved(&e))?;
        watch.lap("journal");
        let executed = execute(&mut self.platform, actions, &mut self.present);
        watch.extend(self.platform.laps());
        if let Err(error) = executed {
            self.store.discard_step();
            return Err(failed(&error));
        }
        watch.lap("connect");
        self.store.commit_step().map_err(|error| {
            self.store.discard_step();
            // Repairs the platform, as after a failed commit of the whole deployment.
            self.restore();
            not_saved(&error)
        })
    }

    /// Divides the flows of an instance among `replicas` members.
    ///
    /// # Errors
    /// The instance does not exist, it cannot have several members, or the change failed. Nothing was changed.
    pub fn scale(
        &mut self,
        name: &str,
        replicas: u16,
        environment: Environment<'_>,
    ) -> Result<ApplyResponse, Problem> {
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            let why = format!("the number of members cannot be {replicas}");
            return Err(
                Problem::bad_request(why).with_remedy(format!("ask for 1 to {REPLICAS_MAX}"))
            );
        }
        let mut desired = self.deployment().clone();
        let instance = desired.instances.get_mut(name);
        let instance = instance.ok_or_else(|| not_desired(name))?;
        instance.replicas = (replicas > 1).then_some(replicas);
        let mut report = Report::new(None, None);
        // Validates the instance like a new one: its ability to have several members was not checked before.
        validate(&desired, Background::default(), environment, &mut report);
        let warnings = report.finish().map_err(|errors| {
            Problem::invalid(
                format!("the number of members of instance '{name}' cannot be {replicas}; nothing was changed"),
                errors,
            )
        })?;
        let changes = self.change_to(desired, false)?;
        Ok(ApplyResponse {
            changes,
            warnings,
            ..ApplyResponse::default()
        })
    }

    /// Removes objects.
    ///
    /// # Errors
    /// An object does not exist, other objects still use it, or removing it failed. Nothing was changed.
    pub fn delete(&mut self, request: &DeleteRequest) -> Result<ApplyResponse, Problem> {
        let mut rest = self.deployment().clone();
        if request.everything {
            rest = Deployment::default();
        }
        for object in &request.objects {
            if request.with_links {
                let is_its = |port: &PortRef| match port {
                    PortRef::Uplink(name) => object.kind == Kind::Uplink && *name == object.name,
                    PortRef::Instance { instance, .. } => {
                        object.kind == Kind::Instance && *instance == object.name
                    }
                };
                remove_links(&mut rest, |link| is_its(&link.0) || is_its(&link.1));
            }
            remove(&mut rest, object)?;
        }
        if let Some(text) = &request.text {
            let file = request.file.as_deref();
            let named = read_unchecked(text, file).map_err(|errors| {
                Problem::invalid("the document has errors; nothing was changed", errors)
            })?;
            remove_all_of(&mut rest, &named);
        }
        let mut report = Report::new(None, None);
        validate_structure(&rest, &mut report);
        if let Err(errors) = report.finish() {
            return Err(Problem::invalid(
                "other objects still use the objects to be deleted; nothing was changed",
                errors,
            )
            .with_remedy("delete the objects that use them as well"));
        }
        let changes = self.change_to(rest, request.dry_run)?;
        Ok(ApplyResponse {
            dry_run: request.dry_run,
            changes,
            ..ApplyResponse::default()
        })
    }

    /// Makes the platform match `desired`, and saves `desired`.
    fn change_to(&mut self, desired: Deployment, dry_run: bool) -> Result<Vec<Change>, Problem> {
        let actions = plan(&self.present, &Inventory::of(&desired));
        let mut changes = changes(&self.deployment(), &desired);
        add_repairs(&actions, &mut changes);
        if dry_run || (actions.is_empty() && *self.deployment() == desired) {
            return Ok(changes);
        }
        departures::check(&self.platform, &self.deployment(), &desired)?;
        self.store.stage(&desired).map_err(|e| not_saved(&e))?;
        if let Err(cause) = self.end_outdated_guests(&desired) {
            self.store.discard();
            return Err(Problem::failed(format!(
                "cannot end instances of templates: {cause}; the rest was not changed"
            )));
        }
        if let Err(error) = execute(&mut self.platform, &actions, &mut self.present) {
            self.store.discard();
            return Err(failed(&error));
        }
        if let Err(error) = self.store.commit() {
            self.take_back();
            return Err(not_saved(&error));
        }
        let guaranteed = guaranteed(&desired, self.platform.cpus());
        self.platform.guarantee(guaranteed);
        *self.desired.write() = desired;
        self.index = None;
        Ok(changes)
    }

    /// Returns to the old state, on the platform and on disk, after the new state could not be committed.
    fn take_back(&mut self) {
        self.store.discard();
        // Both are best effort: differences that remain are visible in `present`, and the next restore removes them.
        self.restore();
        let kept = self.desired();
        if self.store.stage(&kept.read()).is_ok() && self.store.commit().is_err() {
            self.store.discard();
        }
    }
}

/// Adds the objects of both deployments that are created again because they failed or vanished.
fn add_repairs(actions: &[Action], changes: &mut Vec<Change>) {
    let named: HashSet<(Kind, String)> = changes
        .iter()
        .map(|change| (change.kind, change.name.clone()))
        .collect();
    for action in actions {
        let (kind, name) = match action {
            Action::Group(Diff {
                name, old: None, ..
            }) => (Kind::Group, name),
            Action::Switch(Diff {
                name, old: None, ..
            }) => (Kind::Switch, name),
            Action::Uplink(Diff {
                name, old: None, ..
            }) => (Kind::Uplink, name),
            Action::Instance(Diff {
                name, old: None, ..
            }) => (Kind::Instance, name),
            _ => continue,
        };
        let guarded = guarded_by(name);
        let of = guarded.as_ref().and_then(PortRef::owner);
        let of = of.unwrap_or_else(|| front_of(name).unwrap_or(name));
        if !named.contains(&(kind, of.to_owned())) {
            changes.push(Change {
                verb: Verb::Created,
                kind,
                name: name.clone(),
                details: vec!["it was missing".into()],
            });
        }
    }
}

fn not_saved(error: &StateError) -> Problem {
    let remedy = if error.is_disk_full() {
        "the disk is full: make room and try again"
    } else {
        "look at the disk and the permissions of the state's directory"
    };
    Problem::not_saved(format!("{error}; nothing was changed")).with_remedy(remedy)
}

fn failed(error: &ApplyError) -> Problem {
    let after = if error.not_undone.is_empty() {
        "everything done before was undone; nothing was changed".to_owned()
    } else {
        format!(
            "most of what was done before was undone, but: {}",
            error.not_undone.join("; ")
        )
    };
    Problem::failed(format!("{error}; {after}")).with_remedy(error.cause.remedy.clone())
}

fn remove(deployment: &mut Deployment, object: &ObjectName) -> Result<(), Problem> {
    let name = object.name.as_str();
    let was_there = match object.kind {
        Kind::Group => deployment.groups.remove(name).is_some(),
        Kind::Flavor => deployment.flavors.remove(name).is_some(),
        Kind::Pool => deployment.pool.remove(name).is_some(),
        Kind::Template => deployment.templates.remove(name).is_some(),
        Kind::Uplink => deployment.uplinks.remove(name).is_some(),
        Kind::Switch => deployment.switches.remove(name).is_some(),
        Kind::SecurityGroup => deployment.security_groups.remove(name).is_some(),
        Kind::Instance => deployment.instances.remove(name).is_some(),
        Kind::Chain => deployment.chains.remove(name).is_some(),
        Kind::Link => remove_links(deployment, |link| link.name() == name),
        Kind::Platform => {
            return Err(
                Problem::bad_request("a platform's settings cannot be deleted")
                    .with_remedy("change the deployment's 'io' and apply"),
            );
        }
        Kind::Port => {
            return Err(Problem::bad_request("a port is a part of its instance")
                .with_remedy("change the instance's 'ports' and apply"));
        }
    };
    if was_there {
        return Ok(());
    }
    if object.kind == Kind::Instance {
        return Err(not_desired(name));
    }
    Err(
        Problem::not_found(format!("there is no {} '{name}'", object.kind)).with_remedy(
            match object.kind {
                // The deployment shows everything about flavors.
                Kind::Flavor => "'nfluid get deployment' shows them".to_owned(),
                kind => format!("'nfluid get {}' lists them", kind.plural()),
            },
        ),
    )
}

/// Returns the error for an instance that is not in the deployment: some running instances are not part of it.
pub fn not_desired(name: &str) -> Problem {
    let whose = |what: &str, remedy: String| {
        let detail = format!("instance '{name}' is no object of the deployment: it is {what}");
        Problem::not_found(detail).with_remedy(remedy)
    };
    if let Some(front) = front_of(name) {
        return whose(
            &format!("one of several that are instance '{front}'"),
            format!("'nfluid scale {front} N' changes their number"),
        );
    }
    if let Some(port) = guarded_by(name) {
        return whose(
            &format!("the guard of port '{port}', which has security groups"),
            "change the groups, or the port's 'security_groups', and apply".to_owned(),
        );
    }
    if let Some((template, _)) = name.split_once(AT) {
        return whose(
            &format!("created for a client of template '{template}'"),
            format!(
                "it ends when the client is silent; 'nfluid delete template {template}' ends all"
            ),
        );
    }
    Problem::not_found(format!("there is no instance '{name}'"))
        .with_remedy("'nfluid get instances' lists them")
}

fn remove_links(deployment: &mut Deployment, which: impl Fn(&Link) -> bool) -> bool {
    let before = deployment.links.len();
    deployment.links.retain(|link| !which(link));
    deployment.links.len() < before
}

/// Removes every object of `named` that exists.
fn remove_all_of(deployment: &mut Deployment, named: &Deployment) {
    for name in named.chains.names() {
        deployment.chains.remove(name);
    }
    let links: Vec<String> = named.links.iter().map(Link::name).collect();
    remove_links(deployment, |link| links.contains(&link.name()));
    for name in named.instances.names() {
        deployment.instances.remove(name);
    }
    for name in named.switches.names() {
        deployment.switches.remove(name);
    }
    for name in named.security_groups.names() {
        deployment.security_groups.remove(name);
    }
    for name in named.uplinks.names() {
        deployment.uplinks.remove(name);
    }
    for name in named.groups.names() {
        deployment.groups.remove(name);
    }
    for name in named.templates.names() {
        deployment.templates.remove(name);
    }
    for name in named.pool.names() {
        deployment.pool.remove(name);
    }
    for name in named.flavors.names() {
        deployment.flavors.remove(name);
    }
}
