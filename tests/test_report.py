"""Whole printed reports: a gain, no gain, no answer, and a wheel that computes something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from tests.test_comparison import comparison, measured
from tfbench.report import headlines, markdown, table, title, warnings
from tfbench.results import Comparison
from tfbench.statistics import Interval, Verdict

TEMPLATES = Path(__file__).parents[1] / "templates"
