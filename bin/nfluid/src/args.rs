//! The command line: each flag is defined once.

use clap::{Args, Parser, Subcommand, ValueEnum};
use nfluid_api::types::Kind;
use nfluid_control::quantity::{Bytes, Millis, Share};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed; nothing was changed unless it says so
  2  wrong usage
  3  the daemon cannot be reached
  4  not permitted, by the daemon's socket or by the role of the certificate";

/// Runs many isolated network functions on one host.
#[derive(Debug, Parser)]
#[command(name = "nfluid", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// Socket of the daemon
    #[arg(
        long,
        global = true,
        env = "NFLUID_SOCKET",
        default_value = nfluid_api::SOCKET_PATH,
        value_name = "PATH"
    )]
    pub socket: PathBuf,
    #[command(flatten)]
    pub remote: Remote,
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    #[command(subcommand)]
    pub command: Command,
}

/// A daemon on another host. With `--host`, the socket is not used.
#[derive(Debug, Args)]
pub struct Remote {
    /// Address of a daemon that serves its API over TCP (nfluidd --api-listen); its certificate has to be for HOST
    #[arg(
        long,
        global = true,
        env = "NFLUID_HOST",
        value_name = "HOST:PORT",
        conflicts_with = "socket"
    )]
    pub host: Option<String>,
    /// Certificate that --host is shown, PEM
    #[arg(long, global = true, env = "NFLUID_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Private key of that certificate, PEM, of mode 0600
    #[arg(long, global = true, env = "NFLUID_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Certificates of the authorities that sign --host's certificate, PEM
    #[arg(long, global = true, env = "NFLUID_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Apply a deployment file: completely, or not at all
    Apply(ApplyArgs),
    /// Remove objects, or everything that a file names
    Delete(DeleteArgs),
    /// List objects
    Get(GetArgs),
    /// Show everything about one object
    Describe(DescribeArgs),
    /// Watch rates, drops, CPU and queue delay live
    Top(TopArgs),
    /// Show all counters
    Stats(StatsArgs),
    /// Show the output of an instance
    Logs(LogsArgs),
    /// Show events
    Events(EventsArgs),
    /// Copy the frames of a port as pcap
    Capture(CaptureArgs),
    /// Write a trace
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Run a command of an instance's NF
    #[command(name = "command")]
    Ask(CommandArgs),
    /// End an instance and start it again
    Restart(RestartArgs),
    /// Freeze an instance
    Pause(PauseArgs),
    /// Resume a paused instance
    Unpause(UnpauseArgs),
    /// Replace an instance by the installed version of its NF, with ports and state
    Upgrade(UpgradeArgs),
    /// Divide the flows of an instance among several members
    Scale(ScaleArgs),
    /// Move an instance to another host, with its state and the frames in its rings
    Migrate(MigrateArgs),
    /// Write an instance to a file: its specification, its NF's state, the frames in its rings
    Save(SaveArgs),
    /// Create an instance from a file that 'save' has written
    Restore(RestoreArgs),
    /// Run a program once in an instance of its own: standard input goes in, its output and exit status come out
    RunFunction(FunctionArgs),
    /// Generate, receive and replay traffic, and measure round trips
    #[command(subcommand)]
    Gen(Box<nfluid_gen::cli::GenCommand>),
    /// The container images of this host, which instances run
    Image(ImageArgs),
    /// Check whether this host can run nfluid
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
    /// Print the versions of this program and of the daemon
    Version(VersionArgs),
}

/// The output format of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// For people and programs
    Yaml,
}

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The deployment; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Add the file's objects to the present deployment instead of replacing it
    #[arg(long)]
    pub add: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "all", "kind"]))]
pub struct DeleteArgs {
    /// Remove everything that this file names; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Remove everything
    #[arg(long)]
    pub all: bool,
    /// Kind of the object
    #[arg(value_name = "KIND", requires = "name")]
    pub kind: Option<Deletable>,
    /// Its name; several are removed together
    #[arg(value_name = "NAME", requires = "kind")]
    pub name: Vec<String>,
    /// Remove the links of instances as well
    #[arg(long, requires = "name")]
    pub with_links: bool,
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// Kinds of objects that can be removed by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Deletable {
    #[value(alias = "instances")]
    Instance,
    #[value(alias = "switches")]
    Switch,
    #[value(alias = "security-groups")]
    SecurityGroup,
    #[value(alias = "links")]
    Link,
    #[value(alias = "chains")]
    Chain,
    #[value(alias = "uplinks")]
    Uplink,
    /// A group of tenants
    #[value(alias = "groups")]
    Group,
    #[value(alias = "flavors")]
    Flavor,
    /// Prepared instances
    #[value(alias = "pools")]
    Pool,
    /// The template of an uplink's clients, and the instances of these clients
    #[value(alias = "templates")]
    Template,
}

