//! Reference signals (TS 36.211, section 5.5.1): extended Zadoff-Chu sequences, one cyclic shift per layer.

use std::f64::consts::PI;

use crate::Sample;

/// Steps of the cyclic shift that two layers are apart, of twelve: a quarter of the time axis each.
const SHIFT_PER_LAYER: usize = 3;

/// The reference of a layer on `width` subcarriers (at least 36), from the base sequence of group `group` (0 to 29).
pub fn reference(width: usize, group: usize, layer: usize) -> Vec<Sample> {
    let length = largest_prime_up_to(width);
    // q with v = 0: TS 36.211, section 5.5.1.1.
    let mean = length as f64 * (group % 30 + 1) as f64 / 31.0;
    let root = (mean + 0.5).floor();
    let turn = 2.0 * PI * (SHIFT_PER_LAYER * layer) as f64 / 12.0;
    let value = |subcarrier: usize| {
        let index = (subcarrier % length) as f64;
        let phase = -PI * root * index * (index + 1.0) / length as f64 + turn * subcarrier as f64;
        Sample::new(phase.cos() as f32, phase.sin() as f32)
    };
    (0..width).map(value).collect()
}

fn largest_prime_up_to(limit: usize) -> usize {
    let is_prime = |number: &usize| {
        let divisors = (2..).take_while(|divisor| divisor * divisor <= *number);
        divisors
            .into_iter()
            .all(|divisor| !number.is_multiple_of(divisor))
    };
    (2..=limit).rev().find(is_prime).unwrap_or(1)
}
