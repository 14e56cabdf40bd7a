from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import report_comparisons
from tests.builders.comparisons import spread
from tests.builders.index_wheels import full_build_for, tuned_for

from tfbench.arms.arm import TOLERANCE
from tfbuild.kernelbuild.random_trials import FILE as RANDOM_PROGRAMS
from tfbuild.kernelbuild.random_trials import FamilyCount, ResultSearch
from tfbuild.upstream.download import hash_file
from tfcore import records
from tfcore.comparisons.comparison import FILE as COMPARISON
from tfcore.comparisons.comparison import ArmFailure, Comparison, load, save
from tfcore.comparisons.deciding import decide
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.cpus.targets import parse_target
from tfcore.errors import GateError, RecordError
from tfcore.records import format_canonical
from tfwheels import gate
from tfwheels.gate import (
    find_comparisons,
    format_comparison_name,
    judge_comparisons,
    require_passed,
    require_searched,
    serialize_public,
)

FILE = "tensorflow_cpu-2.14.1+skylake-cp311-cp311-manylinux_2_17_x86_64.whl"
SHA256 = "ab" * 32
TUNED = tuned_for(("skylake",))
FLEET = tuned_for(("skylake_avx512", "skylake"))
SKYLAKE = parse_target("skylake").features
FASTER = spread(1.2, 0.01)
NO_DIFFERENCE = spread(1.001, 0.004)
UNKNOWN = spread(1.0, 0.08)
LOSS = spread(0.9, 0.01)


def of_the_wheel(comparison: Comparison, **tuned: object) -> Comparison:
    """The comparison as if its arms were the stock wheel and ours, on a Skylake."""
    own_record = {"wheel_sha256": SHA256, "raised_kernels": 404} | tuned
    arms = tuple(
        dataclasses.replace(arm, wheel_sha256=TUNED.stock_sha256)
        if arm.name == "stock"
        else dataclasses.replace(arm, **own_record)  # type: ignore[arg-type]
        if arm.name == "tuned"
        else arm
        for arm in comparison.arms
    )
    cpu = dataclasses.replace(comparison.host.cpu, features=SKYLAKE)
    return dataclasses.replace(
        comparison, arms=arms, host=dataclasses.replace(comparison.host, cpu=cpu)
    )


def saved(folder: Path, comparison: Comparison, name: str = "one") -> Path:
    path = folder / name / COMPARISON
    save(path, decide(comparison))
    return path


def single(
    folder: Path,
    interval: Interval,
    name: str = "one",
    **tuned: Any,
) -> Path:
    return saved(folder, of_the_wheel(report_comparisons.single(interval), **tuned), name)


def test_an_arms_own_tolerance_is_what_the_gate_lets_pass() -> None:
    assert gate.PARITY == TOLERANCE


@pytest.mark.parametrize(("interval", "word"), [(FASTER, "faster"), (NO_DIFFERENCE, "equivalent")])
def test_a_wheel_that_is_as_fast_passes(tmp_path: Path, interval: Interval, word: str) -> None:
    judgement = require_passed(FILE, SHA256, TUNED, [single(tmp_path, interval)])
    (verdict,) = judgement.verdicts
    assert (verdict.verdict, verdict.cpu) == (word, "Example CPU @ 2.00GHz")
    assert verdict.speedup == pytest.approx(interval.value)
    assert verdict.low < verdict.speedup < verdict.high
    assert judgement.silent == ()


@pytest.mark.parametrize(("interval", "faults"), [(FASTER, 0), (NO_DIFFERENCE, 0), (LOSS, 2)])
def test_an_older_comparison_without_decisions_counts_as_much(
    tmp_path: Path, interval: Interval, faults: int
) -> None:
    comparison = of_the_wheel(report_comparisons.single(interval))
    older = tmp_path / "old" / COMPARISON
    save(older, comparison)
    path = saved(tmp_path, comparison)
    judgements = [judge_comparisons(FILE, SHA256, TUNED, [file]) for file in (older, path)]
    expected, actual = (
        [
            dataclasses.replace(verdict, file="", sha256="")  # those of other bytes
            for verdict in judgement.verdicts
        ]
        for judgement in judgements
    )
    assert expected == actual != []
    assert judgements[0].faults == judgements[1].faults
    assert len(judgements[0].faults) == faults


