from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.watching import diagnosis
from tfbuild.watching.attempt import Attempt
from tfbuild.watching.diagnosis import Cause, Diagnosis, diagnose, explain, plan_next_attempt
from tfbuild.watching.events import BuildFailure, BuildOutcome, read_outcome
from tfcore.settings import ROOT

RECORDED = ROOT / "tests" / "data" / "events"
FIRST = Attempt(jobs=8)
XNNPACK = "@XNNPACK//:XNNPACK"
WHEEL = "//tensorflow/tools/pip_package:wheel"
FAR = "http://127.0.0.1:8080/far.tar.gz"


def log_of(name: str) -> str:
    return (RECORDED / f"{name}.log").read_text()


def failed(kind: str = "CppCompile", **details: object) -> BuildOutcome:
    failure = BuildFailure(label="//a:b", kind=kind, **{"exit_code": 1, **details})  # type: ignore[arg-type]
    return BuildOutcome(finished=True, exit_code=1, exit_name="BUILD_FAILURE", failures=(failure,))


SEEN = [
    ("killed", Cause.MEMORY, XNNPACK, ""),
    ("killed_7", Cause.MEMORY, "//:die", ""),
    ("heap", Cause.MEMORY, "", ""),
    ("flag", Cause.FLAG, XNNPACK, "-mavx512fp99"),
    ("sigill", Cause.HOST_TOOL, "//tensorflow/core:table", ""),
    ("compile", Cause.COMPILE, "//tensorflow/core:ops", ""),
    ("link", Cause.LINK, "//tensorflow/core:op_gen", ""),
    ("target", Cause.TARGET, WHEEL, WHEEL),
    ("config", Cause.CONFIG, "", "numa"),
    ("option", Cause.OPTION, "", "--no_such_option=1"),
    ("download", Cause.DOWNLOAD, "//external:far", FAR),
    ("checksum", Cause.CHECKSUM, "//external:far", FAR),
    ("executor", Cause.REMOTE, "", ""),
    ("disk", Cause.DISK, "//tensorflow/core:big", ""),
]


@pytest.mark.parametrize(("name", "cause", "label", "detail"), SEEN)
def test_builds_that_really_failed(name: str, cause: Cause, label: str, detail: str) -> None:
    failure = diagnose(read_outcome(RECORDED / f"{name}.json"), log_of(name))
    assert (failure.cause, failure.label, failure.what) == (cause, label, detail)
    assert failure.deciding_line
    message, hint = explain(failure)
    assert "\n" not in message
    assert failure.deciding_line in message
    assert hint == failure.remedy


@pytest.mark.parametrize(("name", "cause"), [row[:2] for row in SEEN])
def test_the_log_alone_tells_the_cause(name: str, cause: Cause) -> None:
    """A Bazel that died may leave no events."""
    assert diagnose(None, log_of(name)).cause is cause


@pytest.mark.parametrize(
    ("line", "cause", "detail"),
    [
        ("clang: error: unable to execute command: Killed", Cause.MEMORY, ""),
        ("g++: fatal error: Killed signal terminated program cc1plus", Cause.MEMORY, ""),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]", Cause.MEMORY, ""),
        ("virtual memory exhausted: Cannot allocate memory", Cause.MEMORY, ""),
        ("Server terminated abruptly (error code: 14, error message: '')", Cause.MEMORY, ""),
        ("ld: final link failed: No space left on device", Cause.DISK, ""),
        (
            "gcc: error: unrecognized command-line option ‘-mavxvnniint8’; did you mean",  # noqa: RUF001
            Cause.FLAG,
            "-mavxvnniint8",
        ),
        ("gcc: error: unrecognized command line option '-mgfni'", Cause.FLAG, "-mgfni"),
        ("clang: error: unsupported argument 'zen9' to option '-march='", Cause.COMPILE, ""),
        ("cc1: error: bad value ('znver9') for '-march=' switch", Cause.FLAG, "znver9"),
        (
            "cc1: error: invalid feature modifier ‘i8mm’ in ‘-march=armv8.2-a+i8mm’",  # noqa: RUF001
            Cause.FLAG,
            "i8mm",
        ),
        ("x.o: relocation truncated to fit: R_X86_64_PC32 against `.bss'", Cause.LINK, ""),
        ("ld.lld: error: undefined symbol: absl::Now()", Cause.LINK, ""),
        ("a.cc:1:1: fatal error: 'x.h' file not found", Cause.COMPILE, ""),
    ],
)
def test_what_compilers_and_linkers_say(line: str, cause: Cause, detail: str) -> None:
    failure = diagnose(failed(stderr=f"In file included from a.h:\n{line}\n"), "")
    assert (failure.cause, failure.label, failure.what) == (cause, "//a:b", detail)
    assert failure.deciding_line == line.translate(diagnosis._QUOTES)


