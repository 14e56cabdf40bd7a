from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.upstream.kernels import FOLDER, load_survey
from tfbuild.upstream.registrations import (
    _evaluate_condition,
    _find_closing,
    _split_arguments,
    find_ops,
    find_registrations,
    is_source,
    strip_comments,
)
from tfcore.settings import ROOT

SOURCE = f"{FOLDER}/x.cc"
HEADER = f"{FOLDER}/common.h"
REGISTER = "REGISTER_KERNEL_BUILDER(Name(#T).Device(DEVICE_CPU), Op);"


def found(text: str, header: str = "", **defines: str) -> list[str]:
    """The ops of a source, and of a header beside it."""
    texts = {SOURCE: strip_comments(text), HEADER: strip_comments(header)}
    return sorted(find_ops(SOURCE, texts, defines))


def test_a_plain_registration_is_read() -> None:
    assert found("""
        REGISTER_KERNEL_BUILDER(Name("Bincount")
                                    .Device(DEVICE_CPU)
                                    .TypeConstraint<int64_t>("T"),
                                BincountOp<CPUDevice, int64_t>);
        REGISTER_SYSTEM_KERNEL_BUILDER(Name("Set").Device(::tensorflow::DEVICE_CPU), SetOp);
        """) == ["Bincount", "Set"]


@pytest.mark.parametrize("device", ["DEVICE_GPU", "DEVICE_DEFAULT", '"XLA_CPU"', "DEVICE_TPU"])
def test_other_devices_are_left_out(device: str) -> None:
    assert found(f'REGISTER_KERNEL_BUILDER(Name("Add").Device({device}), AddOp);') == []


def test_what_the_gpu_build_registers_is_left_out() -> None:
    text = """
        #if GOOGLE_CUDA || TENSORFLOW_USE_ROCM
        REGISTER_KERNEL_BUILDER(Name("A").Device(DEVICE_CPU), X);
        #elif defined(INTEL_MKL) && !defined(OTHER)
        REGISTER_KERNEL_BUILDER(Name("B").Device(DEVICE_CPU), X);
        #else
        REGISTER_KERNEL_BUILDER(Name("C").Device(DEVICE_CPU), X);
        #endif
        #ifndef OTHER
        REGISTER_KERNEL_BUILDER(Name("D").Device(DEVICE_CPU), X);
        #endif
        """
    assert found(text) == ["C", "D"]
    assert found(text, INTEL_MKL="1") == ["B", "D"]
    assert found(text, GOOGLE_CUDA="1", OTHER="1") == ["A"]


def test_names_that_macros_make_are_made() -> None:
    """As scatter_op.cc, stateful_random_ops.cc and cwise_op_add_1.cc write them."""
    assert found(
        """
        #include "tensorflow/core/kernels/common.h"
        #define REGISTER_SCATTER(type, dev, name, kind) \\
          REGISTER_KERNEL_BUILDER(Name(name).Device(DEVICE_##dev), Op<dev##Device, type, kind>)
        #define REGISTER_SCATTER_CPU(type) \\
          REGISTER_SCATTER(type, CPU, "Scatter" "Add", Kind::ADD); \\
          REGISTER_SCATTER(type, GPU, "ScatterSub", Kind::SUB);
        TF_CALL_REAL(REGISTER_SCATTER_CPU);
        #undef REGISTER_SCATTER_CPU
        #define REGISTER_SCATTER_CPU(type) REGISTER_SCATTER(type, CPU, "Never", Kind::ADD)
        REGISTER2(Binary, CPU, Stateful, functor::add, float, (Two<int, char>));
        """,
        """
        #define TF_CALL_float(m) m(float)
        #define TF_CALL_REAL(m) TF_CALL_float(m) TF_CALL_float(m)
        #define REGISTER(OP, D, N, F, T) \\
          REGISTER_KERNEL_BUILDER(Name(#N "V2").Device(DEVICE_##D), OP<D##Device, F<T>>);
        #define REGISTER2(OP, D, N, F, ...) REGISTER(OP, D, N, F, __VA_ARGS__)
        """,
    ) == ["ScatterAdd", "StatefulV2"]


def test_names_that_are_constants_are_looked_up() -> None:
    assert found("""
        /* static */ constexpr const char* const ArgOp::kArgOp = "Wrong";
        constexpr char kName[] = "ParallelMapDataset";
        static constexpr const char* const kArgOp = "_Arg";
        REGISTER_KERNEL_BUILDER(Name(kName).Device(DEVICE_CPU), X);
        REGISTER_KERNEL_BUILDER(Name(ArgOp::kArgOp).Device(DEVICE_CPU), X);
        REGISTER_KERNEL_BUILDER(Name(kUnknown).Device(DEVICE_CPU), X);
        """) == ["ParallelMapDataset", "_Arg"]


