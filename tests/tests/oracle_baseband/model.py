"""Kernels of an LTE uplink receiver by numpy and scipy, from the definitions of 3GPP TS 36.211 and 36.212.

Reads {"name": [case, ...], ...} from standard input, and writes the results in the same places.
"""

import json
import sys

import numpy as np
import scipy.fft
import scipy.linalg


def values(pairs):
    flat = np.asarray(pairs, dtype=float)
    return flat[..., 0] + 1j * flat[..., 1]


def pairs(array):
    return np.stack([array.real, array.imag], axis=-1).tolist()


def transform(case):
    samples = values(case)
    both = (scipy.fft.fft, scipy.fft.ifft)
    return [pairs(turn(samples, norm="ortho")) for turn in both]


def equalise(case):
    """MMSE: the weights that solve (H^H H + s I) W = H^H, what they make of the received values, and the mean gain of each layer."""
    channels = np.moveaxis(values(case["channels"]).reshape(4, 4, -1), 2, 0)
    received = values(case["received"]).T
    layers, gains = [], []
    for h, y in zip(channels, received):
        adjoint = h.conj().T
        weights = scipy.linalg.solve(adjoint @ h + case["noise"] * np.eye(4), adjoint, assume_a="her")
        layers.append(weights @ y)
        gains.append(np.diag(weights @ h).real)
    return {"layers": pairs(np.array(layers).T), "gains": np.mean(gains, axis=0).tolist()}


def constellation():
    """64-QAM by the formula that table 7.1.4-1 of TS 36.211 follows from."""
    bits = np.array([[point >> bit & 1 for bit in range(6)] for point in range(64)])
    sign = 1 - 2 * bits
    part = lambda a, b, c: sign[:, a] * (4 - sign[:, b] * (2 - sign[:, c]))
    return bits, (part(0, 2, 4) + 1j * part(1, 3, 5)) / np.sqrt(42)


def demap(case):
    bits, points = constellation()
    distance = np.abs(values(case["symbols"])[:, None] - points[None, :]) ** 2
    nearest = lambda bit, value: distance[:, bits[:, bit] == value].min(axis=1)
    return np.stack([(nearest(bit, 1) - nearest(bit, 0)) / case["noise"] for bit in range(6)], axis=1).tolist()


def reference(case):
    """Zadoff-Chu sequence with a cyclic shift (TS 36.211, sections 5.5.1 and 5.5.1.1, v = 0)."""
    width = case["width"]
    length = max(n for n in range(2, width + 1) if all(n % d for d in range(2, int(n**0.5) + 1)))
    root = int(length * (case["group"] + 1) / 31 + 0.5)
    m = np.arange(width) % length
    shift = 2 * np.pi * 3 * case["layer"] / 12 * np.arange(width)
    return pairs(np.exp(1j * (shift - np.pi * root * m * (m + 1) / length)))


def scrambling(case):
    """Gold sequence (TS 36.211, section 7.2)."""
    skipped, count = 1600, case["length"]
    x1, x2 = np.zeros((2, skipped + count + 31), dtype=np.uint8)
    x1[0] = 1
    x2[:31] = [case["initial"] >> bit & 1 for bit in range(31)]
    for n in range(skipped + count):
        x1[n + 31] = x1[n + 3] ^ x1[n]
        x2[n + 31] = x2[n + 3] ^ x2[n + 2] ^ x2[n + 1] ^ x2[n]
    return (x1 ^ x2)[skipped : skipped + count].tolist()


def checksum(case):
    """CRC-24A: the remainder of the block times D^24 (TS 36.212, section 5.1.1)."""
    exponents = [24, 23, 18, 17, 14, 11, 10, 7, 6, 5, 4, 3, 1, 0]
    polynomial = sum(1 << e for e in exponents)
    rest = int("0" + "".join(map(str, case)), 2) << 24
    while rest.bit_length() > 24:
        rest ^= polynomial << (rest.bit_length() - 25)
    return rest


def turbo(case):
    """Turbo code (TS 36.212, section 5.1.3.2): three streams with their tails."""
    bits, (f1, f2) = case["bits"], case["interleaver"]
    size = len(bits)
    order = [(f1 * i + f2 * i * i) % size for i in range(size)]

    def constituent(sent):
        s1 = s2 = s3 = 0
        parity, tail = [], []
        for step in range(size + 3):
            x = sent[step] if step < size else s2 ^ s3
            fed = x ^ s2 ^ s3
            z = fed ^ s1 ^ s3
            s1, s2, s3 = fed, s1, s2
            if step < size:
                parity.append(z)
            else:
                tail += [x, z]
        return parity, tail

    first, tail = constituent(bits)
    second, other = constituent([bits[i] for i in order])
    tails = tail + other
    return [s + tails[i::3] for i, s in enumerate([bits, first, second])]


KERNELS = [transform, equalise, demap, reference, scrambling, checksum, turbo]

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    known = {kernel.__name__: kernel for kernel in KERNELS}
    json.dump({name: [known[name](case) for case in cases] for name, cases in asked.items()}, sys.stdout)