@pytest.mark.parametrize(
    ("line", "cause", "detail"),
    [
        (
            "ERROR: The project you're trying to build requires Bazel 6.1.0 (specified in /x)",
            Cause.BAZEL_VERSION,
            "6.1.0",
        ),
        ("ERROR: Please downgrade your bazel installation to version 3", Cause.BAZEL_VERSION, ""),
        ("ERROR: While parsing option --jobs=x: not an int", Cause.OPTION, "--jobs=x"),
        ("ERROR: build interrupted", Cause.INTERRUPTED, ""),
        ("ERROR: /t/BUILD:1:1: Compiling a.cc failed: (Timeout)", Cause.TIMEOUT, ""),
        ("FAIL: //a:t (see /t/test.log)", Cause.TEST, "//a:t"),
        ("ERROR: something that nobody has seen", Cause.UNKNOWN, ""),
    ],
)
def test_what_bazel_says(line: str, cause: Cause, detail: str) -> None:
    failure = diagnose(BuildOutcome(finished=False), f"INFO: Found 1 target...\n{line}\n")
    assert (failure.cause, failure.what) == (cause, detail)
    assert failure.deciding_line == line.removeprefix("ERROR: ")


def test_a_mirror_that_was_down_before_another_served_is_no_cause() -> None:
    """Each build of TensorFlow warns of some."""
    warning = (
        "WARNING: Download from https://mirror.example/a.zip failed: class"
        " java.io.FileNotFoundException GET returned 404 Not Found\n"
    )
    failure = diagnose(failed(message="clang failed"), f"{warning}{log_of('compile')}\n{warning}")
    assert failure.cause is Cause.COMPILE
    failure = diagnose(read_outcome(RECORDED / "cache_down.json"), log_of("cache_down"))
    assert failure.cause not in {Cause.REMOTE, Cause.DOWNLOAD}


def test_the_first_failure_decides() -> None:
    """With --keep_going there are many, and the log has them all."""
    first = BuildFailure(
        label="//a:b", kind="CppCompile", exit_code=1, stderr="a.cc:1: error: no x"
    )
    second = BuildFailure(label="//c:d", kind="CppCompile", exit_code=137)
    failure = diagnose(
        BuildOutcome(finished=True, exit_code=1, failures=(first, second)), log_of("killed")
    )
    assert (failure.cause, failure.label) == (Cause.COMPILE, "//a:b")


@pytest.mark.parametrize(
    ("number", "cause"), [(137, Cause.MEMORY), (132, Cause.HOST_TOOL), (139, Cause.UNKNOWN)]
)
def test_a_signal_is_a_cause_without_a_word(number: int, cause: Cause) -> None:
    failure = diagnose(failed(exit_code=number), "")
    assert (failure.cause, failure.label) == (cause, "//a:b")


