//! Functions: programs that a client sends, each run once in an instance of its own: without ports, with limits, and with
//! its standard streams in the daemon's hands.
//!
//! A function has its own process, user, mount, IPC and UTS namespaces, kernel user, cgroup, system call filter and
//! Landlock rules, like the instances of users' programs. A function may also fork. It sees no file of the host
//! except libraries and, if it is a script, itself. A function ends with the daemon: the kernel kills it when the
//! daemon is gone, and the next daemon removes the empty cgroup and the script.

mod program;
mod running;

use crate::maker::Maker;
use crate::paths::Paths;
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nfluid_api::types::{FunctionLimits, FunctionReport, FunctionRequest, Problem};
use nfluid_lifecycle::machine;
use nfluid_sandbox::cgroup::{Cgroup, CgroupRoot, Share};
use nfluid_sandbox::{Instance, Launch, Limits, ShellSpec, SpawnError, Zygote, spawn};
use nfluid_switch::numbers::Ids;
use program::{Code, Filters};
use running::{Ended, Running, Streams};
use std::ffi::CString;
use std::io::PipeReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The cgroup of all functions, below the platform's.
const DIRECTORY: &str = "functions";
/// Weight of all functions together against instances: that of one function that may use a core.
const WEIGHT_PER_MILLE: u32 = 1000;
/// Part of the host's memory for all functions together (1/2). The 32 functions that may run at once could ask for
/// 128 GiB and 16,384 processes and threads. The number of processes and threads is limited as well.
const MEMORY_PART: u64 = 2;
const TASKS_MAX: u32 = 4096;
/// Smallest memory in which a function can be started.
const MEMORY_BYTES_MIN: u64 = 4 << 20;
/// Limit of a program's and of an input's size.
const BYTES_MAX: usize = 8 << 20;
/// The environment of a function.
const ENVIRONMENT: [&std::ffi::CStr; 3] = [c"PATH=/usr/bin:/bin", c"HOME=/", c"LANG=C.UTF-8"];

/// The resources for running functions. Needs no lock of the host.
pub struct Functions {
    paths: Paths,
    place: CgroupRoot,
    users: Ids,
    maker: Arc<Maker>,
    /// A child of the daemon's main thread, which is therefore the parent of functions too.
    zygote: Zygote,
    filters: Filters,
    next: AtomicU64,
    is_ending: AtomicBool,
}

/// A function that is created, run and removed. Dropping it removes what exists of it.
struct Function<'a> {
    functions: &'a Functions,
    name: String,
    user: u32,
    cgroup: Option<Cgroup>,
    process: Option<Instance>,
}

