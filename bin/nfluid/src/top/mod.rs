//! `nfluid top`: rates, drops by reason, CPU time demanded and received, queue delay.

mod live;
mod tables;

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::screen::{Screen, Style};
use nfluid_api::client::Client;
use nfluid_api::types::{Rates, Stats};
use std::time::Duration;

pub async fn top(client: &Client, screen: Screen, args: &TopArgs) -> Result<(), Failure> {
    let interval = Duration::from_secs_f64(args.interval);
    let as_text = args.text || args.once || !screen.is_terminal();
    if !as_text {
        return live::run(client, interval).await;
    }
    let mut earlier = snapshot(client).await?;
    loop {
        tokio::time::sleep(interval).await;
        let later = snapshot(client).await?;
        print(screen, &Rates::between(&earlier, &later))?;
        if args.once {
            return Ok(());
        }
        screen.line("")?;
        earlier = later;
    }
}

async fn snapshot(client: &Client) -> Result<Stats, Failure> {
    Ok(client.get("/v1/stats").await?)
}

fn print(screen: Screen, rates: &Rates) -> Result<(), Failure> {
    for (i, (title, table)) in tables::all(rates).into_iter().enumerate() {
        if i > 0 {
            screen.line("")?;
        }
        let title = format!("{title}, over {:.1} s", rates.seconds);
        screen.line(&screen.styled(Style::Dim, &title))?;
        screen.table(&table)?;
    }
    Ok(())
}