def test_the_verdict_names_the_file_that_is_published_beside_the_wheel(tmp_path: Path) -> None:
    judgement = require_passed(FILE, SHA256, TUNED, [single(tmp_path, FASTER)])
    (verdict,) = judgement.verdicts
    (name, content) = next(iter(judgement.published.items()))
    assert verdict.file == name == format_comparison_name(FILE, verdict.sha256)
    path = tmp_path / name
    path.write_bytes(content)
    assert hash_file(path) == verdict.sha256
    again = load(path)  # the benchmarks still read it
    assert again.overall[0].speedup.interval.value == verdict.speedup


def test_without_a_comparison_there_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(GateError) as caught:
        require_passed(FILE, SHA256, TUNED, [])
    advice = f"On a CPU that runs skylake, run: invoke compare --candidate wheels/{FILE}. "
    assert advice in str(caught.value)


def test_an_inconclusive_comparison_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"inconclusive .*2 vCPUs \(0\.9") as caught:
        require_passed(FILE, SHA256, TUNED, [single(tmp_path, UNKNOWN)])
    assert len(str(caught.value).splitlines()) == 1
    assert "--thorough" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"margin": 0.05}, "its --margin of 5.0% can hide losses of more than 2%"),
        ({"threshold": 0.05}, "its --threshold of 5.0% can hide losses of more than 2%"),
    ],
)
def test_what_hides_a_loss_is_no_verdict(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    same = of_the_wheel(report_comparisons.single(spread(1.001, 0.004)))
    assert require_passed(FILE, SHA256, TUNED, [saved(tmp_path, same)]).verdicts
    with pytest.raises(GateError, match="has no verdict") as caught:
        require_passed(FILE, SHA256, TUNED, [saved(tmp_path, dataclasses.replace(same, **fields))])
    assert message in caught.value.message


def test_a_gain_is_one_within_any_margin(tmp_path: Path) -> None:
    comparison = dataclasses.replace(of_the_wheel(report_comparisons.single(FASTER)), margin=0.05)
    assert require_passed(FILE, SHA256, TUNED, [saved(tmp_path, comparison)]).verdicts


def test_a_longer_comparison_gives_the_answer_that_a_short_one_had_not(tmp_path: Path) -> None:
    paths = [single(tmp_path, UNKNOWN), single(tmp_path, FASTER, "long")]
    judgement = require_passed(FILE, SHA256, TUNED, paths)
    assert [verdict.verdict for verdict in judgement.verdicts] == ["faster"]
    assert len(judgement.gaps) == 1


def test_a_loss_cannot_be_measured_away(tmp_path: Path) -> None:
    paths = [single(tmp_path, FASTER), single(tmp_path, LOSS, "old")]
    with pytest.raises(GateError, match=r"slower over all workloads .*\(0\.900x\)"):
        require_passed(FILE, SHA256, TUNED, paths)


def test_other_comparisons_refuse_a_wheel_and_give_no_verdict(tmp_path: Path) -> None:
    faster, loss = single(tmp_path, FASTER), single(tmp_path, LOSS, "old")
    with pytest.raises(GateError, match="slower over all workloads"):
        require_passed(FILE, SHA256, TUNED, [faster], [faster, loss])
    judgement = judge_comparisons(FILE, SHA256, TUNED, [faster], [faster, loss])
    assert [verdict.verdict for verdict in judgement.verdicts] == ["faster"]
    assert len(judgement.published) == 2
    assert len(judgement.evidence) == 1
    with pytest.raises(GateError, match="has no verdict: there is no comparison of it"):
        require_passed(FILE, SHA256, TUNED, [], [faster])


@pytest.mark.parametrize(("gain", "error"), [(1.4, "inference, not training"), (0.8, "slower in")])
def test_requests_can_refuse_a_wheel_and_are_no_verdict(
    tmp_path: Path, gain: float, error: str
) -> None:
    cell = dataclasses.replace(
        report_comparisons.cell("mnist_mlp", 2, {"tuned": gain}),
        workload="mnist_mlp:batch=1:clients=1",
    )
    arms = report_comparisons.two_arms()
    path = saved(tmp_path, of_the_wheel(report_comparisons.comparison(cell, arms=arms)))
    with pytest.raises(GateError, match=error):
        require_passed(FILE, SHA256, TUNED, [path])


def test_a_loss_in_one_workload_refuses_a_gain_in_the_mean(tmp_path: Path) -> None:
    cells = [
        report_comparisons.cell("mnist_mlp", 2, {"tuned": 0.9}),
        report_comparisons.cell("lstm_text", 2, {"tuned": 1.9}),
    ]
    arms = report_comparisons.two_arms()
    path = saved(tmp_path, of_the_wheel(report_comparisons.comparison(*cells, arms=arms)))
    with pytest.raises(GateError, match="slower in mnist_mlp") as caught:
        require_passed(FILE, SHA256, TUNED, [path])
    assert "over all workloads" not in str(caught.value)
    assert "--no-gate" in caught.value.hint
    judgement = judge_comparisons(FILE, SHA256, TUNED, [path])  # what --no-gate publishes
    assert [verdict.verdict for verdict in judgement.verdicts] == ["faster"]


def test_the_least_of_several_figures_is_the_one_that_is_published(tmp_path: Path) -> None:
    cells = [
        report_comparisons.cell("mnist_mlp", vcpus, {"tuned": gain})
        for vcpus, gain in ((1, 1.4), (2, 1.2))
    ]
    arms = report_comparisons.two_arms()
    comparison = of_the_wheel(report_comparisons.comparison(*cells, arms=arms))
    (verdict,) = require_passed(FILE, SHA256, TUNED, [saved(tmp_path, comparison)]).verdicts
    rows = [overall.speedup.interval.value for overall in comparison.overall]
    assert verdict.speedup == min(rows) < max(rows)


def test_other_arms_do_not_speak_for_the_wheel(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.sound())
    worse = [
        speedup.verdict
        for cell in comparison.cells
        for speedup in cell.speedups
        if speedup.arm == "control" and speedup.verdict is Verdict.SLOWER
    ]
    assert worse
    assert require_passed(FILE, SHA256, TUNED, [saved(tmp_path, comparison)]).verdicts


@pytest.mark.parametrize("predictions", [None, 0.5])
def test_a_wheel_that_computes_something_else_is_refused(
    tmp_path: Path, predictions: float | None
) -> None:
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    wrong = report_comparisons.disagreeing(comparison.cells[0], "tuned", predictions)
    path = saved(tmp_path, dataclasses.replace(comparison, cells=(wrong,)))
    with pytest.raises(GateError, match=r"results differ .*mnist_mlp"):
        require_passed(FILE, SHA256, TUNED, [path])


def test_a_tolerance_that_was_set_wide_does_not_open_the_gate(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    (agreement,) = comparison.cells[0].agreements
    wide = dataclasses.replace(agreement, predictions=0.4, tolerance=0.5)
    assert wide.agrees
    cell = dataclasses.replace(comparison.cells[0], agreements=(wide,))
    path = saved(tmp_path, dataclasses.replace(comparison, cells=(cell,)))
    with pytest.raises(GateError, match="results differ"):
        require_passed(FILE, SHA256, TUNED, [path])


def test_losses_that_differ_by_rounding_are_neither_a_fault_nor_a_verdict(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    (agreement,) = comparison.cells[0].agreements
    excused = dataclasses.replace(agreement, losses_by_rounding=0.02)
    assert excused.agrees
    cell = dataclasses.replace(comparison.cells[0], agreements=(excused,))
    path = saved(tmp_path, dataclasses.replace(comparison, cells=(cell,)), "amplifies")
    with pytest.raises(GateError, match=r"has no verdict: .*only rounding .*mnist_mlp"):
        require_passed(FILE, SHA256, TUNED, [path])
    assert require_passed(FILE, SHA256, TUNED, [path, single(tmp_path, FASTER)]).verdicts


def test_a_comparison_without_agreement_shows_no_parity(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    cell = dataclasses.replace(comparison.cells[0], agreements=())
    path = saved(tmp_path, dataclasses.replace(comparison, cells=(cell,)))
    with pytest.raises(GateError, match="no losses or predictions were compared"):
        require_passed(FILE, SHA256, TUNED, [path])


def test_a_worker_that_died_refuses_its_wheel_only(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.sound())
    for arm, refused in (("control", False), ("tuned", True)):
        first = report_comparisons.failed(comparison.cells[0], arm, "killed (signal 4)")
        cells = (first, *comparison.cells[1:])
        path = saved(tmp_path, dataclasses.replace(comparison, cells=cells), arm)
        faults = judge_comparisons(FILE, SHA256, TUNED, [path]).faults
        assert bool(faults) is refused
        assert all("mnist_mlp on 1 vCPU" in fault for fault in faults)


def unstarted(**failure: Any) -> Comparison:
    """A comparison of the wheel whose workers died in every cell, so no arm could report facts."""
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    fault = ArmFailure(arm="tuned", reason="Segmentation fault", wheel_sha256=SHA256)
    cell = report_comparisons.failed(comparison.cells[0], "tuned", fault.reason)
    cell = dataclasses.replace(
        cell,
        arms=(),
        agreements=(),
        speedups=(),
        noise=None,
        failures=(dataclasses.replace(fault, **failure),),
    )
    return dataclasses.replace(comparison, cells=(cell,), overall=(), arms=())


def test_a_wheel_whose_worker_never_started_is_refused(tmp_path: Path) -> None:
    faster = single(tmp_path, FASTER)
    crashed = saved(tmp_path, unstarted(), "two")
    assert {*find_comparisons(tmp_path, SHA256)} == {faster, crashed}
    with pytest.raises(GateError, match="its worker failed in mnist_mlp on 2 vCPUs"):
        require_passed(FILE, SHA256, TUNED, [faster, crashed])


def test_a_wheel_that_fails_beside_arms_that_start_is_refused(tmp_path: Path) -> None:
    comparison = unstarted()
    stock = of_the_wheel(report_comparisons.single(FASTER)).arms[0]
    path = saved(tmp_path, dataclasses.replace(comparison, arms=(stock,)))
    assert judge_comparisons(FILE, SHA256, TUNED, [path]).faults


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"env": (("LD_PRELOAD", "/libtcmalloc.so"),)}, "different settings"),
        ({"wheel_sha256": ""}, "compares other wheels"),  # as in older comparisons
        ({"wheel_sha256": "cd" * 32}, "compares other wheels"),
    ],
)
def test_a_failure_that_proves_nothing_about_the_wheel_is_a_gap(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    path = saved(tmp_path, unstarted(**changed))
    judgement = judge_comparisons(FILE, SHA256, TUNED, [path])
    assert (judgement.faults, judgement.verdicts) == ((), ())
    assert reason in judgement.gaps[0]


def test_a_failure_on_a_cpu_that_cannot_run_the_library_is_a_gap(tmp_path: Path) -> None:
    comparison = unstarted()
    cpu = dataclasses.replace(comparison.host.cpu, features=frozenset({"sse2"}))
    host = dataclasses.replace(comparison.host, cpu=cpu)
    path = saved(tmp_path, dataclasses.replace(comparison, host=host))
    judgement = judge_comparisons(FILE, SHA256, TUNED, [path])
    assert not judgement.faults
    assert "its CPU runs no code of skylake" in judgement.gaps[0]


def test_a_failure_of_an_older_comparison_is_read(tmp_path: Path) -> None:
    path = saved(tmp_path, unstarted())
    fields = json.loads(path.read_text("utf-8"))
    for name in ("wheel_sha256", "env"):
        del fields["cells"][0]["failures"][0][name]
    path.write_text(json.dumps(fields), "utf-8")
    assert load(path).cells[0].failures[0].wheel_sha256 == ""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"kernel_library": None}, "none of its kernels"),
        ({"kernel_library": "/arms/tuned/kernels/haswell.so"}, "none of its kernels"),
        ({"raised_kernels": 20}, "none of its kernels"),
        ({"env": (("TF_ENABLE_ONEDNN_OPTS", "1"),)}, "settings"),
        ({"wheel_sha256": "cd" * 32}, "compares other wheels"),
    ],
)
def test_what_is_not_about_the_wheels_kernels_is_no_verdict(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    for interval in (FASTER, LOSS):
        with pytest.raises(GateError, match=f"no verdict: .*{reason}"):
            require_passed(FILE, SHA256, TUNED, [single(tmp_path, interval, **changed)])


def test_a_baseline_that_is_not_the_stock_wheel_is_no_verdict(tmp_path: Path) -> None:
    path = single(tmp_path, FASTER)
    other_facts = dataclasses.replace(TUNED, stock_sha256="5" * 64)
    with pytest.raises(GateError, match="not the stock wheel"):
        require_passed(FILE, SHA256, other_facts, [path])


def test_a_cpu_that_cannot_run_the_library_is_no_verdict(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    cpu = dataclasses.replace(comparison.host.cpu, features=SKYLAKE - {"avx2"})
    host = dataclasses.replace(comparison.host, cpu=cpu)
    path = saved(tmp_path, dataclasses.replace(comparison, host=host))
    with pytest.raises(GateError, match="lacks avx2"):
        require_passed(FILE, SHA256, TUNED, [path])


def test_a_run_that_was_stopped_is_no_verdict(tmp_path: Path) -> None:
    stopped = dataclasses.replace(of_the_wheel(report_comparisons.single(FASTER)), complete=False)
    with pytest.raises(GateError, match="not finished"):
        require_passed(FILE, SHA256, TUNED, [saved(tmp_path, stopped)])


def test_a_fleet_needs_one_verdict_and_says_which_targets_have_none(tmp_path: Path) -> None:
    judgement = require_passed(FILE, SHA256, FLEET, [single(tmp_path, FASTER)])
    assert len(judgement.verdicts) == 1
    assert judgement.silent == ("skylake_avx512",)


def test_a_library_that_was_forced_in_a_fleet_is_judged_too(tmp_path: Path) -> None:
    forced = (("TENSORWRIGHT_TARGET", "skylake"),)
    assert require_passed(FILE, SHA256, FLEET, [single(tmp_path, FASTER, env=forced)]).verdicts


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": 1}', '{"schema": 2}', '{"schema": 2, "arms": 3}']
)
def test_a_file_that_is_no_comparison_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(text, "utf-8")
    with pytest.raises(RecordError, match=r"comparison\.json"):
        require_passed(FILE, SHA256, TUNED, [path])


def test_a_word_that_benchmarks_do_not_say_is_no_verdict(tmp_path: Path) -> None:
    path = single(tmp_path, FASTER)
    path.write_text(path.read_text("utf-8").replace('"faster"', '"splendid"'), "utf-8")
    with pytest.raises(RecordError, match=path.name):
        require_passed(FILE, SHA256, TUNED, [path])


def test_comparisons_of_the_wheel_are_found_the_newest_first(tmp_path: Path) -> None:
    comparison = of_the_wheel(report_comparisons.single(FASTER))
    for name, text in (("b", "2026-01-02T00:00:00+00:00"), ("a", "2026-03-01T00:00:00+00:00")):
        saved(tmp_path, dataclasses.replace(comparison, made=text), name)
    single(tmp_path, FASTER, "other", wheel_sha256="cd" * 32)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / COMPARISON).write_text("{", "utf-8")
    comparisons = find_comparisons(tmp_path, SHA256)
    assert [path.parent.name for path in comparisons] == ["a", "b"]
    assert find_comparisons(tmp_path / "nowhere", SHA256) == ()


