"""What is asked of tuning, and how its answer reads; no worker starts here."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.builders.comparisons import comparison
from tests.builders.journals import HOST, STOCK, TUNED
from tests.builders.tuning_cells import cell, interval, setup

from tfbench.arms import levers
from tfbench.arms.lever_table import BF16, MALLOCS, SEARCHED
from tfbench.commands import TuneOptions
from tfbench.measuring.comparing import ComparisonSetting
from tfbench.options import hash_path
from tfbench.tuning import handler, running, search, text
from tfbench.tuning.changes import Setup
from tfbench.tuning.results import (
    SCHEMA,
    FirstSteps,
    TriedArm,
    Tuning,
    TuningStage,
    collect_tried_arms,
)
from tfbench.tuning.running import KIND, TuningSetting, list_candidates
from tfbench.tuning.running import TRIAL as TRIAL_FILE
from tfcore import records
from tfcore.comparisons.comparison import ArmFailure, Comparison
from tfcore.comparisons.interval import Verdict
from tfcore.errors import RecordError, UsageError
from tfcore.settings import Paths

TRIAL = FirstSteps(batch=128, parameters=102_585, step_s=0.002, onednn=True)
STEPS = "steps_per_execution"
HINT = f"{STEPS}=8"


def setting(**changed: Any) -> TuningSetting:
    whole: dict[str, Any] = {
        "host": HOST,
        "workload": "lstm_text",
        "wheels": (("stock", STOCK), ("tuned", dataclasses.replace(TUNED, env=()))),
        "vcpus": 2,
        "budget_s": 60.0,
        "seed": 1,
    }
    return TuningSetting(**whole | changed)


def tried(
    stage: TuningStage,
    own_setup: Setup,
    value: float,
    verdict: Verdict,
    **changed: Any,
) -> TriedArm:
    whole: dict[str, Any] = {
        "stage": stage,
        "arm": "+".join(map(str, own_setup)),
        "changes": own_setup,
        "speedup": interval(value),
        "noise": interval(1.0),
        "verdict": verdict,
        "losses": 2e-7,
        "predictions": 0.0,
        "tolerance": 1e-3,
    }
    return TriedArm(**whole | changed)


BEST = setup("intra=1", "malloc=jemalloc")
WON = (
    tried(TuningStage.SCREEN, setup("intra=1"), 1.3, Verdict.FASTER),
    tried(TuningStage.CONFIRM, BEST, 1.15, Verdict.FASTER),
    tried(TuningStage.CONFIRM, (*BEST, *setup(HINT)), 1.2, Verdict.FASTER),
)


def tuning(*tried_arms: TriedArm, **changed: Any) -> Tuning:
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "made": "2026-01-02T03:04:05+00:00",
        "seconds": 600.0,
        "workload": "lstm_text",
        "program_sha256": "",
        "vcpus": (0, 1),
        "budget_s": 60.0,
        "seed": 1,
        "host": HOST,
        "baseline": STOCK.label,
        "trial": TRIAL,
        "tried": tried_arms,
        "variables": (),
        "wheel": STOCK.label,
    }
    return Tuning(**whole | changed)


# --- what is asked --------------------------------------------------------------------------------


def test_wheels_settings_and_advice_are_tried_alone() -> None:
    candidates = list_candidates(setting(), TRIAL)
    assert all(len(changes) == 1 for changes in candidates)
    names = [change.lever for (change,) in candidates]
    assert names[0] == "wheel"
    assert [str(change) for (change,) in candidates if change.lever == "onednn"] == ["onednn=off"]
    assert {*names} <= {*SEARCHED}


def test_nothing_to_try_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    expected = TuneOptions(workload="lstm_text", arms="stock", levers="wheel", vcpus="1")
    with pytest.raises(UsageError, match="1 vCPU: wheel"):
        handler.describe(expected)
    with pytest.raises(UsageError, match="no settings to try"):
        handler.read_config(expected, here(tmp_path))


def test_a_trial_may_leave_nothing_to_try() -> None:
    slow = dataclasses.replace(TRIAL, step_s=1.0)
    assert list_candidates(setting(levers=(STEPS,)), TRIAL)
    with pytest.raises(UsageError, match="no settings to try"):
        list_candidates(setting(levers=(STEPS,)), slow)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"schema": 1}',
        '{"schema": 1, "trial": {"batch": 3}}',
        records.format_json({"schema": 1, "trial": TRIAL}).replace("0.002", "0.0"),
    ],
)
def test_a_damaged_trial_is_told_in_a_line(content: str, tmp_path: Path) -> None:
    (tmp_path / TRIAL_FILE).write_text(content)
    with pytest.raises(RecordError, match=TRIAL_FILE) as caught:
        running.tune(setting(), tmp_path)
    assert "\n" not in caught.value.message


def test_only_the_levers_that_were_asked_for_are_tried() -> None:
    candidates = list_candidates(setting(levers=("intra", STEPS)), TRIAL)
    assert [str(change) for (change,) in candidates] == ["intra=1", HINT]


def test_an_allocator_that_is_not_here_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    only = setting(levers=("malloc", STEPS))
    monkeypatch.setattr(levers, "malloc_among", lambda *_: None)
    assert [str(change) for (change,) in list_candidates(only, TRIAL)] == [HINT]
    monkeypatch.setattr(levers, "malloc_among", lambda *_: Path("/lib/malloc.so"))
    assert len(list_candidates(only, TRIAL)) == len(MALLOCS) + 1


def test_a_run_goes_on_only_in_an_equal_one_that_is_not_finished(tmp_path: Path) -> None:
    records.save(tmp_path / KIND.spec, setting())
    with pytest.raises(UsageError, match="program_sha256"):
        running.tune(setting(program_sha256="changed"), tmp_path)
    records.save(tmp_path / KIND.result, tuning())
    with pytest.raises(UsageError, match="finished"):
        running.tune(setting(), tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lstm_txt", "Did you mean lstm_text"),
        ("nothing-like-it", "mnist_mlp, "),
        ("missing.py", "missing.py"),
        ("folder/model", "folder/model"),
        (".", "is not a model"),
        ("", "--workload .*mnist_mlp"),
    ],
)
def test_what_is_no_workload_is_refused(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        handler.read_config(TuneOptions(workload=words, arms="stock"), here(tmp_path))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("budget", "0", "--budget 0"),
        ("budget", "0s", "--budget 0s"),
        ("vcpus", "9999", "9999 vCPUs"),
        ("seed", "one", "--seed one"),
        ("phase", "serve", "--phase serve"),
        ("levers", "intra,onedn", "Did you mean onednn"),
        ("levers", BF16, "--allow-bf16"),
        ("arms", "stock:intra=1", "--arms"),
        ("arms", "stock,stock", "same name"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    option: str, value: str, message: str, tmp_path: Path
) -> None:
    plain: dict[str, Any] = {"workload": "lstm_text", "arms": "stock"}
    expected = TuneOptions(**plain | {option: value})
    with pytest.raises(UsageError, match=message):
        handler.read_config(expected, here(tmp_path))


def test_bfloat16_is_tried_only_when_it_is_allowed(tmp_path: Path) -> None:
    plain = TuneOptions(workload="lstm_text", arms="stock")
    assert BF16 not in handler.read_config(plain, here(tmp_path)).levers
    allowed = dataclasses.replace(plain, allow_bf16=True)
    assert handler.read_config(allowed, here(tmp_path)).levers == tuple(SEARCHED)


def test_a_lever_has_the_same_names_as_in_lineups(tmp_path: Path) -> None:
    """Files and reports have the name of the argument of compile()."""
    for words in ("xla,intra", "intra,jit_compile,xla"):
        options = TuneOptions(workload="lstm_text", arms="stock", levers=words)
        assert handler.read_config(options, here(tmp_path)).levers == ("intra", "jit_compile")


@pytest.mark.parametrize(
    ("workload", "asked_for"),
    [
        ("lstm_text", "lstm_text:batch=1:clients=1"),
        ("lstm_text:batch=32", "lstm_text:batch=32:clients=1"),
    ],
)
def test_requests_are_tuned_without_what_only_training_has(
    workload: str, asked_for: str, tmp_path: Path
) -> None:
    plain = TuneOptions(workload=workload, phase="infer", arms="stock")
    tuning_config = handler.read_config(plain, here(tmp_path))
    assert tuning_config.workload == asked_for
    setups = list_candidates(tuning_config.create_setting([STOCK]), TRIAL)
    assert not [change for (change,) in setups if change.is_advice]
    with pytest.raises(UsageError, match="no settings to try"):
        handler.read_config(dataclasses.replace(plain, levers="jit_compile"), here(tmp_path))


def test_a_users_file_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for path in (tmp_path / "model.py", tmp_path / "model/saved_model.pb"):
        path.write_text("one")
        before = hash_path(path.parent if path.suffix == ".pb" else path)
        path.write_text("two")
        assert hash_path(path.parent if path.suffix == ".pb" else path) != before
    tuning_config = handler.read_config(
        TuneOptions(workload=str(tmp_path / "model"), arms="stock"), here(tmp_path)
    )
    assert tuning_config.program == tmp_path / "model"
    assert tuning_config.workload == "own:model"
    own_setting = tuning_config.create_setting([STOCK])
    assert dict(own_setting.build_arm(()).env) == {"TENSORWRIGHT_PROGRAM": str(tmp_path / "model")}


def test_a_dry_run_says_what_would_be_tried_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path / "cache"))
    description = handler.describe(
        TuneOptions(
            workload="lstm_text",
            arms="stock",
            levers="onednn,steps_per_execution,jit_compile",
            vcpus="1",
        )
    )
    expected = "onednn=on, onednn=off, steps_per_execution=8, jit_compile=True"
    assert expected in description
    assert "tensorflow-cpu==" in description
    assert "20 min" in description
    assert list(tmp_path.iterdir()) == []


def test_no_more_candidates_than_a_machine_bears_are_measured_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The better half of 26 setups, too, is measured in groups."""
    own_setting = setting()
    setups = tuple(setup(f"intra={number}") for number in range(1, 27))
    gains = {own_setting.build_arm(one).name: 1.5 - n / 100 for n, one in enumerate(setups)}
    together: list[int] = []

    def compare(plan: ComparisonSetting, _: Path) -> Comparison:
        names = [arm.name for arm in plan.arms[1:]]
        together.append(len(names))
        return comparison(cell({name: gains[name] for name in names}), seconds=1.0)

    monkeypatch.setattr(running, "_load_or_compare", compare)
    run = running.TuningRun(setting=own_setting, out=tmp_path, trial=TRIAL)
    assert run._halve_settings(setups) == setups[:2]
    assert max(together) <= search.MOST_TOGETHER
    assert sum(together) == 13 + 7 + 4 + 2


