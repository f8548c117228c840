//! The interactive form, which draws on a terminal.

use super::{snapshot, tables};
use crate::failure::Failure;
use crate::screen::Table;
use nfluid_api::client::Client;
use nfluid_api::types::Rates;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row};
use std::time::{Duration, Instant};

/// Interval at which keys are read.
const KEY_INTERVAL: Duration = Duration::from_millis(50);

/// The visible part: the tables and the scroll position.
#[derive(Debug, Default)]
pub struct View {
    rates: Rates,
    first_row: usize,
    is_paused: bool,
}

/// The action that a key asks for.
enum Wish {
    Nothing,
    Quit,
}

pub async fn run(client: &Client, interval: Duration) -> Result<(), Failure> {
    let mut earlier = snapshot(client).await?;
    // Also restores the terminal when the program panics.
    let mut terminal = ratatui::try_init()?;
    let mut view = View::default();
    let mut due = Instant::now() + interval;
    let result = loop {
        if let Err(error) = terminal.draw(|frame| view.draw(frame)) {
            break Err(error.into());
        }
        match view.keys() {
            Ok(Wish::Quit) => break Ok(()),
            Ok(Wish::Nothing) => {}
            Err(error) => break Err(error.into()),
        }
        tokio::time::sleep(KEY_INTERVAL).await;
        if Instant::now() < due || view.is_paused {
            continue;
        }
        due = Instant::now() + interval;
        match snapshot(client).await {
            Ok(later) => {
                view.rates = Rates::between(&earlier, &later);
                earlier = later;
            }
            Err(failure) => break Err(failure),
        }
    };
    ratatui::restore();
    result
}

impl View {
    /// Reads the keys that were pressed since the last call.
    fn keys(&mut self) -> std::io::Result<Wish> {
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else {
                continue;
            };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            let control_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(Wish::Quit),
                _ if control_c => return Ok(Wish::Quit),
                KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
                KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
                KeyCode::PageDown => self.scroll(20),
                KeyCode::PageUp => self.scroll(-20),
                KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
                _ => {}
            }
        }
        Ok(Wish::Nothing)
    }

    fn scroll(&mut self, rows: isize) {
        let most = self.rates.instances.len().max(self.rates.ports.len());
        self.first_row = self
            .first_row
            .saturating_add_signed(rows)
            .min(most.saturating_sub(1));
    }

    /// Draws a line of help and the tables below each other.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let tables = tables::all(&self.rates);
        let heights = tables.iter().map(|(_, table)| {
            // Two lines of border, one of headings.
            let rows = u16::try_from(table.rows().len()).unwrap_or(u16::MAX);
            Constraint::Max(rows.saturating_add(3))
        });
        let constraints = std::iter::once(Constraint::Length(1)).chain(heights);
        let areas = Layout::vertical(constraints).split(frame.area());
        let state = if self.is_paused { "paused" } else { "live" };
        let help = format!(
            "nfluid top, {state}, {:.1} s   q quit, p pause, up and down scroll",
            self.rates.seconds
        );
        if let Some(area) = areas.first() {
            frame.render_widget(Line::from(help), *area);
        }
        for ((title, table), area) in tables.iter().zip(areas.iter().skip(1)) {
            frame.render_widget(self.widget(title, table), *area);
        }
    }

    fn widget<'a>(&self, title: &'a str, table: &'a Table) -> ratatui::widgets::Table<'a> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let rows = table
            .rows()
            .iter()
            .skip(self.first_row.min(table.rows().len()));
        let widths = table
            .widths()
            .into_iter()
            .map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
        ratatui::widgets::Table::new(
            rows.map(|cells| Row::new(cells.iter().map(String::as_str))),
            widths,
        )
        .header(Row::new(table.headings().iter().copied()).style(bold))
        .column_spacing(2)
        .block(Block::bordered().title(title))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_api::types::{ChainRates, InstanceRates, PortRates};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view() -> View {
        View {
            rates: Rates {
                uplinks: Vec::new(),
                groups: Vec::new(),
                io: Vec::new(),
                slices: Vec::new(),
                seconds: 1.0,
                instances: vec![InstanceRates {
                    name: "fw1".into(),
                    got_percent: 24.96,
                    share_percent: Some(30.0),
                    rx_pps: 1_234_567.0,
                    ..InstanceRates::default()
                }],
                ports: vec![PortRates {
                    name: "fw1.in".into(),
                    drops: [("ring_full".to_owned(), 7)].into(),
                    drop_pps: [("ring_full".to_owned(), 2.0)].into(),
                    mark_percent: Some(12.5),
                    ..PortRates::default()
                }],
                chains: vec![ChainRates {
                    name: "web".into(),
                    forward_delay_ns: Some(12_000),
                    forward_bottleneck: Some("nat7".into()),
                    ..ChainRates::default()
                }],
            },
            ..View::default()
        }
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
        terminal.draw(|frame| view.draw(frame)).expect("draws");
        terminal.backend().to_string()
    }

    #[test]
    fn everything_that_is_asked_for_is_on_the_screen() {
        let screen = drawn(&view(), 120, 24);
        for text in [
            "fw1",
            "25.0%",
            "30.0%",
            "1.2M",
            "ring_full 7 (+2/s)",
            "web",
            "12.0us",
            "nat7",
            "12.5%",
            "live",
        ] {
            assert!(screen.contains(text), "{text} is missing:\n{screen}");
        }
    }

    #[test]
    fn no_terminal_is_too_small_and_no_scrolling_too_far() {
        let mut view = view();
        for (width, height) in [(1, 1), (5, 3), (300, 2), (2, 300)] {
            drawn(&view, width, height);
        }
        view.scroll(1_000);
        view.scroll(-5);
        view.scroll(isize::MIN);
        drawn(&view, 80, 24);
        drawn(&View::default(), 80, 24);
    }
}
