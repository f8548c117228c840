//! Amounts of resources: Kubernetes' quantities, and shares in the daemon's words.

/// Returns a share in the daemon's words. One of more than a core is a part of the platform.
pub fn share_of(permille: u64, cpus: usize) -> String {
    if permille <= 1000 {
        return format!("{}.{}%", permille / 10, permille % 10);
    }
    let hundredths = permille.saturating_mul(10) / cpus.max(1) as u64;
    format!("{}.{:02}% of platform", hundredths / 100, hundredths % 100)
}

/// Returns a quantity (as `64Mi`, `1500M`, `0.5Gi`, `2e3`) as a whole number, rounded up.
pub fn whole(quantity: &str) -> Option<u64> {
    let digits = quantity
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => f64::from(1 << 20),
        "Gi" => f64::from(1 << 30),
        "Ti" => 1024.0 * f64::from(1 << 30),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let whole = (number * factor).ceil();
    (whole.is_finite() && (0.0..9e15).contains(&whole)).then_some(whole as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_kubernetes_quantities() {
        for (text, amount) in [
            ("64Mi", Some(64 << 20)),
            ("0.5Gi", Some(1 << 29)),
            ("1500M", Some(1_500_000_000)),
            ("2e3", Some(2000)),
            ("100m", Some(1)),
            ("7", Some(7)),
            ("-1", None),
            ("Mi", None),
            ("1e400", None),
            ("1x", None),
        ] {
            assert_eq!(whole(text), amount, "{text}");
        }
        assert_eq!(share_of(125, 4), "12.5%");
        assert_eq!(share_of(1000, 4), "100.0%");
        assert_eq!(share_of(2500, 4), "62.50% of platform");
    }
}
