//! Every flag, once.

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
  4  not permitted to use the daemon's socket";

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
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    #[command(subcommand)]
    pub command: Command,
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
    /// Make the host as a file says, or leave it as it is
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
    /// Show what an instance wrote
    Logs(LogsArgs),
    /// Show what happened
    Events(EventsArgs),
    /// Copy the frames of a port as pcap
    Capture(CaptureArgs),
    /// Run a command of an instance's NF
    #[command(name = "command")]
    Ask(CommandArgs),
    /// End an instance and start it again
    Restart(RestartArgs),
    /// Stop an instance where it is
    Pause(PauseArgs),
    /// Let a paused instance go on
    Unpause(UnpauseArgs),
    /// Put the installed version of an instance's NF in its place, with ports and state
    Upgrade(UpgradeArgs),
    /// Divide the flows of an instance among so many instances
    Scale(ScaleArgs),
    /// Move an instance to another host, with its state and the frames in its rings
    Migrate(MigrateArgs),
    /// Write an instance to a file: what it is, its NF's state, the frames in its rings
    Save(SaveArgs),
    /// Make an instance from a file that 'save' has written
    Restore(RestoreArgs),
    /// Run a program once in an instance of its own: standard input goes in, its output and exit status come out
    RunFunction(FunctionArgs),
    /// Generate, receive and replay traffic, and measure round trips
    #[command(subcommand)]
    Gen(Box<nfluid_gen::cli::GenCommand>),
    /// Check whether this host can run nfluid
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
    /// Print the versions of this program and of the daemon
    Version(VersionArgs),
}

/// How to print objects.
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
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Add the file's objects to the present deployment instead of replacing it
    #[arg(long)]
    pub add: bool,
    /// How to print what changed
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
    /// Of instances, remove the links as well
    #[arg(long, requires = "name")]
    pub with_links: bool,
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// How to print what changed
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
    /// What each client of an uplink gets, and the instances of those who have it
    #[value(alias = "templates")]
    Template,
}

impl From<Deletable> for Kind {
    fn from(kind: Deletable) -> Kind {
        match kind {
            Deletable::Instance => Kind::Instance,
            Deletable::Switch => Kind::Switch,
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
    #[value(alias = "link")]
    Links,
    #[value(alias = "chain")]
    Chains,
    #[value(alias = "uplink")]
    Uplinks,
    /// I/O threads, what they do and what they cost
    Io,
    /// Pools of prepared instances
    #[value(alias = "pool")]
    Pools,
    /// Templates, and how many clients have an instance
    #[value(alias = "template")]
    Templates,
    #[value(alias = "event")]
    Events,
    /// The deployment in force, in the syntax of a deployment file
    Deployment,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// What to list
    #[arg(value_enum)]
    pub resource: Resource,
    /// Only the one of this name
    pub name: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
    /// Print it again every second
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
    #[value(alias = "links")]
    Link,
    #[value(alias = "chains")]
    Chain,
    #[value(alias = "uplinks")]
    Uplink,
    /// Prepared instances
    #[value(alias = "pools")]
    Pool,
    /// What each client of an uplink gets
    #[value(alias = "templates")]
    Template,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print text instead of drawing on the terminal; so it does without a terminal, too
    #[arg(long)]
    pub text: bool,
    /// Print text once and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks
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
    /// How to print them
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The instance
    pub instance: String,
    /// Only the last so many lines, at most 10000
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(..=10_000), value_name = "LINES")]
    pub tail: Option<u32>,
    /// Go on as it writes more
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Go on as more happens
    #[arg(short, long)]
    pub follow: bool,
    /// How to print them
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
    /// What becomes of frames for it meanwhile
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub traffic: Traffic,
}

/// What becomes of frames for a paused instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Traffic {
    /// They wait in its rings, as far as those reach
    #[default]
    Hold,
    /// They are dropped and counted
    Drop,
    /// They go where it would send them; for instances with two ports
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
    /// How many there are to be
    pub replicas: u16,
}

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The instance
    pub instance: String,
    /// The daemon there, as its --migrate-listen says; its certificate has to be for HOST
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "keep")]
    pub to: Option<String>,
    /// Let an instance go on here of which it is not known whether it was moved; it must not run there
    #[arg(long, conflicts_with = "to")]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct SaveArgs {
    /// The instance; it goes on
    pub instance: String,
    /// Where to write it; - for standard output
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The file; - for standard input
    pub file: PathBuf,
    /// Make a clone of this name, with addresses and seeds of its own
    #[arg(long, value_name = "NEW")]
    pub name: Option<String>,
    /// The clone's configuration (what is under 'config' in a deployment), in the place of the saved one
    #[arg(long, value_name = "FILE", requires = "name")]
    pub config: Option<PathBuf>,
    /// Leave it paused, to be wired before the frames in its rings go on
    #[arg(long)]
    pub paused: bool,
}

const FUNCTION_EXIT_CODES: &str = "\
Exit codes: that of the program, or
  124  it was ended because its time or its CPU time was over
  125  it was not run, or nobody knows how it ended
  126  it was ended because it wrote too much
  137  it was ended because it needed too much memory
  128 + n  signal n ended it";

#[derive(Debug, Args)]
#[command(
    after_help = FUNCTION_EXIT_CODES,
    override_usage = "nfluid run-function [OPTIONS] PROGRAM [ARGS]..."
)]
pub struct FunctionArgs {
    /// CPU time that it may use, for example 500ms
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub cpu_time: Millis,
    /// Time that it may take from its start to its end
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub timeout: Millis,
    /// Memory that it may use
    #[arg(long, default_value = "128MiB", value_name = "AMOUNT")]
    pub memory: Bytes,
    /// What it may write to standard output, and as much to standard error
    #[arg(long, default_value = "1MiB", value_name = "AMOUNT")]
    pub max_output: Bytes,
    /// Processes and threads that it may have
    #[arg(long, default_value_t = 32, value_name = "NUMBER")]
    pub tasks: u32,
    /// Its weight against other functions, as a part of one core
    #[arg(long, default_value = "10%", value_name = "PERCENT")]
    pub share: Share,
    /// The most CPU time that it gets, as a part of one core
    #[arg(long, default_value = "100%", value_name = "PERCENT")]
    pub cap: Share,
    /// Print what it used to standard error
    #[arg(short, long)]
    pub verbose: bool,
    /// The executable file - a program, or a script whose interpreter the daemon's host has - and its arguments: whatever comes
    /// behind it is for it
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]"
    )]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How to print the checks
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
    /// How to print them
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}