def test_advice_is_measured_but_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(plan: ComparisonSetting, _: Path) -> Comparison:
        gains = {arm.name: 1.5 if STEPS in arm.name else 1.2 for arm in plan.arms[1:]}
        return comparison(cell(gains), seconds=1.0)

    monkeypatch.setattr(running, "_load_or_compare", compare)
    own_setting = setting(levers=("inter", STEPS))
    run = running.TuningRun(setting=own_setting, out=tmp_path, trial=TRIAL)
    result = run.create_result(run.search())
    assert [arm.arm for arm in result.confirmed] == ["inter=1", f"inter=1+{HINT}"]
    assert result.variables == (("TF_NUM_INTEROP_THREADS", "1"),)


def here(folder: Path) -> Paths:
    return Paths(root=folder, cache=folder / "cache", pool=folder / "wheels")


def test_the_budget_is_shared_out_whole() -> None:
    assert sum(running.SHARES.values()) == pytest.approx(1)
    assert {*running.SHARES} == {*TuningStage}


# --- the answer -----------------------------------------------------------------------------------


def test_a_cell_says_of_each_arm_how_it_went() -> None:
    setups = {"fast": setup("intra=1"), "wrong": setup("bf16=on"), "dead": setup("onednn=off")}
    compared_cell = dataclasses.replace(
        cell({"fast": 1.2, "wrong": 1.5}, wrong=("wrong",)),
        failures=(ArmFailure(arm="dead", reason="the worker was ended by SIGKILL\nand more"),),
    )
    rows = {
        tried_arm.arm: tried_arm
        for tried_arm in collect_tried_arms(TuningStage.SCREEN, comparison(compared_cell), setups)
    }
    assert rows["fast"].is_faster
    assert rows["fast"].reason == ""
    assert rows["wrong"].reason == "computes something else"
    assert not rows["wrong"].is_faster
    assert "SIGKILL" in rows["dead"].reason
    assert rows["dead"].speedup is None


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    actual = tuning(*WON, variables=(("TF_NUM_INTRAOP_THREADS", "1"),))
    records.save(tmp_path / KIND.result, actual)
    assert (
        records.decode_record(Tuning, records.load(tmp_path / KIND.result, schema=SCHEMA)) == actual
    )


