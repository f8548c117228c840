//! Channel estimation from the reference symbol: matched filter, transform to time, window, transform back.
//!
//! Layers' references are cyclic shifts of each other, so that in time each layer's channel begins at another quarter. The
//! window keeps the layer's own quarter. A channel is no longer than the cyclic prefix, which is less than half of a
//! quarter: the rest of the quarter has noise alone, and gives its power.

use crate::Sample;
use crate::transform::Transform;

/// First tap of a quarter of so many that has noise alone.
fn first_noise_tap(quarter: usize) -> usize {
    quarter / 2 + 1
}

/// Estimates the channel of a layer at an antenna: `channel` gets a value per subcarrier. Returns the noise power per
/// subcarrier, as far as this layer's quarter shows it.
///
/// `received`, `reference` and `channel` have one length, `transform` its size.
pub fn channel(
    received: &[Sample],
    reference: &[Sample],
    transform: &Transform,
    channel: &mut [Sample],
) -> f32 {
    let quarter = channel.len() / 4;
    for ((channel, received), reference) in channel.iter_mut().zip(received).zip(reference) {
        *channel = received * reference.conj();
    }
    transform.inverse(channel);
    channel[quarter..].fill(Sample::default());
    let noise = &channel[first_noise_tap(quarter)..quarter];
    let power = noise.iter().map(Sample::norm_sqr).sum::<f32>() / noise.len().max(1) as f32;
    transform.forward(channel);
    power
}