impl From<Deletable> for Kind {
    fn from(kind: Deletable) -> Kind {
        match kind {
            Deletable::Instance => Kind::Instance,
            Deletable::Switch => Kind::Switch,
            Deletable::SecurityGroup => Kind::SecurityGroup,
            Deletable::Link => Kind::Link,
            Deletable::Chain => Kind::Chain,
            Deletable::Uplink => Kind::Uplink,
            Deletable::Group => Kind::Group,
            Deletable::Flavor => Kind::Flavor,
            Deletable::Pool => Kind::Pool,
            Deletable::Template => Kind::Template,
        }
    }
}

/// Kinds of objects that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Resource {
    #[value(alias = "instance")]
    Instances,
    /// Groups of tenants
    #[value(alias = "group")]
    Groups,
    #[value(alias = "port")]
    Ports,
    #[value(alias = "switch")]
    Switches,
    /// Security groups, and the ports in them
    #[value(alias = "security-group")]
    SecurityGroups,
    #[value(alias = "link")]
    Links,
    #[value(alias = "chain")]
    Chains,
    #[value(alias = "uplink")]
    Uplinks,
    /// Capacity of the host, and how much of it is promised
    Capacity,
    /// I/O threads, their work and their CPU time
    Io,
    /// Pools of prepared instances
    #[value(alias = "pool")]
    Pools,
    /// Templates, and how many clients have an instance
    #[value(alias = "template")]
    Templates,
    /// Slices, their engines' modes, and what became of their intervals
    #[value(alias = "slice")]
    Slices,
    #[value(alias = "event")]
    Events,
    /// The deployment in force, in the syntax of a deployment file
    Deployment,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// Kind of the objects
    #[arg(value_enum)]
    pub resource: Resource,
    /// Only the object of this name
    pub name: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
    /// Print the list again every second
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// Kind of the object
    #[arg(value_enum)]
    pub resource: Describable,
    /// Its name
    pub name: String,
}

/// Kinds of objects that can be described.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Describable {
    #[value(alias = "instances")]
    Instance,
    /// A group of tenants
    #[value(alias = "groups")]
    Group,
    #[value(alias = "ports")]
    Port,
    #[value(alias = "switches")]
    Switch,
    #[value(alias = "security-groups")]
    SecurityGroup,
    #[value(alias = "links")]
    Link,
    #[value(alias = "chains")]
    Chain,
    #[value(alias = "uplinks")]
    Uplink,
    /// Prepared instances
    #[value(alias = "pools")]
    Pool,
    /// The template of an uplink's clients
    #[value(alias = "templates")]
    Template,
    /// A slice: INSTANCE, or INSTANCE/SLICE where an instance has several
    #[value(alias = "slices")]
    Slice,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Write when each unit of a slice's recent intervals ran, for Chrome's and Perfetto's viewers
    Slice(TraceSliceArgs),
}

#[derive(Debug, Args)]
pub struct TraceSliceArgs {
    /// The slice: INSTANCE, or INSTANCE/SLICE where an instance has several
    pub name: String,
    /// File to write: trace events, JSON
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Draw a Gantt chart into this file as well, SVG
    #[arg(short, long, value_name = "FILE")]
    pub gantt: Option<PathBuf>,
    /// Number of intervals, the most recent
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16), value_name = "NUMBER")]
    pub intervals: u8,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print text instead of drawing on the terminal; the default without a terminal
    #[arg(long)]
    pub text: bool,
    /// Print text once and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two readings
    #[arg(short, long, default_value_t = 1.0, value_parser = interval, value_name = "SECONDS")]
    pub interval: f64,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds from 0.1 to 3600".into()),
    }
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The instance
    pub instance: String,
    /// Number of lines from the end, at most 10000
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(..=10_000), value_name = "LINES")]
    pub tail: Option<u32>,
    /// Go on with new lines as they are written
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Go on with new events as they happen
    #[arg(short, long)]
    pub follow: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The port (instance.port), or an uplink
    pub port: String,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CommandArgs {
    /// The instance
    pub instance: String,
    /// The command, for example top-talkers; an unknown one lists those that exist
    pub command: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

#[derive(Debug, Args)]
pub struct RestartArgs {
    /// The instance
    pub instance: String,
}

#[derive(Debug, Args)]
pub struct PauseArgs {
    /// The instance
    pub instance: String,
    /// Treatment of frames for the paused instance
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub traffic: Traffic,
}

/// The treatment of frames for a paused instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Traffic {
    /// Frames wait in the instance's rings while these have room
    #[default]
    Hold,
    /// Frames are dropped and counted
    Drop,
    /// Frames bypass the instance; for instances with two ports
    Bypass,
}