def test_the_gain_is_that_of_the_confirmation() -> None:
    actual = tuning(*WON)
    assert actual.best == WON[1]
    message = "\n".join(text.list_lines(actual))
    assert "Best: intra=1, malloc=jemalloc: 1.150x" in message
    assert "compile(steps_per_execution=8) with intra=1, malloc=jemalloc: 1.200x" in message
    assert "1.300x" not in message


@pytest.mark.parametrize(
    ("tried_arms", "words"),
    [
        ((WON[0],), "No setting is faster"),
        ((tried(TuningStage.CONFIRM, BEST, 1.001, Verdict.EQUIVALENT),), "beyond noise: intra=1"),
        ((tried(TuningStage.CONFIRM, BEST, 1.2, Verdict.INCONCLUSIVE),), "Measure longer"),
        ((tried(TuningStage.CONFIRM, setup(HINT), 1.2, Verdict.FASTER),), "No setting is faster"),
    ],
)
def test_without_a_confirmed_gain_nothing_is_exported(
    tried_arms: tuple[TriedArm, ...], words: str
) -> None:
    result = tuning(*tried_arms)
    assert result.best is None
    assert words in next(text.list_lines(result))
    assert all(line.startswith("# ") for line in text.render_env_file(result).splitlines())


def test_a_shell_takes_the_settings_as_they_are() -> None:
    expected = (("TF_NUM_INTRAOP_THREADS", "1"), ("LD_PRELOAD", "/lib/it's here.so"))
    page = text.render_env_file(tuning(*WON, variables=expected, workload="a\n$(false) model.py"))
    names = " ".join(f'"${name}"' for name, _ in expected)
    script = f"{page}\nprintf '%s\\n' {names}"
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [value for _, value in expected]
    assert f"export LD_PRELOAD={shlex.quote(expected[1][1])}" in page


def test_settings_for_fewer_cpus_say_so() -> None:
    assert "taskset" in text.render_env_file(tuning(*WON, vcpus=(0,)))
    assert "taskset" in text.render_env_file(tuning(*WON, vcpus=(0, 1))) or HOST.vcpus.usable == 2


def test_table_and_page_hold_every_arm() -> None:
    actual = tuning(*WON)
    for shown in (text.build_table(actual).format_text(colour=False), text.render_markdown(actual)):
        assert all(tried_arm.stage.value in shown for tried_arm in WON)
        assert "1.300x" in shown
    assert text.render_markdown(actual).count("\n|") == len(WON) + 2