impl Functions {
    /// Prepares to run functions, and removes leftovers of a daemon that was killed. Must be called from the daemon's
    /// main thread: functions end when the calling thread ends.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(maker: Arc<Maker>) -> anyhow::Result<Self> {
        let paths = maker.paths.clone();
        let place = maker.cgroups.within(DIRECTORY);
        let place = place.context("making the cgroup of functions")?;
        for name in place.names().context("looking for functions")? {
            place
                .remove_leftover(&name)
                .context("removing a function of an earlier daemon")?;
        }
        place.set_weight(Share::from_per_mille(WEIGHT_PER_MILLE)?)?;
        place.set_memory(machine::memory_bytes() / MEMORY_PART)?;
        place.set_pids(TASKS_MAX)?;
        program::make_folder(&paths.functions()).context("making the folder of functions")?;
        Ok(Functions {
            place,
            users: maker.numbers.users.clone(),
            zygote: Zygote::start().context("starting the zygote of functions")?,
            filters: Filters::compile()?,
            next: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            maker,
            paths,
        })
    }

    /// Runs a program until it ends, exceeds a limit, or `client` hangs up.
    ///
    /// # Errors
    /// The program cannot run here, asks for limits that it cannot get, or no instance can be made for it.
    pub fn run(
        &self,
        request: &FunctionRequest,
        client: &PipeReader,
    ) -> Result<FunctionReport, Problem> {
        let begun = Instant::now();
        check(&request.limits)?;
        let bytes = decoded("program", &request.program)?;
        let input = decoded("input", &request.input)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("f-{number}");
        let code = Code::of(&bytes, &request.name, &self.paths.functions().join(&name))
            .map_err(|why| Problem::bad_request(format!("{}: {why:#}", request.name)))?;
        drop(bytes);
        let failed = |why: anyhow::Error| Problem::failed(format!("{}: {why:#}", request.name));
        let mut function = self.make(name, &request.limits).map_err(failed)?;
        let streams = Streams::new(input, request.limits.output_bytes)
            .map_err(|error| failed(anyhow::Error::from(error).context("making pipes")))?;
        let streams = function.start(&code, request, streams)?;
        let created = begun.elapsed();
        let ended = function
            .wait(streams, &request.limits, client)
            .map_err(failed)?;
        Ok(FunctionReport {
            end: ended.end,
            output: STANDARD.encode(&ended.output),
            errors: STANDARD.encode(&ended.errors),
            created_us: created.as_micros() as u64,
            ran_us: begun.elapsed().saturating_sub(created).as_micros() as u64,
            cpu_time_us: ended.used.cpu_usage_ns.unwrap_or(0) / 1000,
            memory_bytes_peak: ended.used.memory_bytes_peak.unwrap_or(0),
        })
    }

    /// Ends all functions; no other function starts any more.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        // Without the zygote no function can be forked after this.
        self.zygote.end();
        for name in self.place.names().unwrap_or_default() {
            if let Err(error) = self.place.remove_leftover(&name) {
                tracing::warn!(cgroup = name, %error, "removing a function");
            }
        }
        if let Err(error) = self.place.clone().remove_empty() {
            tracing::warn!(%error, "removing the cgroup of functions");
        }
        let _none = std::fs::remove_dir_all(self.paths.functions());
    }

    /// Takes a kernel user and creates the cgroup.
    fn make(&self, name: String, limits: &FunctionLimits) -> anyhow::Result<Function<'_>> {
        anyhow::ensure!(
            !self.is_ending.load(Ordering::SeqCst),
            "the daemon is ending"
        );
        let user = self.users.take(1).context("no kernel user is left")?;
        let mut function = Function {
            functions: self,
            name,
            user,
            cgroup: None,
            process: None,
        };
        let cgroup = self.place.create(&function.name);
        let cgroup = function.cgroup.insert(cgroup.context("making its cgroup")?);
        cgroup.set_weight(Share::from_per_mille(limits.share_per_mille)?)?;
        // A cap above the host's CPUs has no effect, and some kernels refuse it.
        let all = u32::try_from(machine::cpu_count())
            .unwrap_or(1)
            .saturating_mul(1000);
        cgroup.set_cap(Some(Share::from_per_mille(limits.cap_per_mille.min(all))?))?;
        cgroup.set_memory(limits.memory_bytes)?;
        cgroup.set_pids(limits.tasks)?;
        Ok(function)
    }
}

impl Function<'_> {
    /// Starts the program. Returns the daemon's ends of its streams.
    fn start(
        &mut self,
        code: &Code,
        request: &FunctionRequest,
        streams: Streams,
    ) -> Result<Running, Problem> {
        let functions = self.functions;
        let refused = |error: &dyn std::fmt::Display| {
            Problem::failed(format!("{} was not started: {error}", request.name))
        };
        let cgroup = self.cgroup.as_ref();
        let cgroup = cgroup.ok_or_else(|| refused(&"it has no cgroup"))?;
        let name = "function".to_owned();
        let sandbox = functions
            .maker
            .sandbox(name, self.user, cgroup, code.root());
        let sandbox = sandbox.map_err(|why| refused(&why))?;
        let shell = ShellSpec {
            zygote: Some(&functions.zygote),
            // A root directory with a script is used only once. Kept for reuse, it would displace reusable ones.
            sealed: sandbox.sealed.filter(|_| !code.is_script()),
            ..sandbox
        };
        let mut launch = Launch::new(&code.program, functions.filters.of(code));
        launch.argv = code.arguments.clone();
        for argument in &request.args {
            let argument = CString::new(argument.as_str());
            launch.argv.push(argument.map_err(|_| {
                Problem::bad_request(format!("{}: a NUL in an argument", request.name))
            })?);
        }
        launch.env = ENVIRONMENT.map(ToOwned::to_owned).to_vec();
        launch.fds = streams.inherited();
        launch.limits = Limits {
            tasks: request.limits.tasks.into(),
            ..Limits::default()
        };
        launch.ends_with_parent = true;
        let spawned = spawn(&shell, &launch).map_err(|error| match error {
            SpawnError::BadLaunch { .. } => Problem::bad_request(error.to_string()),
            error => refused(&error),
        })?;
        self.process = Some(spawned.instance);
        drop(launch);
        Ok(streams.started())
    }

    /// Serves the streams until the function is over.
    fn wait(
        &mut self,
        running: Running,
        limits: &FunctionLimits,
        client: &PipeReader,
    ) -> anyhow::Result<Ended> {
        let (Some(process), Some(cgroup)) = (&self.process, &self.cgroup) else {
            anyhow::bail!("it does not run");
        };
        let ended = running.until_it_ends(process, cgroup, limits, client)?;
        self.process = None;
        Ok(ended)
    }
}

