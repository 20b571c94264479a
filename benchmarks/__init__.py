"""Attention timed and weighed beside its rivals. `python -m benchmarks --help` tells the options.

rivals   who is compared, on which numbers, and the proof that all compute the same
measure  times side by side, bytes, slopes
record   the data file that chapters draw from
"""