def test_what_is_published_names_no_folder_and_no_user() -> None:
    comparison = of_the_wheel(
        report_comparisons.troubled(), kernel_library="/home/Ann Lee/arms/skylake.so"
    )
    cell = report_comparisons.failed(
        comparison.cells[0], "mkl", "no such file: '/srv/ann/data/x.npz'\n  in /srv/ann/run.py"
    )
    arm = dataclasses.replace(
        cell.arms[0], environment=(("LD_PRELOAD", "/usr/lib/a.so:/usr/lib/libjemalloc.so.2"),)
    )
    cell = dataclasses.replace(cell, arms=(arm, *cell.arms[1:]))
    comparison = dataclasses.replace(
        comparison, cells=(cell, *comparison.cells[1:]), parts=("/srv/ann/reports/one",)
    )
    text = serialize_public(comparison).decode()
    leaks = ("/home", "/arms", "/usr", "/ann", "Ann", "run.py")
    assert [leak for leak in leaks if leak in text] == []
    assert "a.so:libjemalloc.so.2" in text
    assert "no such file: 'x.npz'" in text
    assert '"parts":["one"]' in text


def test_the_published_form_is_one_text_for_one_comparison() -> None:
    comparison = of_the_wheel(
        report_comparisons.single(FASTER), label="for icelake+avx512_bf16/zen4"
    )
    text = serialize_public(comparison).decode()
    assert text == format_canonical(json.loads(text)) + "\n"
    assert "for icelake+avx512_bf16/zen4" in text


