//! Charts, as SVG.

use plotters::prelude::*;

use crate::bench::report::whole;

const SIZE: (u32, u32) = (720, 400);
/// Told apart also by who sees few colours.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Lines over the same places.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    /// The places, from left to right.
    pub(super) places: Vec<String>,
    /// Each line's name, and its values by place.
    pub(super) lines: Vec<(String, Vec<Option<f64>>)>,
}

impl Chart {
    /// Adds a value; places stand in the order in which they come.
    pub(super) fn add(&mut self, line: &str, place: &str, value: f64) {
        let at = self.places.iter().position(|known| known == place).unwrap_or_else(|| {
            self.places.push(place.to_owned());
            self.places.len() - 1
        });
        let which = self.lines.iter().position(|(name, _)| name == line).unwrap_or_else(|| {
            self.lines.push((line.to_owned(), Vec::new()));
            self.lines.len() - 1
        });
        let values = &mut self.lines[which].1;
        values.resize(values.len().max(at + 1), None);
        values[at] = Some(value);
    }

    /// Draws it.
    pub(super) fn svg(&self) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| error.to_string())?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let highest = self.lines.iter().flat_map(|(_, values)| values).flatten().copied().fold(0.0, f64::max);
        let last = self.places.len().saturating_sub(1) as f64;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 22))
            .margin(12)
            .x_label_area_size(52)
            .y_label_area_size(84)
            // From zero on: what looks twice as high is twice as much.
            .build_cartesian_2d(-0.2..last + 0.2, 0.0..(highest * 1.15).max(0.001))?;
        let place = |x: &f64| {
            let nearest = x.round();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is a small index"
            )]
            let known = self.places.get(nearest.max(0.0) as usize);
            known.filter(|_| (x - nearest).abs() < 0.01).cloned().unwrap_or_default()
        };
        let amount = |y: &f64| if highest < 10.0 { format!("{y:.2}") } else { whole(*y) };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(self.places.len() * 5 + 1)
            .x_label_formatter(&place)
            .y_label_formatter(&amount)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .label_style(("sans-serif", 15))
            .axis_desc_style(("sans-serif", 16))
            .draw()?;
        for ((name, values), colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points: Vec<_> =
                values.iter().enumerate().filter_map(|(at, value)| Some((at as f64, (*value)?))).collect();
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(4))?
                .label(name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .label_font(("sans-serif", 15))
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_at_their_places_and_all_of_it_is_drawn() {
        let mut chart = Chart { title: "Draining <fast>".to_owned(), ..Chart::default() };
        chart.add("kept", "16", 100.0);
        chart.add("kept", "256", 200.0);
        chart.add("deleted", "256", 300.0);
        assert_eq!(chart.lines[1].1, [None, Some(300.0)]);
        let svg = chart.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["Draining &lt;fast&gt;", "kept", "deleted", "256"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(Chart::default().svg().is_ok());
    }
}
