#!/usr/bin/env python3
"""Counts the words of standard input: the most frequent ones, as many as the first argument says (10)."""
import collections
import sys

count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
words = collections.Counter(sys.stdin.read().lower().split())
if not words:
    sys.exit("there are no words in the input")
for word, number in words.most_common(count):
    print(f"{number:6} {word}")
