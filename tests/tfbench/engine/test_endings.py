from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.engine.endings import find_explanation

GRAPH = """
Traceback (most recent call last):
  File "training.py", line 1, in run
    raise error
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'model/embedding' defined at (most recent call last):
  File "layer.py", line 272, in call

  File "embedding.py", line 3, in call

indices[0,0] = 9 is not in [0, 4)
\t [[{{node model/embedding}}]] [Op:__inference_run_407]
"""
KERNEL = """
InvalidArgumentError: Graph execution error:

Value for attr 'T' of bfloat16 is not allowed
\t; NodeDef: {{node conv2d/Relu}}; Op<name=_FusedConv2D; signature=input:T>
\t [[conv2d/Relu]] [Op:__inference_run_466]
"""
SEVERAL = """
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

2 root error(s) found.
  (0) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 4)
\t [[{{node GatherV2}}]]
\t [[Sum/_6]]
  (1) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 4)
\t [[{{node GatherV2}}]]
0 successful operations.
0 derived errors ignored. [Op:__inference_f_18]
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        (GRAPH, "InvalidArgumentError: indices[0,0] = 9 is not in [0, 4)"),
        (
            KERNEL,
            "InvalidArgumentError: Value for attr 'T' of bfloat16 is not allowed",
        ),
        (SEVERAL, "InvalidArgumentError: INVALID_ARGUMENT: indices[0] = 9 is not in [0, 4)"),
        ("Traceback\n  File x\nValueError: no weights\n\n", "ValueError: no weights"),
        ("2026: F tensor.cc:5] Check failed: a == b (1 vs. 2)\n*** stack\n", None),
        ("ValueError: caught\nterminate called after throwing 'dnnl::error'\n", None),
        ("\x1b[1mKilled\x1b[0m\n", "Killed"),
        ("2026-11-27 22:03:55.673976: I tensorflow/core/x.cc:1] oneDNN is on\n", ""),
    ],
)
def test_the_line_that_explains_an_end_is_found(output: str, line: str | None) -> None:
    explanation = find_explanation(output)
    assert explanation == line or (
        line is None and explanation in output and "[[" not in explanation
    )
    assert ("Check failed" in explanation) == ("Check failed" in output)
    assert ("terminate" in explanation) == ("terminate" in output)


@given(st.text())
def test_whatever_a_worker_prints_one_line_is_said(output: str) -> None:
    explanation = find_explanation(output)
    assert len(explanation.splitlines()) <= 1
    assert not explanation or output.strip()
