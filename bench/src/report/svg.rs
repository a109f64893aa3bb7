//! Plots as inline SVG. Colours are CSS classes of the page, so that they follow its light or dark theme.

use std::fmt::Write as _;

use super::text::significant;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
const BAR_HEIGHT: f64 = 26.0;
const COLOURS: usize = 6;

/// A horizontal bar: its value, and the range around it.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) range: Option<(f64, f64)>,
}

/// A line of points.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// What an axis shows.
pub(super) struct Axis {
    pub(super) title: String,
    /// Values at which there is a tick, with their labels.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) range: (f64, f64),
    pub(super) logarithmic: bool,
}

impl Axis {
    /// A logarithmic axis over the values, with a tick at each power of ten.
    pub(super) fn powers_of_ten(title: &str, values: impl Iterator<Item = f64>) -> Self {
        let positive: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        let low = positive.iter().copied().fold(f64::INFINITY, f64::min).min(1e12).log10().floor() as i32;
        let high = positive.iter().copied().fold(1e-12, f64::max).log10().ceil() as i32;
        let high = high.max(low + 1);
        let ticks = (low..=high).map(|power| (10f64.powi(power), plain(10f64.powi(power)))).collect();
        Self { title: title.to_owned(), ticks, range: (10f64.powi(low), 10f64.powi(high)), logarithmic: true }
    }

    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.max(1e-12).log10() } else { value };
        let (low, high) = (scale(self.range.0), scale(self.range.1));
        ((scale(value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Bars from zero, with whiskers for the ranges.
pub(super) fn bars(bars: &[Bar], unit: &str) -> String {
    let largest = bars.iter().map(|bar| bar.range.map_or(bar.value, |range| range.1)).fold(0.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT - 30.0) / if largest > 0.0 { largest } else { 1.0 };
    let height = bars.len() as f64 * BAR_HEIGHT + 8.0;
    let mut svg = open(height);
    let left = LEFT + 30.0;
    for (index, bar) in bars.iter().enumerate() {
        let top = index as f64 * BAR_HEIGHT + 4.0;
        let middle = top + BAR_HEIGHT / 2.0 - 2.0;
        let width = (bar.value * scale).max(0.0);
        put(
            &mut svg,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}" class="label" text-anchor="end">{}</text>"#,
                left - 8.0,
                middle + 4.0,
                escape(&bar.label)
            ),
        );
        put(
            &mut svg,
            format_args!(
                r#"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{:.1}" class="fill{}"/>"#,
                BAR_HEIGHT - 6.0,
                index % COLOURS
            ),
        );
        let mut end = width;
        if let Some((low, high)) = bar.range {
            let (low, high) = (left + low.max(0.0) * scale, left + high * scale);
            end = end.max(high - left);
            put(
                &mut svg,
                format_args!(
                    r#"<path d="M{low:.1} {middle:.1}H{high:.1}M{low:.1} {0:.1}V{1:.1}M{high:.1} {0:.1}V{1:.1}" class="whisker"/>"#,
                    middle - 4.0,
                    middle + 4.0
                ),
            );
        }
        put(
            &mut svg,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}" class="label">{} {unit}</text>"#,
                left + end + 6.0,
                middle + 4.0,
                significant(bar.value)
            ),
        );
    }
    close(svg)
}

/// Lines over two axes, with a legend.
pub(super) fn lines(lines: &[Line], x: &Axis, y: &Axis) -> String {
    let mut svg = open(HEIGHT);
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let place_x = |value: f64| LEFT + x.place(value) * width;
    let place_y = |value: f64| TOP + (1.0 - y.place(value)) * height;
    for (value, label) in &x.ticks {
        let at = place_x(*value);
        put(&mut svg, format_args!(r#"<path d="M{at:.1} {TOP}V{:.1}" class="grid"/>"#, TOP + height));
        put(
            &mut svg,
            format_args!(
                r#"<text x="{at:.1}" y="{:.1}" class="tick" text-anchor="middle">{}</text>"#,
                TOP + height + 16.0,
                escape(label)
            ),
        );
    }
    for (value, label) in &y.ticks {
        let at = place_y(*value);
        put(&mut svg, format_args!(r#"<path d="M{LEFT} {at:.1}H{:.1}" class="grid"/>"#, LEFT + width));
        put(
            &mut svg,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}" class="tick" text-anchor="end">{}</text>"#,
                LEFT - 6.0,
                at + 4.0,
                escape(label)
            ),
        );
    }
    put(
        &mut svg,
        format_args!(
            r#"<text x="{:.1}" y="{:.1}" class="tick" text-anchor="middle">{}</text>"#,
            LEFT + width / 2.0,
            HEIGHT - 8.0,
            escape(&x.title)
        ),
    );
    put(
        &mut svg,
        format_args!(
            r#"<text transform="translate(14 {:.1}) rotate(-90)" class="tick" text-anchor="middle">{}</text>"#,
            TOP + height / 2.0,
            escape(&y.title)
        ),
    );
    for (index, line) in lines.iter().enumerate() {
        let path: Vec<String> =
            line.points.iter().map(|(x, y)| format!("{:.1} {:.1}", place_x(*x), place_y(*y))).collect();
        put(&mut svg, format_args!(r#"<path d="M{}" class="line{}"/>"#, path.join("L"), index % COLOURS));
        for (x, y) in &line.points {
            put(
                &mut svg,
                format_args!(
                    r#"<circle cx="{:.1}" cy="{:.1}" r="2.5" class="fill{}"/>"#,
                    place_x(*x),
                    place_y(*y),
                    index % COLOURS
                ),
            );
        }
        let legend = TOP + 12.0 + index as f64 * 18.0;
        let side = LEFT + width + 10.0;
        put(
            &mut svg,
            format_args!(
                r#"<path d="M{side:.1} {legend:.1}h14" class="line{}"/><text x="{:.1}" y="{:.1}" class="label">{}</text>"#,
                index % COLOURS,
                side + 18.0,
                legend + 4.0,
                escape(&line.label)
            ),
        );
    }
    close(svg)
}

/// Makes text safe between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn plain(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}

fn open(height: f64) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img">"#)
}

fn close(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

fn put(svg: &mut String, part: std::fmt::Arguments<'_>) {
    svg.write_fmt(part).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_axis_places_powers_evenly() {
        let axis = Axis::powers_of_ten("µs", [3.0, 700.0].into_iter());
        assert_eq!(axis.range, (1.0, 1000.0));
        assert_eq!(axis.ticks.len(), 4);
        assert!((axis.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        assert_eq!(
            Axis::powers_of_ten("", std::iter::empty()).ticks.len(),
            2,
            "no values still make an axis"
        );
    }

    #[test]
    fn bars_are_proportional() {
        let bar = |value: f64| Bar { label: "<a>".into(), value, range: None };
        let svg = bars(&[bar(10.0), bar(5.0)], "µs");
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
        assert!(svg.contains("&lt;a&gt;"));
    }
}
