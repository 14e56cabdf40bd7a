"""Tensorwright's Python code inside a tuned wheel. It runs in users' environments, with the
standard library only, from Python 3.9 on."""