def test_what_is_published_gives_the_same_verdict_again(tmp_path: Path) -> None:
    """So an index can be rebuilt from what it holds."""
    first = require_passed(FILE, SHA256, TUNED, [single(tmp_path, FASTER)])
    ((name, content),) = first.published.items()
    path = tmp_path / name
    path.write_bytes(content)
    again = require_passed(FILE, SHA256, TUNED, [path])
    assert again.verdicts == first.verdicts
    assert again.published == first.published


@given(
    st.lists(st.from_regex(r"[a-z0-9_. ]{1,8}", fullmatch=True), min_size=2, max_size=4),
    st.sampled_from(
        ["{}", "see {}", "'{}'", "a={}:2", "({})", "file://{}", "cannot read ~{}\nmore"]
    ),
)
def test_no_path_stays_in_a_text(parts: list[str], sentence: str) -> None:
    path = "/" + "/".join(part.strip(". ") or "x" for part in parts)
    if " " in path and sentence != "{}":
        path = path.replace(" ", "_")
    comparison = report_comparisons.single(FASTER)
    published = serialize_public(dataclasses.replace(comparison, parts=(sentence.format(path),)))
    (shown,) = json.loads(published)["parts"]
    assert serialize_public(dataclasses.replace(comparison, parts=(shown,))) == published
    assert "/" not in shown.replace(f"file:{path.rpartition('/')[2]}", "")


