//! Drawing a plot as SVG. The legend stands beside the lines, never over them.

use super::{Axis, Plot, Point, Series};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use std::ops::Range;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 420;
/// Width of the drawing without the legend.
const CHART_WIDTH: u32 = 570;
const LEGEND_LINE: i32 = 20;
const LEGEND_TOP: i32 = 45;
/// Okabe and Ito's colours, which colour-blind readers can distinguish (jfly.uni-koeln.de/color).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(70, 70, 70),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Plot {
    /// The plot as an SVG document; texts are escaped.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        {
            let legend_height = LEGEND_TOP + LEGEND_LINE * self.series.len() as i32;
            let size = (WIDTH, HEIGHT.max(legend_height.unsigned_abs()));
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&area)
                .map_err(|error| anyhow!("drawing plot {}: {error}", self.id))?;
        }
        Ok(text)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let (chart_area, legend) = area.split_horizontally(CHART_WIDTH);
        self.draw_legend(&legend)?;
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs: Vec<f64> = points().map(|point| point.x).collect();
        let ys: Vec<f64> = points()
            .flat_map(|point| [point.low, point.median, point.high])
            .collect();
        let mut builder = ChartBuilder::on(&chart_area);
        builder
            .caption(&self.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(62);
        let mut chart = builder
            .build_cartesian_2d(Positions::new(&self.x, &xs), Positions::new(&self.y, &ys))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 15))
            .axis_desc_style(("sans-serif", 16))
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_label_formatter(&|position| self.x.text(*position))
            .y_label_formatter(&|position| self.y.text(*position))
            .draw()?;
        for (series, colour) in self.series.iter().zip(colours()) {
            let placed = self.placed(series);
            let line = placed.iter().map(|point| (point.x, point.median));
            chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            chart.draw_series(placed.iter().map(|point| {
                ErrorBar::new_vertical(
                    point.x,
                    point.low,
                    point.median,
                    point.high,
                    colour.filled(),
                    6,
                )
            }))?;
        }
        area.present()?;
        Ok(())
    }

    /// The points that both axes can show, as positions on them.
    fn placed(&self, series: &Series) -> Vec<Point> {
        let place = |point: &Point| {
            let y = |value| self.y.position(value);
            let median = y(point.median)?;
            Some(Point {
                x: self.x.position(point.x)?,
                median,
                low: y(point.low).unwrap_or(median),
                high: y(point.high).unwrap_or(median),
            })
        };
        series.points.iter().filter_map(place).collect()
    }

    fn draw_legend(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        for (index, (series, colour)) in self.series.iter().zip(colours()).enumerate() {
            let y = LEGEND_TOP + index as i32 * LEGEND_LINE;
            area.draw(&PathElement::new([(4, y), (22, y)], colour.stroke_width(3)))?;
            let style = ("sans-serif", 15).into_font();
            area.draw(&Text::new(series.name.as_str(), (28, y - 6), style))?;
        }
        Ok(())
    }
}

/// The positions that an axis shows, for plotters.
struct Positions {
    range: Range<f64>,
    marks: Vec<f64>,
}

impl Positions {
    fn new(axis: &Axis, values: &[f64]) -> Self {
        let range = axis.range(values);
        let marks = axis.marks(values, &range);
        Positions { range, marks }
    }
}

impl Ranged for Positions {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (position - self.range.start) / (self.range.end - self.range.start);
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn colours() -> impl Iterator<Item = RGBColor> {
    COLOURS.into_iter().cycle()
}
