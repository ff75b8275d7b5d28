//! How fast two clocks drift apart, from the hulls of their bounds.
//!
//! All upper bounds on theta lie above its line and all lower bounds below.
//! The edge of each hull that passes the middle of the time is the line
//! closest to the points on that side (Moon, Skelly, Towsley 1999).

/// Slope of the hull edge at the middle of the time, ns per ns; `points` are
/// (time, bound) in order of time. The lower hull for upper bounds; for lower
/// bounds pass them negated and negate the result. `None` with fewer than two
/// different times.
pub fn slope_of_lower_hull(points: impl Iterator<Item = (i64, i64)>) -> Option<f64> {
    let mut hull: Vec<(i64, i64)> = Vec::new();
    for point in points {
        if let Some(last) = hull.last_mut() {
            if last.0 == point.0 {
                last.1 = last.1.min(point.1);
                continue;
            }
        }
        while let [.., a, b] = hull[..] {
            if cross(a, b, point) > 0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    let (first, last) = (hull.first()?.0, hull.last()?.0);
    let middle = first + (last - first) / 2;
    let edge = hull.windows(2).find(|edge| edge[1].0 >= middle)?;
    Some((edge[1].1 - edge[0].1) as f64 / (edge[1].0 - edge[0].0) as f64)
}

/// Positive when a, b, c turn left.
fn cross(a: (i64, i64), b: (i64, i64), c: (i64, i64)) -> i128 {
    i128::from(b.0 - a.0) * i128::from(c.1 - a.1) - i128::from(b.1 - a.1) * i128::from(c.0 - a.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_under_the_middle_gives_the_slope() {
        // y = x / 1000 with points above it at 3 of 4 places.
        let points = (0..100i64).map(|i| (i * 1000, i + if i % 4 == 0 { 0 } else { 50 + i % 7 }));
        let slope = slope_of_lower_hull(points);
        assert_eq!(slope, Some(0.001));
    }

    #[test]
    fn too_few_points_have_no_slope() {
        assert_eq!(slope_of_lower_hull(std::iter::empty()), None);
        assert_eq!(slope_of_lower_hull([(5, 5), (5, 6)].into_iter()), None);
    }
}
