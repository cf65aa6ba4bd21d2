"""`python -m records` (`make results`): docs/results.md and its figures from the records beside this file.

Text first: the page is a function of committed files, and a test makes it again and compares.
"""