# ---- full builds ----

FULL_BUILD = dataclasses.replace(
    full_build_for("skylake"), source_sha256=TUNED.source_sha256, stock_sha256=TUNED.stock_sha256
)


def test_a_full_build_needs_no_kernel_library_in_memory(tmp_path: Path) -> None:
    path = single(tmp_path, FASTER, kernel_library=None, raised_kernels=20)
    (verdict,) = require_passed(FILE, SHA256, FULL_BUILD, [path]).verdicts
    assert (verdict.target, verdict.verdict) == ("skylake", "faster")


def test_a_slower_full_build_is_refused(tmp_path: Path) -> None:
    path = single(tmp_path, LOSS, kernel_library=None, raised_kernels=20)
    with pytest.raises(GateError, match="slower"):
        require_passed(FILE, SHA256, FULL_BUILD, [path])


def test_a_full_build_without_a_published_wheel_has_no_baseline(tmp_path: Path) -> None:
    alone = dataclasses.replace(FULL_BUILD, stock_sha256="")
    with pytest.raises(GateError, match="not the stock wheel"):
        require_passed(FILE, SHA256, alone, [single(tmp_path, FASTER, kernel_library=None)])


def test_a_wheel_needs_enough_programs_and_no_wrong_one(tmp_path: Path) -> None:
    def keep(name: str, sha256: str, seed: int, **counts: Any) -> None:
        count = FamilyCount(**counts)
        result = ResultSearch(seed=seed, seconds=1, wheel_sha256=sha256, families={"chains": count})
        records.save(tmp_path / name / RANDOM_PROGRAMS, result)

    with pytest.raises(GateError, match=r"^0 random programs ran fused ops of x\.whl"):
        require_searched("x.whl", "a", tmp_path)
    keep("one", "a", 1, programs=900, fused=400)
    keep("other", "b", 1, programs=4000, fused=4000)
    keep("same", "a", 1, programs=300, fused=300)
    with pytest.raises(GateError, match=r"^400 random programs"):
        require_searched("x.whl", "a", tmp_path)
    keep("two", "a", 2, programs=200, fused=200)
    require_searched("x.whl", "a", tmp_path)
    keep("three", "a", 3, programs=1, crashed=((1,),))
    with pytest.raises(GateError, match="wrong results with"):
        require_searched("x.whl", "a", tmp_path)
    (tmp_path / "three" / RANDOM_PROGRAMS).write_text('{"schema": 1}', "utf-8")
    with pytest.raises(RecordError, match="Remove"):
        require_searched("x.whl", "a", tmp_path)
