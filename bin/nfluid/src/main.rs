//! The command line of nfluid: flags, tables, completion. The daemon does the work.
#![forbid(unsafe_code)]

mod apply;
mod args;
mod capture;
mod events;
mod failure;
mod function;
mod generate;
mod get;
mod image;
mod inquire;
mod life;
mod screen;
mod slices;
mod top;

use args::{Cli, Command, TraceCommand};
use clap::{CommandFactory, Parser};
use failure::Failure;
use nfluid_api::client::Client;
use nfluid_tls::mutual::{Files, Mutual};
use screen::Screen;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let screen = Screen::new(cli.color);
    match start(&cli, screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.failure(&failure);
            failure.exit_code()
        }
    }
}

fn start(cli: &Cli, screen: Screen) -> Result<(), Failure> {
    if let Command::Gen(command) = &cli.command {
        return generate::run(command);
    }
    if let Command::Image(args) = &cli.command {
        return image::run(screen, &args.image_dir, &args.command);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Operation(format!("cannot start: {error}")))?;
    runtime.block_on(run(cli, screen))
}

/// Returns a client of the daemon that the options name.
fn client(cli: &Cli) -> Result<Client, Failure> {
    let remote = &cli.remote;
    let Some(host) = &remote.host else {
        return Ok(Client::new(&cli.socket));
    };
    let (Some(cert), Some(key), Some(ca)) = (&remote.cert, &remote.key, &remote.ca) else {
        return Err(Failure::Usage(format!(
            "--host {host} needs --cert, --key and --ca\n  help: NFLUID_CERT, NFLUID_KEY and NFLUID_CA name the files too"
        )));
    };
    let files = Files {
        certificate: cert.clone(),
        key: key.clone(),
        authority: ca.clone(),
        revoked: None,
    };
    let mutual = Mutual::load(&files).map_err(|error| Failure::Operation(format!("{error:#}")))?;
    Ok(Client::remote(host, &mutual)?)
}

async fn run(cli: &Cli, screen: Screen) -> Result<(), Failure> {
    let client = &client(cli)?;
    match &cli.command {
        Command::Apply(args) => apply::apply(client, screen, args).await,
        Command::Delete(args) => apply::delete(client, screen, args).await,
        Command::Get(args) => get::get(client, screen, args).await,
        Command::Describe(args) => get::describe(client, screen, args).await,
        Command::Top(args) => top::top(client, screen, args).await,
        Command::Stats(args) => inquire::stats(client, screen, args).await,
        Command::Logs(args) => events::logs(client, screen, args).await,
        Command::Events(args) => events::events(client, screen, args).await,
        Command::Capture(args) => capture::capture(client, screen, args).await,
        Command::Trace(TraceCommand::Slice(args)) => slices::trace(client, screen, args).await,
        Command::Ask(args) => inquire::command(client, screen, args).await,
        Command::Pause(args) => life::pause(client, screen, args).await,
        Command::Unpause(args) => life::unpause(client, screen, args).await,
        Command::Migrate(args) => life::migrate(client, screen, args).await,
        Command::Upgrade(args) => life::upgrade(client, screen, args).await,
        Command::Scale(args) => life::scale(client, screen, args).await,
        Command::Save(args) => life::save(client, screen, args).await,
        Command::Restore(args) => life::restore(client, screen, args).await,
        Command::RunFunction(args) => function::run(client, screen, args).await,
        Command::Restart(args) => inquire::restart(client, screen, args).await,
        Command::Doctor(args) => inquire::doctor(client, screen, args).await,
        Command::Version(args) => inquire::version(client, screen, args).await,
        // Traffic and images need no daemon and no runtime: `start` has handled them.
        Command::Gen(command) => generate::run(command),
        Command::Image(args) => image::run(screen, &args.image_dir, &args.command),
        Command::Completion(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "nfluid", &mut script);
            screen.bytes(&script)
        }
    }
}
