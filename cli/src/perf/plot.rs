//! Charts as SVG: lines over sizes, one chart below the other. Pure text, no state.

use std::fmt::Write;

/// Size of a chart, and of the room around its lines.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 290.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that most people can distinguish.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666"];

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Whether it is a reference.
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart: sizes in octets on the horizontal axis, by powers of two.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) unit: String,
    /// The vertical axis is logarithmic.
    pub(super) log: bool,
    pub(super) series: Vec<Series>,
}

/// Maps values to coordinates.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
    log: bool,
}

impl Scale {
    /// `None`: there are no points.
    fn of(chart: &Chart) -> Option<Self> {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let good = |value: &f64| value.is_finite() && *value > 0.0;
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(good).fold(None, |range: Option<(f64, f64)>, value| {
                let (low, high) = range.unwrap_or((value, value));
                Some((low.min(value), high.max(value)))
            })
        };
        let (low, high) = range(&mut points().map(|point| point.0))?;
        let x = (low.log2().floor() - 0.5, high.log2().ceil() + 0.5);
        let (low, high) = range(&mut points().map(|point| point.1))?;
        let y = match chart.log {
            true => (low.log10().floor(), (high * 1.01).log10().ceil()),
            false => (0.0, high * 1.1),
        };
        Some(Self { x, y, log: chart.log })
    }

    fn right(&self, x: f64) -> f64 {
        LEFT + (x.log2() - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn down(&self, y: f64) -> f64 {
        let y = if self.log { y.log10() } else { y };
        HEIGHT - BOTTOM - (y - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    /// Values with a grid line.
    fn steps(&self) -> Vec<f64> {
        if self.log {
            return (self.y.0 as i32..=self.y.1 as i32).map(|power| 10f64.powi(power)).collect();
        }
        let rough = self.y.1 / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = nice.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        (0..=(self.y.1 / step) as u32).map(|n| f64::from(n) * step).collect()
    }
}

/// All charts; those without a point are left out.
pub(super) fn svg(charts: &[Chart]) -> String {
    let charts: Vec<_> =
        charts.iter().filter_map(|chart| Some((chart, Scale::of(chart)?))).collect();
    let mut out = String::new();
    let height = HEIGHT * charts.len() as f64;
    out += &format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (n, (chart, scale)) in charts.iter().enumerate() {
        out += &format!("<g transform=\"translate(0 {})\">\n", n as f64 * HEIGHT);
        draw(&mut out, chart, scale).unwrap_or_default();
        out += "</g>\n";
    }
    out + "</svg>\n"
}

fn draw(out: &mut String, chart: &Chart, scale: &Scale) -> std::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let title = format!("{}, {}", chart.title, chart.unit);
    writeln!(out, "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>", escaped(&title))?;
    for step in scale.steps() {
        let y = scale.down(step);
        writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            plain(step)
        )?;
    }
    for power in scale.x.0.ceil() as i32..=scale.x.1.floor() as i32 {
        // Every other label if all would overlap.
        if scale.x.1 - scale.x.0 > 14.0 && power % 2 != 0 {
            continue;
        }
        let x = scale.right(2f64.powi(power));
        writeln!(
            out,
            "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#000000\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 20.0,
            super::case::octets(1u32.checked_shl(power.max(0) as u32).unwrap_or(u32::MAX))
        )?;
    }
    for (n, series) in chart.series.iter().enumerate() {
        line(out, scale, series, n)?;
    }
    writeln!(out, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#000000\"/>")
}

fn line(out: &mut String, scale: &Scale, series: &Series, n: usize) -> std::fmt::Result {
    let colour = COLOURS[n % COLOURS.len()];
    // Dashes mark raw TCP, finer ones series beyond the number of colours.
    let dash = match (series.dashed, n / COLOURS.len()) {
        (true, _) => "7 4",
        (false, 0) => "none",
        (false, _) => "2 3",
    };
    let style = format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"");
    let good = series.points.iter().filter(|(x, y)| *x > 0.0 && y.is_finite() && *y > 0.0);
    let places: Vec<_> = good.map(|(x, y)| (scale.right(*x), scale.down(*y))).collect();
    let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    if path.len() > 1 {
        writeln!(out, "<path d=\"M{}\" fill=\"none\" {style}/>", path.join("L"))?;
    }
    for (x, y) in places {
        writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>")?;
    }
    let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 6.0 + 17.0 * n as f64);
    writeln!(
        out,
        "<path d=\"M{x} {y}h24\" {style}/><text x=\"{}\" y=\"{}\">{}</text>",
        x + 30.0,
        y + 4.0,
        escaped(&series.name)
    )
}

fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool, points: &[(f64, f64)]) -> Chart {
        let series =
            |name: &str, dashed| Series { name: name.into(), dashed, points: points.into() };
        let series = vec![series("ours < best", false), series("raw & plain", true)];
        Chart { title: "Bandwidth".into(), unit: "GB/s".into(), log, series }
    }

    #[test]
    fn charts_are_well_formed_and_show_every_point() {
        let points = [(8.0, 0.1), (4096.0, 2.0), (65536.0, 7.5)];
        let text = svg(&[chart(false, &points), chart(true, &points), chart(true, &[])]);
        assert_eq!(text.matches("<circle").count(), 2 * 2 * points.len());
        assert_eq!(text.matches("<g ").count(), 2);
        assert!(text.contains("ours &lt; best") && text.contains("raw &amp; plain"));
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("64 KiB") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn one_point_and_invalid_values_do_not_panic() {
        let text = svg(&[chart(true, &[(1.0, 1.0)]), chart(false, &[(f64::NAN, f64::INFINITY)])]);
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
