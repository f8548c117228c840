//! An OpenStack of a test's or an experiment's own, with nfluid's drivers for Nova and Neutron: `integrations/openstack/lab`.

use crate::command::output;
use crate::directory::ScratchDirectory;
use crate::json_process::JsonProcess;
use crate::ovs::OpenVSwitch;
use crate::unique_number;
use crate::{CannotRun, interrupt, program};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names the folder of a Python environment with OpenStack, instead of Debian's packages.
const VENV: &str = "OPENSTACK_VENV";
/// Programs of Debian that the lab runs in either case.
const DATABASES: [program::Need; 3] = [
    ("memcached", "memcached"),
    ("mariadbd", "mariadb-server"),
    ("rabbitmq-server", "rabbitmq-server"),
];
/// Programs that stand for the rest of Debian's OpenStack.
const SERVICES: [program::Need; 5] = [
    ("nova-compute", "nova-compute"),
    ("nova-api", "nova-api"),
    ("neutron-server", "neutron-server"),
    ("glance-api", "glance-api"),
    ("uwsgi_python3", "uwsgi-plugin-python3"),
];

/// The folder of the lab's files in this repository.
fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/openstack/lab")
}

/// An OpenStack; ended when dropped.
#[derive(Debug)]
pub struct OpenStack {
    folder: ScratchDirectory,
    venv: Option<PathBuf>,
    client: Option<JsonProcess>,
}

impl OpenStack {
    /// Checks that it can be started here.
    ///
    /// # Errors
    /// [`CannotRun`] if packages are missing.
    pub fn find() -> Result<Option<PathBuf>, CannotRun> {
        program::need(&DATABASES)?;
        let venv = std::env::var_os(VENV).map(PathBuf::from);
        match &venv {
            None => program::need(&SERVICES)?,
            Some(venv) if venv.join("bin/nova-compute").is_file() => {}
            Some(venv) => {
                return Err(CannotRun(format!(
                    "{VENV}: {} has no OpenStack: docs/guide/openstack.md",
                    venv.display()
                )));
            }
        }
        Ok(venv)
    }

    /// Starts an OpenStack with a nova-compute for each of `hosts`; `config` are texts that are added to the configuration of the services, by
    /// the name of the file: `neutron.conf`, `nova.conf`, `nova-HOST.conf`.
    ///
    /// # Errors
    /// [`CannotRun`] as for [`find`](Self::find); a part of it does not start.
    pub fn start(hosts: &[&str], config: &[(String, String)]) -> anyhow::Result<Self> {
        Self::start_with(hosts, config, &[])
    }

