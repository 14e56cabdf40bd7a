"""What is known of a wheel's admission, and what may be done with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.conformance_records import SHA, UNIT, record, trial
from tests.builders.index_wheels import tuned_for

from tfbuild.kernelbuild.admission import RefusedKernel, UnitVerdict
from tfbuild.kernelbuild.finished_wheels import convert_verdict
from tfbuild.packing import conformance
from tfbuild.packing.conformance import (
    ConformanceRecord,
    ConformanceStatus,
    UnitOutcome,
    describe,
    list_statuses,
)
from tfbuild.packing.tuned import Tuned, UnitConformance
from tfcore.errors import AdmissionError, KernelError, RecordError

BAD = UnitOutcome(reason="Tanh T=1: Tanh(…): 9e+05 ULPs from the stock kernel")


def built(*targets: str, ran_as: str = "") -> Tuned:
    """What a wheel says whose kernels were run as compiled for their own target, or for another."""
    facts = tuned_for(targets)
    if not ran_as:
        return facts
    admission = {UNIT: UnitConformance(ran_as=ran_as, ops=("Tanh",))}
    libraries = (dataclasses.replace(library, admission=admission) for library in facts.libraries)
    return dataclasses.replace(facts, libraries=tuple(libraries))


def test_a_record_comes_back_for_the_same_bytes_only(tmp_path: Path) -> None:
    wheel = tmp_path / "a-2.14.1+x.y-cp311-z.whl"
    assert conformance.read_record(wheel, SHA) is None
    path = conformance.save_record(wheel, record(zen4=trial(), zen3=trial(BAD)))
    assert path.name == "a-2.14.1+x.y-cp311-z.admitted.json"
    assert conformance.read_record(wheel, SHA) == record(zen4=trial(), zen3=trial(BAD))
    assert conformance.read_record(wheel, "b" * 64) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "wheel": 3}'])
def test_a_torn_record_is_an_error_with_a_remedy(text: str, tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    conformance.get_record_path(wheel).write_text(text)
    with pytest.raises(RecordError) as caught:
        conformance.read_record(wheel, SHA)
    assert caught.value.hint == "Delete it, then run invoke admit again"


def test_the_records_of_two_machines_become_one() -> None:
    conformance_record = conformance.merge_records(
        record(zen4=trial(cpu="one")), record(zen3=trial(cpu="two"))
    )
    assert conformance_record == record(zen4=trial(cpu="one"), zen3=trial(cpu="two"))


def test_of_one_target_the_newer_trial_counts_and_of_other_bytes_nothing() -> None:
    old = record(zen4=trial(BAD), zen3=trial())
    assert conformance.merge_records(old, record(zen4=trial())).targets["zen4"] == trial()
    new = record("b" * 64, zen4=trial())
    assert conformance.merge_records(old, new) == new
    assert conformance.merge_records(None, new) == new


@pytest.mark.parametrize(
    ("facts", "conformance_record", "proven", "message"),
    [
        (built("zen4"), None, True, "passed the conformance test on its own target"),
        (
            built("zen4", ran_as="zen3"),
            None,
            False,
            "passed the conformance test as zen3; conformance record: none",
        ),
        (
            built("zen4", ran_as="zen3"),
            record(zen4=trial()),
            True,
            "passed the conformance test as zen3; conformance record: passed on A CPU",
        ),
        (
            built("zen4", ran_as="zen3"),
            record(zen4=trial(BAD)),
            False,
            (
                "passed the conformance test as zen3; conformance record: "
                "cwise_op_tanh failed on A CPU"
            ),
        ),
        (
            built("zen4"),
            record(zen4=trial(BAD)),
            False,
            (
                "passed the conformance test on its own target; conformance record: "
                "cwise_op_tanh failed on A CPU"
            ),
        ),
        (
            built("zen4", ran_as="zen3"),
            record(zen4=dataclasses.replace(trial(), units={})),
            False,
            "passed the conformance test as zen3; conformance record: passed on A CPU",
        ),
    ],
)
def test_what_counts_as_admitted(
    facts: Tuned, conformance_record: ConformanceRecord | None, proven: bool, message: str
) -> None:
    (conformance_status,) = list_statuses(facts, conformance_record)
    assert (conformance_status.proven, describe(conformance_status)) == (proven, message)


def test_each_library_of_a_fleet_stands_for_itself() -> None:
    facts = built("zen4", "haswell", ran_as="haswell")
    assert [status.proven for status in list_statuses(facts, None)] == [False, True]


def refused(facts: Tuned, conformance_record: ConformanceRecord | None) -> AdmissionError:
    with pytest.raises(AdmissionError) as caught:
        conformance.check_proven(Path("wheels/a.whl"), list_statuses(facts, conformance_record))
    return caught.value


def test_a_wheel_that_never_ran_on_its_target_is_refused_with_the_command() -> None:
    error = refused(built("zen4", ran_as="zen3"), None)
    assert error.exit_code == 41
    assert error.message == (
        "a.whl has kernels that were not tested on their own target: "
        "zen4 passed the conformance test as zen3; conformance record: none"
    )
    assert error.hint == "Run invoke admit wheels/a.whl on a CPU that runs zen4"


def test_a_wheel_with_a_kernel_that_failed_is_refused_with_its_name() -> None:
    error = refused(built("zen4"), record(zen4=trial(BAD)))
    assert error.message.startswith(
        "a.whl is refused: kernel group cwise_op_tanh failed the conformance test on zen4: "
    )
    assert "--without cwise_op_tanh" in error.hint


def test_what_was_proven_goes_on() -> None:
    conformance_statuses = list_statuses(built("zen4", ran_as="zen3"), record(zen4=trial()))
    conformance.check_proven(Path("a.whl"), conformance_statuses)
    conformance.check_proven(Path("a.whl"), ())
    conformance.check_trials("a.whl", record(zen4=trial()).targets)


def test_kernels_that_fail_are_named_and_the_remedy_is_said() -> None:
    conformance_trials = record(zen4=trial(BAD)).targets
    with pytest.raises(KernelError, match=f"a.whl: {UNIT} failed the conformance test") as caught:
        conformance.check_trials("a.whl", conformance_trials)
    assert caught.value.exit_code == 20
    assert f"--without {UNIT}" in caught.value.hint


def test_a_registered_kernel_may_not_be_refused() -> None:
    lost = RefusedKernel(op="Tanh", types="T=1", reason="9 ULPs from the stock kernel")
    assert convert_verdict(UnitVerdict(unit=UNIT, cases=3, ulps={"Tanh": 1.0})) == UnitOutcome(
        cases=3, ulps={"Tanh": 1.0}
    )
    assert (
        convert_verdict(UnitVerdict(unit=UNIT, refused=(lost,))).reason
        == f"Tanh T=1: {lost.reason}"
    )
    assert (
        convert_verdict(UnitVerdict(unit=UNIT, reason="SIGILL", refused=(lost,))).reason == "SIGILL"
    )


def test_a_full_build_has_nothing_to_admit() -> None:
    whole = dataclasses.replace(tuned_for(()), libraries=())
    assert list_statuses(whole, None) == ()
    assert ConformanceStatus(target="x", ran_as=("x",), trial=None, proven=True).failed == {}
