"""A selection of kernels."""

from __future__ import annotations

from tfbuild.planning.selection import (
    Selection,
)
from tfcore.comparisons.kernels import KernelRow, TypedOp

TANH = TypedOp(op="Tanh", types="T=1")

ROW = KernelRow(
    op="Tanh",
    types="T=1",
    attributes="",
    shapes="float[128,512]",
    threads=1,
    share=0.02,
    stock_s=2e-5,
    tuned_s=1e-5,
    ratio=2.0,
    low=1.9,
    high=2.1,
    p=1e-6,
    confirmed=(2.0, 1.9, 2.1),
    kept=True,
)

SELECTION = Selection(
    made="2026-11-21T12:00:00+00:00",
    cpu="a CPU",
    release="2.14.1",
    target="skylake",
    plan_key="0" * 64,
    rate=0.05,
    kernels=("cwise_op_tanh",),
    flags={"tensorflow/core/kernels/cwise_op_tanh.cc": ("-O3",)},
    kept=(TANH,),
    rows=(ROW,),
)
