//! The summary as a picture: for each workload, the ratio of the time of a call.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::stats::Spread;
use super::table::Section;
use super::tracer::Tracer;

const WIDTH: u32 = 900;
const HEAD: u32 = 40;
const PER_TRACER: u32 = 24;
const PODSTUCK: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const OTHERS: RGBColor = RGBColor(0x9a, 0x9a, 0x9a);
const NOISE: RGBColor = RGBColor(0xf0, 0xd9, 0xa8);
/// Lower bound of the logarithmic axis; differences below it are noise.
const LEAST: f64 = 0.7;

/// Writes the picture as SVG.
pub(crate) fn draw(path: &Path, sections: &[Section]) -> Result<()> {
    let panels: Vec<Panel<'_>> =
        sections.iter().map(Panel::new).filter(|panel| !panel.bars.is_empty()).collect();
    let height = panels.iter().map(Panel::height).sum::<u32>().max(HEAD);
    let most =
        panels.iter().flat_map(|panel| &panel.bars).map(|bar| bar.1.upper).fold(2.0, f64::max);
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let explain =
        |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| explain(&error))?;
    let mut rest = area.clone();
    for panel in &panels {
        let (upper, lower) = rest.split_vertically(panel.height());
        panel.draw(&upper, most * 1.6).map_err(|error| explain(&error))?;
        rest = lower;
    }
    area.present().map_err(|error| explain(&error))
}

struct Panel<'a> {
    section: &'a Section,
    bars: Vec<(Tracer, Spread)>,
}

impl<'a> Panel<'a> {
    fn new(section: &'a Section) -> Self {
        let bars = section
            .tracers
            .iter()
            .filter_map(|(tracer, summary)| Some((*tracer, summary.as_ref().ok()?.ratio?)))
            .collect();
        Self { section, bars }
    }

    fn height(&self) -> u32 {
        HEAD + 30 + PER_TRACER * u32::try_from(self.bars.len()).unwrap_or(0)
    }

    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        most: f64,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let count = self.bars.len();
        let mut chart = ChartBuilder::on(area)
            .caption(
                format!("{}: times as long as untraced", self.section.workload.title()),
                ("sans-serif", 15),
            )
            .margin(6)
            .x_label_area_size(22)
            .y_label_area_size(150)
            .build_cartesian_2d((LEAST..most).log_scale(), 0.0..count as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(10)
            .x_label_formatter(&|ratio| format!("{ratio}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        if let Some((_, noise)) = self.bars.iter().find(|bar| bar.0 == Tracer::NoneAgain) {
            let band = [(noise.lower.max(LEAST), 0.0), (noise.upper.max(LEAST), count as f64)];
            chart.draw_series([Rectangle::new(band, NOISE.filled())])?;
        }
        // From top to bottom, as in the table.
        for (index, (tracer, ratio)) in self.bars.iter().enumerate() {
            let middle = (count - index) as f64 - 0.5;
            let color = if tracer.is_podstuck() { PODSTUCK } else { OTHERS };
            let bar = [(1.0, middle - 0.3), (ratio.median.max(LEAST), middle + 0.3)];
            chart.draw_series([Rectangle::new(bar, color.filled())])?;
            let range = [(ratio.lower.max(LEAST), middle), (ratio.upper.max(LEAST), middle)];
            chart.draw_series([PathElement::new(range, BLACK)])?;
            let end = ratio.upper.max(1.0);
            let label = EmptyElement::at((end, middle))
                + Text::new(format!("{:.2}", ratio.median), (8, -6), ("sans-serif", 12));
            chart.draw_series([label])?;
            let title = EmptyElement::at((LEAST, middle))
                + Text::new(tracer.title(), (-145, -6), ("sans-serif", 12));
            chart.plotting_area().draw(&title)?;
        }
        Ok(())
    }
}
