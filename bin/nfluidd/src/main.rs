//! `nfluidd`: the daemon that owns a platform of network functions.

mod demand;
mod events;
mod facts;
mod host;
mod remote;
mod serve;
mod server;
mod site;

use anyhow::Context;
use clap::{Parser, Subcommand};
use host::{Functions, Host, HostPlatform, Mechanism, Paths, Settings, lock};
use nfluid_api::types::EventKind;
use nfluid_control::controller::Controller;
use nfluid_control::inventory::Inventory;
use nfluid_control::state::{FileStore, Store};
use nfluid_migration::Migration;
use nfluid_migration::migration::Connect;
use nfluid_migration::tls::Tls;
use nfluid_process::io::IoService;
use nfluid_process::uplink::UplinkService;
use nfluid_records::Directories;
use nfluid_tls::mutual::{Files, Mutual};
use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// Runs network functions, isolated from each other, on this host.
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true)]
struct Arguments {
    /// Name of the platform, used for its cgroup and its BPF directory. Several platforms can run side by side.
    #[arg(long, default_value = "nfluid")]
    name: String,
    /// Directory of the desired state, which must survive a reboot.
    #[arg(long, default_value = "/var/lib/nfluid", value_name = "DIR")]
    state_dir: PathBuf,
    /// Directory of container images; several platforms can share it [default: STATE_DIR/images].
    #[arg(long, env = "NFLUID_IMAGE_DIR", value_name = "DIR")]
    image_dir: Option<PathBuf>,
    /// Directory of records, pipes, sockets and logs, which must survive the daemon.
    #[arg(long, default_value = "/run/nfluid", value_name = "DIR")]
    run_dir: PathBuf,
    /// The API's socket [default: RUN_DIR/nfluidd.sock].
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Directory on a BPF file system, for pinned maps and programs [default: /sys/fs/bpf/NAME].
    #[arg(long, value_name = "DIR")]
    bpf_dir: Option<PathBuf>,
    /// The program that hosts built-in NFs [default: nfluid-nf beside this program].
    #[arg(long, value_name = "FILE")]
    nf_program: Option<PathBuf>,
    /// Address and port on which this daemon accepts instances that other daemons move here.
    #[arg(long, value_name = "ADDR:PORT", requires = "migrate_cert")]
    migrate_listen: Option<SocketAddr>,
    /// This host's certificate for other daemons, PEM; needed to move instances.
    #[arg(long, value_name = "FILE", requires_all = ["migrate_key", "migrate_ca"])]
    migrate_cert: Option<PathBuf>,
    /// Private key of this host's certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "migrate_cert")]
    migrate_key: Option<PathBuf>,
    /// Certificates of the authorities that sign the certificates of the other daemons, PEM.
    #[arg(long, value_name = "FILE", requires = "migrate_cert")]
    migrate_ca: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. A daemon whose certificate is revoked cannot move instances here.
    #[arg(long, value_name = "FILE", requires = "migrate_cert")]
    migrate_crl: Option<PathBuf>,
    #[command(flatten)]
    api: remote::Options,
    /// Label of this host, for engines that schedule; the option can be repeated. `nfluid get capacity` shows the labels.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Log level: error, warn, info, debug, trace, or per module.
    #[arg(
        long,
        env = "NFLUID_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    log: String,
    /// Leave out a mechanism that speeds up the creation of instances, to measure its effect.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MECHANISM")]
    without: Vec<Mechanism>,
    #[command(subcommand)]
    role: Option<Role>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match (key, value) {
        ("", _) | (_, "") => Err("write KEY=VALUE, such as 'site=berlin'".to_owned()),
        (key, value) => Ok((key.to_owned(), value.to_owned())),
    }
}

/// The role of this process, other than the daemon.
#[derive(Debug, Subcommand)]
enum Role {
    /// The process of an uplink; the daemon starts it.
    #[command(hide = true)]
    Uplink {
        /// The uplink's name, for the list of processes.
        name: String,
    },
    /// The process of an eDPI's slow path; the daemon starts it.
    #[command(hide = true)]
    Inspect {
        /// The fast path's name, for the list of processes.
        name: String,
    },
    /// The process of the I/O threads; the daemon starts it.
    #[command(hide = true)]
    Io {
        /// The platform's name, for the list of processes.
        name: String,
    },
}

