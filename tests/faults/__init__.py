"""Faults on purpose: `python -m tests.faults` kills, fills, cuts and flips, and prints what was survived."""