    /// As [`start`](Self::start) with one host, whose ports are on Open vSwitch by Neutron's agent with nfluid's firewall. All of it is in this
    /// network namespace, which is that of the host's daemon.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on_ovs(
        host: &str,
        config: &[(String, String)],
        netns: &str,
    ) -> anyhow::Result<Self> {
        OpenVSwitch::find()?;
        if std::env::var_os(VENV).is_none() {
            program::need(&[("neutron-openvswitch-agent", "neutron-openvswitch-agent")])?;
        }
        program::need(&[("sudo", "sudo")])?;
        Self::start_with(&[host], config, &[("OVS", host), ("NETNS", netns)])
    }

    fn start_with(
        hosts: &[&str],
        config: &[(String, String)],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let venv = Self::find()?;
        let folder =
            ScratchDirectory::named(&format!("{}-{}", std::process::id(), unique_number()))?;
        let own = folder.path("config");
        fs::create_dir(&own)?;
        for (file, text) in config {
            let file = File::options()
                .create(true)
                .append(true)
                .open(own.join(file));
            file?.write_all(text.as_bytes())?;
        }
        let mut this = OpenStack {
            folder,
            venv,
            client: None,
        };
        let mut start = this.script("start");
        start.env("HOSTS", hosts.join(" ")).env("CONFIG", own);
        start.envs(environment.iter().copied());
        let log = File::create(this.folder.path("start.log"))?;
        start.stdout(log.try_clone()?).stderr(log);
        let status = start.status().context("starting the lab's script")?;
        interrupt::check()?;
        if !status.success() {
            let log = fs::read_to_string(this.folder.path("start.log")).unwrap_or_default();
            bail!("OpenStack did not start: {log}");
        }
        let mut client = Command::new(this.folder.path("run"));
        client
            .arg("python3")
            .arg(lab().join("cloud.py"))
            .stderr(File::create(this.folder.path("client.log"))?);
        this.client = Some(JsonProcess::start(&mut client)?);
        Ok(this)
    }

    fn script(&self, verb: &str) -> Command {
        let mut command = Command::new(lab().join("openstack.sh"));
        command.arg(verb).arg(self.folder.path(""));
        if let Some(venv) = &self.venv {
            command.env("VENV", venv);
        }
        command
    }

    /// The log of a service, such as `nova-compute-HOST`.
    pub fn log(&self, service: &str) -> String {
        fs::read_to_string(self.folder.path("log").join(service)).unwrap_or_default()
    }

    /// Starts Horizon for it.
    ///
    /// # Errors
    /// [`CannotRun`]: Horizon is not installed. It does not start.
    pub fn start_dashboard(&self) -> anyhow::Result<()> {
        if !Path::new("/usr/share/openstack-dashboard").exists() {
            bail!(CannotRun(program::install("openstack-dashboard")));
        }
        let status = self.script("dashboard").status()?;
        ensure!(status.success(), "Horizon does not start");
        Ok(())
    }

    /// Has somebody do in Horizon what `lab/clicks.py` says, and returns what he sees.
    ///
    /// # Errors
    /// Something is not so in Horizon.
    pub fn click(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let script = lab().join("clicks.py");
        let script = script.to_str().context("a path that is text")?;
        self.run("/usr/bin/python3", &[&[script], arguments].concat())
    }

    /// Runs Tempest's smoke tests of compute, and returns what they say.
    ///
    /// # Errors
    /// [`CannotRun`]: Tempest is not installed. A test fails.
    pub fn tempest(&self) -> anyhow::Result<String> {
        let venv = self.venv.as_ref();
        if !venv.is_some_and(|venv| venv.join("bin/tempest").is_file()) {
            program::need(&[("tempest", "python3-tempest")])?;
        }
        let mut script = Command::new(lab().join("tempest.sh"));
        what_is_said("tempest", script.arg(self.folder.path("")))
    }

    /// Runs a program beside it as its administrator, and returns its output.
    ///
    /// # Errors
    /// The program fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.folder.path("run"));
        what_is_said(program, command.arg(program).args(arguments))
    }

    /// Where a part of it has a file of its configuration, such as `nova/nova.conf`.
    pub fn config(&self, file: &str) -> PathBuf {
        self.folder.path("etc").join(file)
    }

    /// Asks the client for a method of `cloud.py`, with arguments in order and by name.
    ///
    /// # Errors
    /// OpenStack refuses, or the client has ended.
    pub fn ask_with(
        &mut self,
        method: &str,
        arguments: &[Value],
        named: Value,
    ) -> anyhow::Result<Value> {
        let client = self.client.as_mut().context("the client has ended")?;
        let mut line = vec![Value::from(method)];
        line.extend_from_slice(arguments);
        if let Value::Object(mut named) = named {
            named.insert("**".to_owned(), true.into());
            line.push(named.into());
        }
        client.ask(&line.into())
    }

    /// Asks for a method with arguments in order.
    ///
    /// # Errors
    /// As [`ask_with`](Self::ask_with).
    pub fn ask(&mut self, method: &str, arguments: &[Value]) -> anyhow::Result<Value> {
        self.ask_with(method, arguments, Value::Null)
    }

    /// Asks for a method that answers with an id.
    ///
    /// # Errors
    /// As [`ask_with`](Self::ask_with).
    pub fn id(
        &mut self,
        method: &str,
        arguments: &[Value],
        named: Value,
    ) -> anyhow::Result<String> {
        let answer = self.ask_with(method, arguments, named)?;
        let id = answer.as_str().or_else(|| answer["id"].as_str());
        Ok(id.context("no id")?.to_owned())
    }

    /// Shows what the services have called an error.
    fn show_errors(&self) {
        let logs = fs::read_dir(self.folder.path("log"));
        for log in logs.into_iter().flatten().flatten() {
            let text = fs::read_to_string(log.path()).unwrap_or_default();
            // A trace has a line for each call, which are indented.
            let is_error = |line: &&str| line.contains(" ERROR ") && !line.contains("  ");
            for line in text.lines().filter(is_error) {
                eprintln!("{}: {line}", log.file_name().display());
            }
        }
    }

    /// Kills a service, such as `nova-compute-HOST`, and starts it again.
    ///
    /// # Errors
    /// The service cannot be started.
    pub fn restart(&self, service: &str) -> anyhow::Result<()> {
        output(self.script("restart").arg(service)).map(drop)
    }
}

impl Drop for OpenStack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_errors();
        }
        self.client = None;
        let _ = self
            .script("stop")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Runs a program and returns its output. The error has both outputs: Python's tools say on either what is wrong.
fn what_is_said(program: &str, command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {said}{complaint}");
    Ok(said)
}

/// Returns the Python that has OpenStack.
pub fn python_of(venv: Option<&Path>) -> PathBuf {
    match venv {
        Some(venv) => venv.join("bin/python3"),
        None => PathBuf::from("/usr/bin/python3"),
    }
}

/// Returns the line `daemons` of Neutron's configuration: the daemons by their hosts.
pub fn neutron_config(daemons: &[(&str, &Path)]) -> (String, String) {
    let daemons = daemons
        .iter()
        .map(|(host, socket)| format!("{host}={}", socket.display()));
    let text = format!(
        "[ml2_nfluid]\ndaemons={}\n",
        daemons.collect::<Vec<_>>().join(",")
    );
    ("neutron.conf".to_owned(), text)
}

/// Returns the configuration of the nova-compute of a host with nfluid's driver: its daemon, the interfaces of physical networks by name, the
/// address for other daemons, and further lines.
pub fn nova_config(
    host: &str,
    socket: &Path,
    interfaces: &[(&str, &str)],
    migration_address: &str,
    more: &str,
) -> (String, String) {
    let interfaces = interfaces
        .iter()
        .map(|(physical, interface)| format!("{physical}:{interface}"));
    let interfaces = interfaces.collect::<Vec<_>>().join(",");
    let text = format!(
        "[nfluid]\ndaemons={host}={}\nphysical_networks={interfaces}\nmigration_address={migration_address}\n{more}",
        socket.display()
    );
    (format!("nova-{host}.conf"), text)
}

/// A flavor's extra specs with this share, in thousandths of a core.
pub fn share(per_mille: u32) -> Value {
    json!({ "resources:VCPU": "0", "resources:CUSTOM_NFLUID_SHARE": per_mille.to_string() })
}
