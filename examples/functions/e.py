#!/usr/bin/env python3
"""Prints Euler's number with as many decimals as the first argument says (100), from the series of 1/k!."""
import sys


def main() -> None:
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # As many digits as asked for.
    decimals = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    scale = 10 ** (decimals + 10)
    total, term, k = 0, scale, 0
    while term:
        total += term
        k += 1
        term //= k
    digits = str(total // 10**10)
    print(f"{digits[0]}.{digits[1:]}")


main()
