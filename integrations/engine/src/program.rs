//! How a driver's program runs: its log, its threads, its end.

use std::future::Future;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Starts the log on the standard error, and runs a program on two threads.
///
/// # Errors
/// Those of the program, or there are no threads.
pub fn run(program: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // An engine may read the log. A driver outlives the engine that has started it: then nobody reads, and to say so would panic.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(program)
}

/// Runs a program until it ends, or until the process is asked to end. Instances go on; the next process finds them.
///
/// # Errors
/// Those of the program, or signals cannot be received.
pub async fn until_asked_to_end(
    program: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = program => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
