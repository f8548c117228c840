//! Kubernetes' own control plane, which is neither in Debian nor part of this project: API server, scheduler and controllers, with Debian's etcd.

use crate::port::free_ports;
use crate::process::Service;
use crate::{CannotRun, interrupt, program};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable that names the folder of Kubernetes' programs.
const PROGRAMS: &str = "KUBERNETES_PROGRAMS";
/// The programs in it.
const NAMES: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
];
/// The only program that Debian has.
const ETCD: program::Need = ("etcd", "etcd-server");
/// Time after which the control plane will not be ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// A file of the kernel with another number each time.
const UUID: &str = "/proc/sys/kernel/random/uuid";

/// Finds the folder of Kubernetes' programs.
///
/// # Errors
/// [`CannotRun`] if the variable names none, or etcd is not installed.
pub fn find() -> Result<PathBuf, CannotRun> {
    let named = std::env::var_os(PROGRAMS).map(PathBuf::from);
    let has_all = |folder: &PathBuf| NAMES.iter().all(|name| folder.join(name).is_file());
    let folder = named.filter(has_all).ok_or_else(|| {
        let names = NAMES.join(", ");
        CannotRun(format!("set {PROGRAMS} to the folder of Kubernetes' {names}, 1.36 or later: docs/guide/kubernetes.md"))
    })?;
    program::need(&[ETCD])?;
    Ok(folder)
}

/// Returns the command of an agent on loopback, which makes the daemon at `socket` the node `node`.
pub fn agent(program: &Path, node: &str, socket: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["agent", "--node-ip", "127.0.0.1", "--listen", "127.0.0.1:0"])
        .args(["--node-name", node, "--socket"])
        .arg(socket)
        .arg("--kubeconfig")
        .arg(kubeconfig);
    command
}

/// What is in the API server's audit log.
const AUDIT_POLICY: &str = include_str!("../../../integrations/orchestra/audit-policy.yaml");

/// What a control plane is set for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// It writes [`Kubernetes::audit_log`].
    pub is_audited: bool,
    /// Many nodes: its parts send as many requests as they can, and give up lost nodes soon and all at once.
    pub is_large: bool,
}

/// Requests per second above the default, and at once.
const FAST: [(&str, &str); 2] = [("kube-api-qps", "5000"), ("kube-api-burst", "5000")];
/// Lost nodes above the default: an agent renews its lease every 10 s.
const SOON: [(&str, &str); 3] = [
    ("node-monitor-grace-period", "20s"),
    ("node-monitor-period", "1s"),
    ("node-eviction-rate", "1000"),
];

/// A control plane; ended when dropped.
#[derive(Debug)]
pub struct Kubernetes {
    programs: PathBuf,
    folder: PathBuf,
    parts: Vec<Service>,
}

