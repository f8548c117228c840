//! Traces of finished graphs: for Chrome's and Perfetto's viewers, and as a Gantt chart.
//!
//! A bar is the run of a unit on a PE; a mark is a moment: the core manager took a graph, or told its end.

use std::fmt::Write;

use super::{Finished, UnitRun};

/// A unit's run in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// What ran: `ticket/unit` and the kind of its last task.
    pub name: String,
    /// Kind of the unit's last task, which gives the bar its colour.
    pub kind: u16,
    /// The PE.
    pub pe: usize,
    /// Begin in nanoseconds on the engine's clock.
    pub start: u64,
    /// Nanoseconds.
    pub took: u64,
}

/// A moment in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The event: `ticket taken` or `ticket ended`.
    pub name: String,
    /// Nanoseconds on the engine's clock.
    pub at: u64,
}

/// The moments at which the core manager took a graph, and told its end, in nanoseconds on the engine's clock.
pub fn marks(ticket: u64, taken: u64, ended: u64) -> [Mark; 2] {
    [(taken, "taken"), (ended, "ended")].map(|(at, what)| Mark {
        name: format!("{ticket} {what}"),
        at,
    })
}

impl Bar {
    /// The bar of a unit's run; `kind` is that of the unit's last task.
    pub fn of(ticket: u64, kind: u16, run: UnitRun) -> Self {
        Bar {
            name: format!("{ticket}/{}", run.unit),
            kind,
            pe: run.pe,
            start: run.start,
            took: run.took,
        }
    }
}

/// The bars of finished graphs, by PE and start.
pub fn bars<'a>(finished: impl IntoIterator<Item = &'a Finished>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for graph in finished {
        let Some(plan) = graph.plan() else { continue };
        let units = plan.units();
        bars.extend(
            graph
                .runs()
                .map(|run| Bar::of(graph.ticket, units.task(run.unit).kind, run)),
        );
    }
    bars.sort_by_key(|bar| (bar.pe, bar.start));
    bars
}

/// Bars and marks as a JSON object in Chrome's trace event format: complete events (`X`) and instants (`i`), times in
/// microseconds.
pub fn chrome(bars: &[Bar], marks: &[Mark]) -> String {
    let mut json = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (at, bar) in bars.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let (start, took) = (bar.start as f64 / 1e3, bar.took as f64 / 1e3);
        // Names have digits, letters and a slash only: nothing to escape. Writing to a string cannot fail.
        let _always_ok = write!(
            json,
            "{comma}\n{{\"name\":\"{}\",\"cat\":\"kind {}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{start:.3},\"dur\":{took:.3}}}",
            bar.name, bar.kind, bar.pe
        );
    }
    for (at, mark) in marks.iter().enumerate() {
        let comma = if at == 0 && bars.is_empty() { "" } else { "," };
        let _always_ok = write!(
            json,
            "{comma}\n{{\"name\":\"{}\",\"cat\":\"core manager\",\"ph\":\"i\",\"s\":\"p\",\"pid\":0,\"tid\":0,\"ts\":{:.3}}}",
            mark.name,
            mark.at as f64 / 1e3
        );
    }
    json.push_str("\n]}\n");
    json
}

/// Bars and marks as a Gantt chart in SVG: a row per PE, time to the right, a line per mark.
pub fn gantt(bars: &[Bar], marks: &[Mark]) -> String {
    const WIDTH: f64 = 1200.0;
    const ROW: usize = 28;
    const COLOURS: [&str; 8] = [
        "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
    ];
    let moments = marks.iter().map(|mark| mark.at);
    let begin = bars.iter().map(|bar| bar.start).chain(moments.clone());
    let begin = begin.min().unwrap_or(0);
    let end = bars
        .iter()
        .map(|bar| bar.start.saturating_add(bar.took))
        .chain(moments);
    let end = end.max().unwrap_or(0);
    let rows = bars.iter().map(|bar| bar.pe + 1).max().unwrap_or(0);
    let scale = WIDTH / ((end - begin).max(1) as f64);
    let height = rows * ROW + ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n",
        WIDTH + 60.0
    );
    for pe in 0..rows {
        let _always_ok = writeln!(svg, "<text x=\"4\" y=\"{}\">PE {pe}</text>", pe * ROW + 18);
    }
    for bar in bars {
        let x = (bar.start - begin) as f64 * scale + 50.0;
        let width = (bar.took as f64 * scale).max(0.2);
        let colour = COLOURS[usize::from(bar.kind) % COLOURS.len()];
        let y = bar.pe * ROW + 4;
        let _always_ok = writeln!(
            svg,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"20\" fill=\"{colour}\"><title>{}, kind {}: {} ns</title></rect>",
            bar.name, bar.kind, bar.took
        );
    }
    for mark in marks {
        let x = (mark.at - begin) as f64 * scale + 50.0;
        let _always_ok = writeln!(
            svg,
            "<line x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"0\" y2=\"{}\" stroke=\"#333\" stroke-dasharray=\"2 2\"><title>{}</title></line>",
            rows * ROW,
            mark.name
        );
    }
    let _always_ok = writeln!(
        svg,
        "<text x=\"50\" y=\"{}\">0 to {:.1} us</text>\n</svg>",
        height - 8,
        (end - begin) as f64 / 1e3
    );
    svg
}