#[derive(Debug, Args)]
pub struct UnpauseArgs {
    /// The instance
    pub instance: String,
}

#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// The instance
    pub instance: String,
}

#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// The instance
    pub instance: String,
    /// Number of members
    pub replicas: u16,
}

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The instance
    pub instance: String,
    /// The daemon of the other host, as in its --migrate-listen; its certificate has to be for HOST
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "keep")]
    pub to: Option<String>,
    /// Let an instance go on here after a move with unknown outcome; the instance must not run on the other host
    #[arg(long, conflicts_with = "to")]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct SaveArgs {
    /// The instance, which goes on
    pub instance: String,
    /// File to write; - for standard output
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The file; - for standard input
    pub file: PathBuf,
    /// Make a clone of this name, with addresses and seeds of its own
    #[arg(long, value_name = "NEW")]
    pub name: Option<String>,
    /// The clone's configuration (as under 'config' in a deployment) instead of the saved one
    #[arg(long, value_name = "FILE", requires = "name")]
    pub config: Option<PathBuf>,
    /// Leave the instance paused, so that its ports can be connected before the frames in its rings are processed
    #[arg(long)]
    pub paused: bool,
}

const FUNCTION_EXIT_CODES: &str = "\
Exit codes: that of the program, or
  124  it was ended because its time or its CPU time was over
  125  it was not run, or the end of the function is unknown
  126  it was ended because it wrote too much
  137  it was ended because it needed too much memory
  128 + n  signal n ended the function";

#[derive(Debug, Args)]
#[command(
    after_help = FUNCTION_EXIT_CODES,
    override_usage = "nfluid run-function [OPTIONS] PROGRAM [ARGS]..."
)]
pub struct FunctionArgs {
    /// Limit of CPU time, for example 500ms
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub cpu_time: Millis,
    /// Limit of the time from start to end
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub timeout: Millis,
    /// Memory limit
    #[arg(long, default_value = "128MiB", value_name = "AMOUNT")]
    pub memory: Bytes,
    /// Limit of standard output, and of standard error
    #[arg(long, default_value = "1MiB", value_name = "AMOUNT")]
    pub max_output: Bytes,
    /// Limit of processes and threads
    #[arg(long, default_value_t = 32, value_name = "NUMBER")]
    pub tasks: u32,
    /// Weight against other functions, as a part of one core
    #[arg(long, default_value = "10%", value_name = "PERCENT")]
    pub share: Share,
    /// Cap of CPU time, as a part of one core
    #[arg(long, default_value = "100%", value_name = "PERCENT")]
    pub cap: Share,
    /// Print the resources used to standard error
    #[arg(short, long)]
    pub verbose: bool,
    /// The executable file and its arguments: a program, or a script whose interpreter the daemon's host has. All
    /// arguments after the file are passed on
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]"
    )]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Directory of the images: the daemon's
    #[arg(
        long,
        global = true,
        env = "NFLUID_IMAGE_DIR",
        default_value = "/var/lib/nfluid/images",
        value_name = "DIR"
    )]
    pub image_dir: PathBuf,
    #[command(subcommand)]
    pub command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Import an image, or what it is now; instances that start later run that
    Import(ImageImportArgs),
    /// List the images
    List(ImageListArgs),
    /// Show everything about one image
    Inspect(ImageInspectArgs),
    /// Remove the images that no instance runs, and their layers
    Prune(ImageListArgs),
}

#[derive(Debug, Args)]
pub struct ImageImportArgs {
    #[arg(
        help = "oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:NAME:TAG], as 'skopeo copy' and 'podman save' write them"
    )]
    pub image: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct ImageListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct ImageInspectArgs {
    /// The image: one of its names, or the first digits of its number
    pub image: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}