impl Kubernetes {
    /// Starts a control plane in `folder`, whose API server shows nodes this certificate and its key.
    ///
    /// # Errors
    /// A part of it does not start.
    pub fn start(
        programs: PathBuf,
        folder: PathBuf,
        (certificate, key): (&Path, &Path),
        manner: Manner,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder).context("the control plane's folder")?;
        let [clients, peers, api, scheduler, controllers] = free_ports()?;
        let mut this = Kubernetes {
            programs,
            folder,
            parts: Vec::new(),
        };
        let at = |path: &str| this.folder.join(path).display().to_string();
        let token = fs::read_to_string(UUID).context("a random token")?;
        let token = token.trim();
        fs::write(
            at("tokens.csv"),
            format!("{token},admin,admin,system:masters\n"),
        )?;
        let (tokens, certificates, config) =
            (at("tokens.csv"), at("certificates"), at("kubeconfig"));
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let (policy, log) = (at("audit-policy.yaml"), at("audit.log"));
        fs::write(&policy, AUDIT_POLICY)?;
        let etcd = format!("http://127.0.0.1:{clients}");
        let peer = format!("http://127.0.0.1:{peers}");
        let data = at("etcd");
        fs::write(
            &config,
            format!(
                "apiVersion: v1\nkind: Config\n\
                 clusters: [{{name: t, cluster: {{server: \"https://127.0.0.1:{api}\", certificate-authority: {certificates}/apiserver.crt}}}}]\n\
                 users: [{{name: admin, user: {{token: \"{token}\"}}}}]\n\
                 contexts: [{{name: t, context: {{cluster: t, user: admin}}}}]\ncurrent-context: t\n"
            ),
        )?;
        let initial = format!("default={peer}");
        this.run(
            program::find("etcd").context("etcd")?,
            "etcd",
            &[
                ("data-dir", &data),
                ("listen-client-urls", &etcd),
                ("advertise-client-urls", &etcd),
                ("listen-peer-urls", &peer),
                ("initial-advertise-peer-urls", &peer),
                ("initial-cluster", &initial),
                // A test's cluster outlives no power cut.
                ("unsafe-no-fsync", "true"),
            ],
        )?;
        let port = api.to_string();
        let audit = [
            ("audit-policy-file", policy.as_str()),
            ("audit-log-path", log.as_str()),
        ];
        let mut options: Vec<(&str, &str)> = vec![
            ("etcd-servers", &etcd),
            ("bind-address", "127.0.0.1"),
            ("advertise-address", "127.0.0.1"),
            ("secure-port", &port),
            ("cert-dir", &certificates),
            ("service-account-key-file", &certificate),
            ("service-account-signing-key-file", &key),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            ("token-auth-file", &tokens),
            ("authorization-mode", "RBAC"),
            ("endpoint-reconciler-type", "none"),
            ("service-cluster-ip-range", "10.0.0.0/24"),
            ("disable-admission-plugins", "ServiceAccount"),
            ("kubelet-client-certificate", &certificate),
            ("kubelet-client-key", &key),
        ];
        options.extend(audit.iter().filter(|_| manner.is_audited));
        this.run_own("kube-apiserver", &options)?;
        this.wait("the API server", &["get", "--raw", "/readyz"])?;
        let common = |port: &str| {
            [
                ("kubeconfig", config.clone()),
                ("authentication-kubeconfig", config.clone()),
                ("authorization-kubeconfig", config.clone()),
                ("leader-elect", "false".to_owned()),
                ("bind-address", "127.0.0.1".to_owned()),
                ("secure-port", port.to_owned()),
            ]
        };
        let fast = FAST.iter().filter(|_| manner.is_large);
        let scheduler = common(&scheduler.to_string());
        let options = scheduler
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let options: Vec<_> = options.chain(fast.clone().copied()).collect();
        this.run_own("kube-scheduler", &options)?;
        let controllers = common(&controllers.to_string());
        let soon = SOON.iter().filter(|_| manner.is_large);
        let options = controllers
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let mut options: Vec<_> = options.chain(fast.chain(soon).copied()).collect();
        options.push(("service-account-private-key-file", &key));
        this.run_own("kube-controller-manager", &options)?;
        this.wait("the controllers", &["get", "serviceaccount", "default"])?;
        Ok(this)
    }

    /// Returns the processes of its parts.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(Service::pid)
    }

    /// Returns the API server's log of requests about pods.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// Returns the file by which clients find the API server, as its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Installs what `folder` has, a base of Kustomize, and returns the file by which clients find the API server as the account `name` in
    /// `namespace`, which is among it.
    ///
    /// # Errors
    /// `kubectl` refuses.
    pub fn account(&self, folder: &Path, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let must = |arguments: &[&str]| {
            let (is_done, said) = self.kubectl(arguments)?;
            ensure!(is_done, "kubectl {}: {said}", arguments.join(" "));
            Ok(said)
        };
        must(&["apply", "-k", &folder.display().to_string()])?;
        let token = must(&["create", "token", "--namespace", namespace, name])?;
        let admin = fs::read_to_string(self.kubeconfig())?;
        let own = fs::read_to_string(self.folder.join("tokens.csv"))?;
        let own = own.split(',').next().context("the administrator's token")?;
        let path = self.folder.join(format!("kubeconfig-{name}"));
        fs::write(&path, admin.replace(own, token.trim()))?;
        Ok(path)
    }

    /// Runs `kubectl`. Returns whether it succeeded, and what it says.
    ///
    /// # Errors
    /// `kubectl` does not start.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
        let done = Command::new(self.programs.join("kubectl"))
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            // Its cache of kinds.
            .env("HOME", &self.folder)
            .output()
            .context("starting kubectl")?;
        let said = [done.stdout, done.stderr].concat();
        Ok((
            done.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }

    fn run_own(&mut self, name: &str, options: &[(&str, &str)]) -> anyhow::Result<()> {
        self.run(self.programs.join(name), name, options)
    }

    fn run(
        &mut self,
        program: PathBuf,
        name: &str,
        options: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let options = options
            .iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let mut command = Command::new(program);
        command.args(options).current_dir(&self.folder);
        let log = self.folder.join(format!("{name}.log"));
        self.parts.push(Service::start(name, &mut command, log)?);
        Ok(())
    }

    fn wait(&mut self, what: &str, asked: &[&str]) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !self.kubectl(asked)?.0 {
            interrupt::check()?;
            for part in &mut self.parts {
                let runs = part.is_running();
                ensure!(runs, "{} has ended: {}", part.name(), part.last_log_line());
            }
            ensure!(begun.elapsed() < PATIENCE, "{what} is not ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        // The API server waits for etcd for a minute if etcd ends first.
        while self.parts.pop().is_some() {}
    }
}
