//! Traces of finished graphs: for Chrome's and Perfetto's viewers, and as a Gantt chart.

use std::fmt::Write;

use super::Finished;

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

/// The bars of finished graphs, by PE and start.
pub fn bars<'a>(finished: impl IntoIterator<Item = &'a Finished>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for graph in finished {
        let Some(plan) = graph.plan() else { continue };
        bars.extend(graph.runs().map(|run| Bar {
            name: format!("{}/{}", graph.ticket, run.unit),
            kind: plan.units().task(run.unit).kind,
            pe: run.pe,
            start: run.start,
            took: run.took,
        }));
    }
    bars.sort_by_key(|bar| (bar.pe, bar.start));
    bars
}

/// The bars as a JSON object in Chrome's trace event format: complete events (`X`), times in microseconds.
pub fn chrome(bars: &[Bar]) -> String {
    let mut json = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (at, bar) in bars.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let (start, took) = (bar.start as f64 / 1e3, bar.took as f64 / 1e3);
        // Names have digits and a slash only: nothing to escape. Writing to a string cannot fail.
        let _always_ok = write!(
            json,
            "{comma}\n{{\"name\":\"{}\",\"cat\":\"kind {}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{start:.3},\"dur\":{took:.3}}}",
            bar.name, bar.kind, bar.pe
        );
    }
    json.push_str("\n]}\n");
    json
}

/// The bars as a Gantt chart in SVG: a row per PE, time to the right.
pub fn gantt(bars: &[Bar]) -> String {
    const WIDTH: f64 = 1200.0;
    const ROW: usize = 28;
    const COLOURS: [&str; 8] = [
        "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
    ];
    let begin = bars.iter().map(|bar| bar.start).min().unwrap_or(0);
    let end = bars
        .iter()
        .map(|bar| bar.start + bar.took)
        .max()
        .unwrap_or(0);
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
    let _always_ok = writeln!(
        svg,
        "<text x=\"50\" y=\"{}\">0 to {:.1} us</text>\n</svg>",
        height - 8,
        (end - begin) as f64 / 1e3
    );
    svg
}