@pytest.mark.parametrize(
    ("name", "cause"),
    [("OOM_ERROR", Cause.MEMORY), ("REMOTE_ERROR", Cause.REMOTE), ("ODD", Cause.UNKNOWN)],
)
def test_bazels_own_exit_is_asked_last(name: str, cause: Cause) -> None:
    assert diagnose(BuildOutcome(finished=True, exit_code=33, exit_name=name), "").cause is cause


@pytest.mark.parametrize("outcome", [None, BuildOutcome(finished=False)])
def test_a_build_that_just_stopped_was_stopped(outcome: BuildOutcome | None) -> None:
    failure = diagnose(outcome, "INFO: Found 1 target...\n[3 / 9] Compiling a.cc\n")
    assert failure.cause is Cause.INTERRUPTED
    assert plan_next_attempt(FIRST, failure) is None


def test_a_message_holds_no_password_and_no_command() -> None:
    line = "Error downloading [https://me:secret@host/a.zip] to /output/a.zip: Connection refused"
    failure = diagnose(failed(kind="LOADING_FAILURE", message=line), "")
    assert "secret" not in repr(failure)
    assert failure.what == "https://host/a.zip"
    message, _ = explain(diagnose(failed(exit_code=137), log_of("killed")))
    assert message.endswith("Compiling src/vmul.cc failed: (Killed): clang-16 failed")


@given(st.text(), st.text())
def test_any_text_has_a_diagnosis(stderr: str, log: str) -> None:
    for failure in (diagnose(failed(stderr=stderr), log), diagnose(None, log)):
        assert failure.remedy
        assert len(failure.deciding_line) <= 300


# Remedies -----------------------------------------------------------------------------------------


def because(cause: Cause, detail: str = "", deciding_line: str = "") -> Diagnosis:
    return diagnosis._build_diagnosis(cause, label="//a:b", line=deciding_line, detail=detail)


def test_out_of_memory_halves_the_jobs_down_to_one() -> None:
    attempt: Attempt | None = FIRST
    jobs = []
    while attempt is not None:
        jobs.append(attempt.jobs)
        attempt = plan_next_attempt(attempt, because(Cause.MEMORY))
    assert jobs == [8, 4, 2, 1]


def test_a_flag_switches_off_the_kernels_that_need_it_once() -> None:
    failure = because(Cause.FLAG, "-mavx512fp16")
    assert failure.remedy == "Use --define xnn_enable_avx512fp16=false"
    again = plan_next_attempt(replace(FIRST, defines=("a=b",)), failure)
    assert again == replace(FIRST, defines=("a=b", "xnn_enable_avx512fp16=false"))
    assert (
        plan_next_attempt(again, failure) is None
    )  # it was switched off, and somebody else uses the flag


def test_every_kernel_that_needs_a_flag_is_switched_off() -> None:
    attempt = plan_next_attempt(FIRST, because(Cause.FLAG, "-mgfni"))
    assert attempt is not None
    assert {"xnn_enable_avxvnni=false", "xnn_enable_avx512amx=false"} <= set(attempt.defines)


def test_a_download_is_tried_three_more_times() -> None:
    attempt, failure = FIRST, because(Cause.DOWNLOAD, FAR, "Error downloading: Connection refused")
    for fetches in (1, 2, 3):
        again = plan_next_attempt(attempt, failure)
        assert again == replace(FIRST, fetches=fetches)
        attempt = again
    assert plan_next_attempt(attempt, failure) is None


@pytest.mark.parametrize("message", ["GET returned 404 Not Found", "PKIX path building failed"])
def test_an_answer_that_stays_the_same_is_not_asked_for_again(message: str) -> None:
    assert plan_next_attempt(FIRST, because(Cause.DOWNLOAD, FAR, message)) is None


@pytest.mark.parametrize("cause", list(Cause))
def test_each_cause_says_what_to_do_and_no_attempt_repeats_itself(cause: Cause) -> None:
    failure = because(cause, "-what")
    assert failure.remedy
    assert "{" not in failure.remedy
    assert explain(failure)[0]
    assert plan_next_attempt(FIRST, failure) != FIRST