fn main() -> ExitCode {
    nfluid_sandbox::return_freed_memory();
    let arguments = Arguments::parse();
    if let Some(role) = &arguments.role {
        let (name, ended) = match role {
            Role::Uplink { name } => (name, nfluid_process::run::<UplinkService>()),
            Role::Inspect { name } => (name, nfluid_fastpath::run_inspector()),
            Role::Io { name } => (name, nfluid_process::run::<IoService>()),
        };
        return match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(&arguments.log))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        anyhow::bail!(
            "nfluidd needs root: it makes cgroups, namespaces and loads the switch into the kernel"
        );
    }
    let pin = arguments
        .bpf_dir
        .unwrap_or_else(|| PathBuf::from("/sys/fs/bpf").join(&arguments.name));
    nfluid_instance::descriptors::raise();
    serve::mount_bpf_file_system(&pin)?;
    let nf_program = match arguments.nf_program {
        Some(path) => path,
        None => std::env::current_exe()
            .context("finding this program")?
            .with_file_name("nfluid-nf"),
    };
    let socket = arguments
        .socket
        .unwrap_or_else(|| arguments.run_dir.join("nfluidd.sock"));
    std::fs::create_dir_all(&arguments.state_dir)
        .with_context(|| format!("creating {}", arguments.state_dir.display()))?;
    let _alone = serve::lock_platform(&arguments.run_dir)?;

    let files = match (
        arguments.migrate_cert,
        arguments.migrate_key,
        arguments.migrate_ca,
    ) {
        (Some(certificate), Some(key), Some(authority)) => Some(Files {
            certificate,
            key,
            authority,
            revoked: arguments.migrate_crl,
        }),
        _ => None,
    };
    let tls = files.as_ref().map(Mutual::load).transpose();
    let tls = tls
        .context("the certificates for moving instances")?
        .map(Tls::from);
    let movers = files.as_ref().map(|files| files.authority.as_path());
    let clients = arguments
        .api
        .open(movers.filter(|_| arguments.migrate_listen.is_some()))?;
    let connect = tls.clone().map(|tls| Box::new(tls) as Box<dyn Connect>);
    let migration = Migration::new(arguments.state_dir.join("moves"), connect)?;
    let migration = Arc::new(migration);
    let listener = arguments.migrate_listen.map(|address| {
        let listener = TcpListener::bind(address);
        listener.with_context(|| format!("listening for other daemons at {address}"))
    });
    let listener = listener.transpose()?;

    let images = arguments.image_dir;
    let images = images.unwrap_or_else(|| arguments.state_dir.join("images"));
    let settings = Settings {
        images: nfluid_image::Store::new(images),
        name: arguments.name,
        paths: Paths::new(Directories {
            run: arguments.run_dir,
            pin,
        }),
        nf_program,
        log: arguments.log,
        without: arguments.without,
    };
    let host = Arc::new(Mutex::new(Host::new(settings)?));
    let mut store = FileStore::new(arguments.state_dir.join("state.json"));
    migration.withdraw(&mut store)?;
    nfluid_lifecycle::departure::suspect(&host, migration.departed());
    let controller = restore(&host, store)?;
    migration.recall(&site::HostInstances::new(&host));
    let supervised = Arc::clone(&host);
    std::thread::Builder::new()
        .name("supervisor".to_owned())
        .spawn(move || host::supervise(&supervised))
        .context("starting the supervisor")?;
    let checked = Arc::clone(&host);
    std::thread::Builder::new()
        .name("health".to_owned())
        .spawn(move || host::check_health(&checked))
        .context("starting the thread that looks after instances")?;
    let followed = Arc::clone(&host);
    std::thread::Builder::new()
        .name("fast-paths".to_owned())
        .spawn(move || host::follow_fast(&followed))
        .context("starting the thread that follows what fast paths depend on")?;
    host::follow_congestion(&host).context("starting the congestion thread")?;
    lock(&host).fill_pools()?;
    let functions = Arc::new(Functions::new(lock(&host).maker())?);
    let daemon = server::Daemon::new(
        Arc::clone(&host),
        controller,
        Arc::clone(&functions),
        Arc::clone(&migration),
        arguments.labels.iter().cloned().collect(),
    );
    let daemon = Arc::new(daemon.context("starting the threads of instances on demand")?);
    move_instances(&daemon, &migration, listener.zip(tls))?;
    let end = serve::until_end_signal(daemon, &socket, clients)?;
    functions.end();
    Host::tidy(&host);
    match end {
        serve::End::Stop => lock(&host).close(),
        serve::End::HandOver => tracing::info!("uplinks go on, for the next daemon"),
    }
    Ok(())
}

/// Starts the threads that answer other daemons, and the threads that settle moves which an earlier daemon left
/// unsettled.
fn move_instances(
    daemon: &Arc<server::Daemon>,
    migration: &Arc<Migration>,
    listener: Option<(TcpListener, Tls)>,
) -> anyhow::Result<()> {
    let (site, settling) = (Arc::clone(daemon), Arc::clone(migration));
    std::thread::Builder::new()
        .name("moves".to_owned())
        .spawn(move || settling.settle_moves(&*site))
        .context("starting the thread that settles moves")?;
    if let Some((listener, tls)) = listener {
        tracing::info!(address = %listener.local_addr()?, "other daemons may call");
        let (site, answering) = (Arc::clone(daemon), Arc::clone(migration));
        std::thread::Builder::new()
            .name("arrivals".to_owned())
            .spawn(move || nfluid_migration::listen(&answering, &site, &tls, &listener))
            .context("starting the thread that answers other daemons")?;
    }
    Ok(())
}

/// Adopts running instances, creates missing objects, and reports objects that could not be created.
fn restore(
    host: &host::Shared,
    mut store: FileStore,
) -> anyhow::Result<Controller<HostPlatform, FileStore>> {
    let desired = store.load()?.unwrap_or_default();
    let present = lock(host).adopt(&Inventory::of(&desired));
    let mut controller = Controller::load(HostPlatform::new(Arc::clone(host)), store, present)?;
    let failures = controller.restore();
    let locked = lock(host);
    for failure in &failures {
        locked.event(
            EventKind::Warning,
            None,
            format!("cannot {}: {}", failure.action, failure.cause),
        );
    }
    locked.event(
        EventKind::DaemonStarted,
        None,
        format!("nfluidd {} is up", env!("CARGO_PKG_VERSION")),
    );
    drop(locked);
    Ok(controller)
}
