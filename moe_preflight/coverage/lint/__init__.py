"""Lint of tuned tables: a check per small function, a table of them in run.py, their texts in rules.py."""
