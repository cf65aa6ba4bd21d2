"""`python -m benchmarks [--only step,bank]`: the engine against the plain way of doing the same, as ratios.

Each contender lives in a process of its own (allocators differ) and they take turns: A, B, A, B, ... A row's value is
the median over the rounds of the ratio of one round.
"""
