//! `nfluid capture`.

use crate::args::CaptureArgs;
use crate::failure::Failure;
use crate::screen::Screen;
use nfluid_api::client::Client;
use std::fs::File;
use std::io::Write;

pub async fn capture(client: &Client, screen: Screen, args: &CaptureArgs) -> Result<(), Failure> {
    if args.write.is_none() && screen.is_terminal() {
        return Err(Failure::operation(
            "a capture is no text for a terminal",
            &format!(
                "pipe it: 'nfluid capture {} | tcpdump -n -r -', or write a file with '-w FILE'",
                args.port
            ),
        ));
    }
    let mut output: Box<dyn Write> = match &args.write {
        None => Box::new(std::io::stdout()),
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Failure::operation(format!("cannot write {}: {error}", path.display()), "")
        })?),
    };
    let mut capture = client.capture(&args.port).await?;
    while let Some(piece) = capture.next().await? {
        output.write_all(&piece)?;
        // Flushed with each piece, so that a reader sees a frame when it passes.
        output.flush()?;
    }
    Ok(())
}