def test_a_macro_that_calls_itself_ends() -> None:
    assert found("""
        #define LOOP(x) LOOP(x) REGISTER_KERNEL_BUILDER(Name(#x).Device(DEVICE_CPU), X)
        LOOP(A)
        #define OPEN(x
        OPEN(
        """) == ["A"]


def test_a_macro_is_not_replaced_in_what_it_was_replaced_with() -> None:
    """Each call would become two, forty times over."""
    text = f"#define TWICE(T) {REGISTER} TWICE(T) TWICE(T)\nTWICE(X);"
    assert found(text) == ["X"]
    mutual = f"#define A(T) B(T) B(T) {REGISTER}\n#define B(T) A(T) A(T)\nA(Y);"
    assert found(mutual) == ["Y"]


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("1", True),
        ("0", False),
        ("UNKNOWN", False),
        ("defined(A)", True),
        ("!defined B && A == 1", True),
        ("(A >= 2) || defined(B)", False),
        ("A(", False),
        ("__has_include(<x>)", False),
    ],
)
def test_conditions_are_computed(condition: str, value: bool) -> None:
    text = f"""
        #define A 1
        #if {condition}
        REGISTER_KERNEL_BUILDER(Name("Op").Device(DEVICE_CPU), X);
        #endif
        """
    assert found(text) == (["Op"] if value else [])
    assert _evaluate_condition("0", {}) is False


@given(st.text(alphabet='#define()",\\ \nNAME/*if', max_size=80))
def test_any_text_is_gone_through(text: str) -> None:
    assert isinstance(find_ops(SOURCE, {SOURCE: text}, {}), frozenset)


@given(st.lists(st.text(alphabet="ab<> ", min_size=1, max_size=5), min_size=1, max_size=5))
def test_arguments_come_apart_as_they_were_joined(arguments: list[str]) -> None:
    stripped = [argument.strip() for argument in arguments]
    assert list(_split_arguments(",".join(arguments))) == stripped
    call = f"({','.join(arguments)})"
    assert _find_closing(call + " tail )", 0) == len(call) - 1


def test_commas_in_brackets_and_literals_separate_nothing() -> None:
    assert list(_split_arguments('A, (B<c, d>), "e, (f", g(h, i)')) == [
        *("A", "(B<c, d>)", '"e, (f"', "g(h, i)")
    ]


def test_a_tree_is_read_without_tests_comments_and_gpu_code(tmp_path: Path) -> None:
    tree = tmp_path
    call = 'REGISTER_KERNEL_BUILDER(Name("{}").Device(DEVICE_CPU), X); // REGISTER\n'
    files = {
        f"{FOLDER}/a_op.cc": call.format("A") + "/* " + call.format("Commented") + "*/",
        f"{FOLDER}/sub/b_op.cc": call.format("B") + call.format("A"),
        f"{FOLDER}/helper.cc": 'const char* url = "http://x"; // nothing',
        f"{FOLDER}/a_op_test.cc": call.format("Test"),
        f"{FOLDER}/a_gpu.cu.cc": call.format("Gpu"),
        f"{FOLDER}/mkl/m.cc": call.format("Mkl"),
        **{
            f"tensorflow/core/framework/{n}.h": ""
            for n in ("register_types", "dataset", "function")
        },
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    table = find_registrations(tree)
    assert table == {"a_op.cc": ("A",), "helper.cc": (), "sub/b_op.cc": ("A", "B")}
    assert strip_comments('f("http://x"); // y') == 'f("http://x");  '


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("relu_op.cc", True),
        ("linalg/svd_op_double.cc", True),
        ("relu_op_test.cc", False),
        ("relu_op_gpu.cu.cc", False),
        ("mkl/mkl_relu_op.cc", False),
        ("fuzzing/add_fuzz.cc", False),
    ],
)
def test_what_counts_as_a_kernel_source(name: str, expected: bool) -> None:
    assert is_source(name) is expected


RECORDED = json.loads((ROOT / "tests" / "data/registered-2.14.1.json").read_text("utf-8"))


@pytest.mark.parametrize("source", RECORDED)
def test_the_table_says_what_compiled_sources_really_register(source: str) -> None:
    """Recorded in TensorFlow 2.14.1: what the registry had more once a library was loaded."""
    assert list(load_survey("2.14.1")[source].ops) == RECORDED[source]