impl Drop for Function<'_> {
    fn drop(&mut self) {
        let functions = self.functions;
        let gone = self.process.take().is_none_or(|process| {
            let gone = process.kill().and_then(|()| process.wait());
            gone.inspect_err(|error| tracing::warn!(%error, "ending a function"))
                .is_ok()
        });
        let removed = self.cgroup.take().map_or(Ok(()), Cgroup::remove);
        if let Err(error) = &removed {
            tracing::warn!(%error, "removing the cgroup of a function");
        }
        // Until all its processes are gone, no other function may have the same kernel user.
        if gone && removed.is_ok() {
            functions.users.free(self.user);
        }
    }
}

/// Checks that the limits are allowed.
fn check(limits: &FunctionLimits) -> Result<(), Problem> {
    let most = FunctionLimits::MOST;
    let asked = [
        ("cpu_time_ms", limits.cpu_time_ms, 1, most.cpu_time_ms),
        ("timeout_ms", limits.timeout_ms, 1, most.timeout_ms),
        (
            "memory_bytes",
            limits.memory_bytes,
            MEMORY_BYTES_MIN,
            most.memory_bytes,
        ),
        ("output_bytes", limits.output_bytes, 0, most.output_bytes),
        ("tasks", limits.tasks.into(), 1, most.tasks.into()),
        (
            "share_per_mille",
            limits.share_per_mille.into(),
            1,
            most.share_per_mille.into(),
        ),
        (
            "cap_per_mille",
            limits.cap_per_mille.into(),
            1,
            most.cap_per_mille.into(),
        ),
    ];
    for (name, value, least, most) in asked {
        if !(least..=most).contains(&value) {
            return Err(Problem::bad_request(format!(
                "limits.{name} is {value}; it can be {least} to {most}"
            )));
        }
    }
    Ok(())
}

fn decoded(what: &str, text: &str) -> Result<Vec<u8>, Problem> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| Problem::bad_request(format!("'{what}' is not base64: {error}")))?;
    if bytes.len() > BYTES_MAX {
        return Err(Problem::too_large(format!(
            "'{what}' has {} bytes; it may have {BYTES_MAX}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 16.1
    #[test]
    fn limits_that_nobody_can_have_are_refused_by_name() {
        assert!(check(&FunctionLimits::default()).is_ok());
        assert!(check(&FunctionLimits::MOST).is_ok());
        let none = FunctionLimits {
            memory_bytes: 0,
            ..FunctionLimits::default()
        };
        let problem = check(&none).unwrap_err();
        assert!(problem.detail.contains("memory_bytes"), "{problem}");
        let endless = FunctionLimits {
            timeout_ms: u64::MAX,
            ..FunctionLimits::default()
        };
        assert_eq!(check(&endless).unwrap_err().status, 400);
    }

    #[test]
    fn what_is_too_large_is_told_from_what_is_no_base64() {
        assert_eq!(decoded("input", "%").unwrap_err().status, 400);
        let long = STANDARD.encode(vec![0; BYTES_MAX + 1]);
        assert_eq!(decoded("input", &long).unwrap_err().status, 413);
        assert_eq!(decoded("input", "aGk=").unwrap(), b"hi");
    }
}
