"""What `invoke publish` makes of its options, with small wheels that pass a real audit."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders import comparisons
from tests.builders.audit_cases import (
    altered,
    bring_stock,
    pin_stock,
    saying,
    small_stock,
    sound_wheel,
)
from tests.builders.gate_comparisons import LOSS, compared
from tests.builders.index_wheels import entry_of, stand_in, tuned_for, written

from tfbuild.kernelbuild.random_trials import FILE, FamilyCount, ResultSearch
from tfbuild.packing import conformance
from tfbuild.packing.conformance import ConformanceRecord, ConformanceTrial, UnitOutcome
from tfbuild.packing.tuned import read_tuned
from tfbuild.upstream.download import hash_file
from tfcore import settings
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.targets import STOCK_FLAGS, list_targets, parse_target
from tfcore.errors import (
    AdmissionError,
    AuditError,
    ChecksumError,
    GateError,
    PublishError,
    RecordError,
    TensorwrightError,
    UsageError,
    WheelError,
)
from tfcore.records import format_canonical, save
from tfcore.settings import Paths
from tfwheels.candidates import Candidates, WheelCandidate
from tfwheels.commands import PublishOptions
from tfwheels.dependencies import WheelUse
from tfwheels.entry import Entry, GateResult, TargetVerdict
from tfwheels.gate import Judgement
from tfwheels.handlers import _fetch_stock, publish_wheels
from tfwheels.publish import PublishResult
from tfwheels.summary import (
    build_fields,
    describe,
    describe_uploads,
    find_unserved,
    format_verdicts,
)
from tfwheels.upload import Upload, UploadState
from tfwheels.wheel_choice import choose

SOUND = "tensorflow_cpu-2.14.1+tried-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
FASTER = "faster, 1.300x (1.200 to 1.400) on a CPU"
NOTHING = Judgement(verdicts=(), faults=(), gaps=(), silent=(), published={})

UPLOAD = {"to": "", "upload": "https://i.example", "only_tuned": False}

Publish = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheels are made in."""
    folder = tmp_path_factory.mktemp("made")
    assert sound_wheel(folder).name == SOUND
    return folder


@pytest.fixture
def stock(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the sound wheel was made of, and was published."""
    path = small_stock(made)
    pin_stock(monkeypatch, path)
    return path


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A checkout of its own, with an empty pool."""
    root = tmp_path / "checkout"
    own_paths = Paths(root=root, cache=tmp_path / "cache", pool=root / "wheels")
    own_paths.pool.mkdir(parents=True)
    monkeypatch.setattr(settings, "paths", lambda: own_paths)
    return own_paths


@pytest.fixture
def sound(paths: Paths, made: Path, stock: Path) -> Path:
    """The pool's one wheel that is what it says; the cache has its stock wheel."""
    bring_stock(stock, paths.downloads)
    (wheel,) = made.rglob(SOUND)
    return Path(shutil.copy(wheel, paths.pool))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def publish(index: Path) -> Publish:
    """Without the stock wheel and what that needs."""

    def run(*, as_json: bool = False, **options: Any) -> str:
        record: dict[str, Any] = {"to": str(index), "only_tuned": True} | options
        return publish_wheels(PublishOptions(**record), as_json=as_json)

    return run


def of_schema_1(folder: Path) -> Path:
    """A wheel of before there were wheels for a fleet."""
    stem = "tensorflow_cpu-2.14.1+older"
    record = {f"{stem}.dist-info/tuned.json": b'{"schema": 1, "target": "zen4"}'}
    return written(folder / f"{stem}-cp311-cp311-manylinux_2_17_x86_64.whl", record)


# ---- which wheels ----


@pytest.mark.toolchain
def test_the_first_line_says_what_happened_and_a_table_says_who_gets_what(
    sound: Path, publish: Publish, paths: Paths, index: Path
) -> None:
    compared(paths.reports / "one", sound)
    lines = publish().splitlines()
    assert lines[0].startswith(f"{index}: 1 wheel added, 0 already there, ")
    assert lines[2].split() == ["wheel", "verdict", "targets"]
    assert lines[3].startswith(f"tensorflow-cpu 2.14.1+tried cp311  {FASTER}  haswell broadwell")
    assert lines[-2:] == [
        f"Try it: invoke serve --at {index}",
        f"Use it: invoke install-snippet --at {index}",
    ]
    assert (index / "pool" / "tensorflow-cpu" / SOUND).is_file()


@pytest.mark.toolchain
def test_the_same_again_adds_nothing_and_still_says_the_verdict(
    sound: Path, publish: Publish, paths: Paths, index: Path
) -> None:
    compared(paths.reports / "one", sound)
    first = publish()
    shutil.rmtree(paths.reports)
    again = publish(gate=False)
    assert "without passing the gate" not in again, "it has passed"
    assert again.startswith(f"{index}: 0 wheels added, 1 already there, 0 pages written\n")
    assert again.splitlines()[1:] == first.splitlines()[1:]


@pytest.mark.toolchain
@pytest.mark.usefixtures("sound")
def test_a_dry_run_says_the_same_and_writes_nothing(publish: Publish, index: Path) -> None:
    text = publish(gate=False, dry_run=True)
    assert not index.exists()
    done = publish(gate=False)
    assert text.startswith(f"{index}: 1 wheel ")
    assert text.splitlines()[1:] == done.splitlines()[1 : text.count("\n")]


@pytest.mark.toolchain
def test_of_the_pool_comes_what_may_and_of_the_rest_the_reason(
    sound: Path, publish: Publish, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(paths.reports / "one", sound)
    false = stand_in(paths.pool, "2.14.1+zen4", targets=("zen4",))
    older = of_schema_1(paths.pool)
    stand_in(paths.pool, "2.14.1+control", targets=(STOCK_FLAGS,))
    stand_in(paths.pool, "2.14.1")
    torn = paths.pool / "torn-1.0-py3-none-any.whl"
    torn.write_bytes(sound.read_bytes()[:1000])
    document = json.loads(publish(as_json=True))
    assert document["added"] == [SOUND]
    assert {*document["left_out"]} == {false.name, older.name, torn.name}
    output = capsys.readouterr()
    warned = [line for line in output.err.splitlines() if line.startswith("warning: excluded: ")]
    assert len(warned) == 3
    assert output.out == ""
    assert f"{older.name}: tuned.json has schema 1" in output.err
    assert f"{false.name} failed the audit: " in output.err


@pytest.mark.toolchain
@pytest.mark.parametrize("bad", ["false", "older", "torn", "stock", "control"])
def test_a_wheel_that_was_named_stops_the_whole(
    bad: str, sound: Path, publish: Publish, tmp_path: Path, index: Path
) -> None:
    torn = tmp_path / sound.name
    torn.write_bytes(sound.read_bytes()[:1000])
    wheels: dict[str, tuple[Path, type[TensorwrightError]]] = {
        "false": (stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",)), AuditError),
        "older": (of_schema_1(tmp_path), WheelError),
        "torn": (torn, WheelError),
        "stock": (stand_in(tmp_path, "2.14.1"), WheelError),
        "control": (stand_in(tmp_path, "2.14.1+c", targets=(STOCK_FLAGS,)), PublishError),
    }
    path, error = wheels[bad]
    with pytest.raises(error, match=path.name.replace("+", r"\+")):
        publish(wheels=f"{sound},{path}", gate=False)
    assert not index.exists()


@pytest.mark.toolchain
def test_a_pool_with_nothing_to_publish_is_an_error(
    sound: Path, publish: Publish, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    of_schema_1(paths.pool)
    with pytest.raises(WheelError, match="schema 1"):
        publish()
    assert f"{sound.name} has no verdict" in capsys.readouterr().err
    for path in paths.pool.iterdir():
        path.unlink()
    with pytest.raises(WheelError, match="no tuned wheel"):
        publish()


@pytest.mark.toolchain
def test_an_index_is_made_anew_without_a_wheel_that_may_be_published(
    sound: Path, publish: Publish, index: Path
) -> None:
    publish(gate=False)
    (index / "catalog.json").write_bytes(b"")
    with pytest.raises(RecordError):
        publish(gate=False)
    assert publish(reindex=True).startswith(f"{index}: 0 wheels added, 0 already there, ")
    assert sound.name in (index / "catalog.json").read_text(encoding="utf-8")


@pytest.mark.toolchain
def test_a_wheel_that_is_named_twice_is_published_once(
    sound: Path, publish: Publish, capsys: pytest.CaptureFixture[str]
) -> None:
    again = sound.parent / ".." / sound.parent.name / sound.name
    publish(wheels=f"{sound}, {again},", gate=False)
    assert capsys.readouterr().err.count("audit ") == 1


@pytest.mark.toolchain
def test_a_wheel_that_is_replaced_after_its_check_goes_nowhere(
    sound: Path, publish: Publish, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[Path, str]] = []

    def keep(*_: object, checked: dict[Path, str], **__: object) -> tuple[Upload, ...]:
        sent.append(checked)
        return ()

    monkeypatch.setattr("tfwheels.handlers.upload", keep)
    sha256 = hash_file(sound)
    publish(gate=False, **UPLOAD)
    assert [set(checked.values()) for checked in sent] == [{sha256}]

    def replace(*_: object, **__: object) -> None:
        altered(sound, {"evil.pth": b"import evil\n"})

    monkeypatch.setattr("tfwheels.handlers._warn_of_wheels", replace)
    with pytest.raises(ChecksumError, match="changed after it was checked"):
        publish(gate=False)
    assert not (index / "catalog.json").exists()


# ---- the stock wheel ----


def test_a_wheel_for_another_machine_comes_with_the_stock_wheel_of_that(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses: list[WheelUse] = []

    def keep(_: object, __: str, use: WheelUse, *___: object, **____: object) -> tuple[Path, ...]:
        uses.append(use)
        return ()

    monkeypatch.setattr("tfwheels.handlers.fetch_stock_and_dependencies", keep)
    candidates = [
        WheelCandidate(
            wheel=stand_in(paths.pool, f"2.20.0+{target}", machine=machine, targets=(target,)),
            entry=entry_of(f"2.20.0+{target}", machine=machine, targets=(target,)),
            tuned=tuned_for((target,), release="2.20.0"),
            judgement=NOTHING,
        )
        for machine, target in (("aarch64", "neoverse_v1"), ("x86_64", "zen4"))
    ]
    _fetch_stock(candidates, PublishOptions(to="x"), paths)
    assert uses == [
        WheelUse(python="3.11", machine="aarch64"),
        WheelUse(python="3.11", machine="x86_64"),
    ]


def without_network(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """No settings of pip's but these."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in ({"CONFIG_FILE": os.devnull, "NO_INDEX": "1"} | settings).items():
        monkeypatch.setenv(f"PIP_{name}", value)


@pytest.mark.toolchain
@pytest.mark.parametrize("place", ["to", "upload"])
def test_what_cannot_be_compared_with_its_stock_wheel_goes_nowhere(
    place: str,
    sound: Path,
    stock: Path,
    publish: Publish,
    paths: Paths,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    altered(sound, {"evil.pth": b"import evil\n"})
    (paths.downloads / stock.name).unlink()
    without_network(monkeypatch)
    options = UPLOAD if place == "upload" else {}
    for named in ("", str(sound)):
        with pytest.raises(PublishError, match=r"cannot compare .* with its stock") as caught:
            publish(gate=False, wheels=named, **options)
        assert f"Pass {stock.name} with --stock-wheel PATH" in caught.value.hint
    assert not index.exists()


@pytest.mark.toolchain
def test_the_stock_wheel_is_fetched_with_the_users_own_settings_of_pip(
    sound: Path,
    stock: Path,
    publish: Publish,
    paths: Paths,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (paths.downloads / stock.name).unlink()
    without_network(monkeypatch, FIND_LINKS=str(stock.parent))
    assert publish(gate=False).startswith(f"{index}: 1 wheel added")
    assert hash_file(paths.downloads / stock.name) == hash_file(stock)
    (paths.downloads / stock.name).unlink()
    altered(sound, {"evil.pth": b"import evil\n"})
    with pytest.raises(AuditError, match=r"evil\.pth is neither in stock"):
        publish(gate=False, to=str(index.with_name("second")))
    assert not index.with_name("second").exists()


@pytest.mark.toolchain
@pytest.mark.parametrize("text", ["file", "folder"])
def test_the_stock_wheel_may_be_given_and_is_checked(
    text: str,
    sound: Path,
    stock: Path,
    publish: Publish,
    paths: Paths,
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (paths.downloads / stock.name).unlink()
    without_network(monkeypatch)
    own_path = stock if text == "file" else stock.parent
    assert publish(gate=False, stock_wheel=str(own_path)).startswith(f"{index}: 1 wheel added")
    other_path = tmp_path / "other"
    other_path.mkdir()
    shutil.copy(sound, other_path / stock.name)
    own_path = other_path / stock.name if text == "file" else other_path
    with pytest.raises(ChecksumError, match="is pinned to"):
        publish(gate=False, wheels=str(sound), stock_wheel=str(own_path))


# ---- what was measured ----


@pytest.mark.toolchain
def test_the_gate_takes_a_comparison_by_name_or_folder(
    sound: Path, publish: Publish, tmp_path: Path, index: Path
) -> None:
    with pytest.raises(GateError, match="no verdict"):
        publish()
    assert not index.exists()
    compared(tmp_path / "measured", sound)
    assert FASTER in publish(comparison=str(tmp_path / "measured"), dry_run=True)
    assert FASTER in publish(comparison=str(tmp_path / "measured" / "comparison.json"))


@pytest.mark.toolchain
def test_a_named_comparison_hides_no_loss_in_the_reports(
    sound: Path, publish: Publish, paths: Paths, tmp_path: Path
) -> None:
    compared(tmp_path / "measured", sound)
    compared(paths.reports / "loss", sound, LOSS)
    with pytest.raises(GateError, match="it is slower") as caught:
        publish(comparison=str(tmp_path / "measured"))
    assert "in reports/ count" in caught.value.hint
    text = publish(comparison=str(tmp_path / "measured"), gate=False)
    assert FASTER in text
    assert "without passing the gate: it is slower" in text


@pytest.mark.toolchain
def test_a_comparison_of_another_wheel_is_no_verdict(
    sound: Path, publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(tmp_path / "other", stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",)))
    options = {"wheels": str(sound), "comparison": str(tmp_path / "other")}
    with pytest.raises(GateError, match="compares other wheels"):
        publish(**options)
    assert "cp311  none     haswell" in publish(**options, gate=False)
    assert "compares other wheels" in capsys.readouterr().err


@pytest.mark.toolchain
def test_a_loss_is_published_only_when_told_and_stands_in_the_summary_and_on_the_page(
    sound: Path, publish: Publish, tmp_path: Path, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(tmp_path / "measured", sound)
    path = tmp_path / "measured" / "comparison.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["overall"][0]["speedup"] |= {
        "verdict": "slower",
        "interval": {"value": 0.9, "low": 0.85, "high": 0.95},
    }
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(GateError, match=r"slower .*0\.900x"):
        publish(comparison=str(path))
    text = publish(comparison=str(path), gate=False)
    assert "0.900x (0.850 to 0.950)" in text
    assert "published without passing the gate: it is slower over all workloads on 2 vCPUs" in text
    assert "warning: " in capsys.readouterr().err
    page = (index / "simple/haswell/tensorflow-cpu/index.html").read_text("ascii")
    assert f"<p>{SOUND}: published without passing the gate: it is slower" in page
    document = json.loads(publish(comparison=str(path), gate=False, as_json=True))
    assert document["judgements"][SOUND]["passed"] is False
    assert "it is slower" in document["caveats"][SOUND][0]


@pytest.mark.toolchain
def test_a_gap_is_published_without_the_folders_of_this_machine(
    sound: Path, publish: Publish, tmp_path: Path, index: Path
) -> None:
    other_path = tmp_path / "a b: of ann" / "measured"
    compared(other_path, stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",)))
    publish(wheels=str(sound), comparison=str(other_path), gate=False)
    shown = [path.read_text() for path in index.rglob("*") if path.suffix in {".json", ".html"}]
    assert any("passing the gate: it compares other wheels" in text for text in shown)
    assert not [text for text in shown if "of ann" in text]


@pytest.mark.toolchain
def test_a_wheel_of_near_sources_says_so_where_it_is_published(
    sound: Path, stock: Path, publish: Publish, index: Path
) -> None:
    nearness = {"own": False, "commit": "", "compared": 4, "differing": ["tensorflow/core/a.h"]}
    wheel = saying(sound, stock, nearness=nearness)
    with pytest.raises(PublishError, match="--near-sources"):
        publish(wheels=str(wheel), gate=False)
    assert "compiled from other sources: 1 of 4 headers" in publish(
        wheels=str(wheel), gate=False, near_sources=True
    )
    page = json.loads((index / "simple/haswell/tensorflow-cpu/index.json").read_text())
    assert page["files"][0]["_near_sources"].startswith("other sources: 1 of 4")
    assert any("other sources" in note for note in page["_notes"])


@pytest.mark.toolchain
def test_random_programs_can_be_required(
    sound: Path, paths: Paths, publish: Publish, index: Path
) -> None:
    wanted: dict[str, Any] = {"wheels": str(sound), "gate": False, "require_results": True}
    with pytest.raises(GateError, match="needs 600"):
        publish(**wanted)
    assert not index.exists()
    result = ResultSearch(
        seed=1,
        seconds=600,
        wheel_sha256=hash_file(sound),
        families={"models": FamilyCount(programs=700, fused=600)},
    )
    save(paths.reports / "results-1" / FILE, result)
    assert "1 wheel added" in publish(**wanted)


# ---- options ----


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"to": ""}, UsageError, "either --to or --upload"),
        ({"upload": "https://here.example"}, UsageError, "either --to or --upload"),
        ({"simple": "https://here.example"}, UsageError, "--simple .* --to"),
        ({"to": "", "upload": "nowhere"}, UsageError, "--upload must be"),
        (UPLOAD | {"simple": "http://u:secret@i.example"}, UsageError, "--simple must be"),
        (UPLOAD | {"reindex": True}, UsageError, "--reindex .* --upload"),
        (UPLOAD | {"only_tuned": True}, UsageError, "--only-tuned .* --upload"),
        (UPLOAD | {"variants": True}, UsageError, "--variants .* --upload"),
        ({"stock_wheel": "no-such"}, UsageError, "--stock-wheel no-such"),
        ({"to": "~no.such/index"}, UsageError, "--to ~no.such/index: .* home folder"),
        ({"stock_wheel": "~no.such/w"}, UsageError, "--stock-wheel ~no.such/w: .* home folder"),
        (
            {"dependencies": "~no.such/w", "only_tuned": False},
            UsageError,
            "--dependencies ~no.such/w: .* home folder",
        ),
        ({"sign": "~no.such/key"}, UsageError, "--sign ~no.such/key: .* home folder"),
        ({"trust": "~no.such/key"}, UsageError, "--trust ~no.such/key: .* home folder"),
        ({"wheels": "~no.such/w.whl"}, UsageError, "--wheels ~no.such/w.whl: .* home folder"),
        ({"comparison": "~no.such/c"}, UsageError, "--comparison ~no.such/c: .* home folder"),
        ({"wheels": ","}, UsageError, "--wheels names no file"),
        ({"comparison": " , "}, UsageError, "--comparison names no file"),
        ({"dependencies": "."}, UsageError, "--dependencies .* --only-tuned"),
        ({"dependencies": "no-such", "only_tuned": False}, UsageError, "no-such"),
        ({"to": "ftp://here"}, UsageError, "--to ftp:"),
        ({"comparison": "no-such.json"}, RecordError, "no-such.json"),
        ({"wheels": "no-such.whl"}, WheelError, "no-such.whl"),
        ({"wheels": "."}, WheelError, "folder"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_before_any_wheel_is_looked_at(
    options: dict[str, Any],
    error: type[TensorwrightError],
    message: str,
    publish: Publish,
    paths: Paths,
    index: Path,
) -> None:
    of_schema_1(paths.pool)
    with pytest.raises(error, match=message):
        publish(**options)
    assert not index.exists()


@pytest.mark.usefixtures("paths")
def test_a_torn_comparison_is_refused(publish: Publish, tmp_path: Path) -> None:
    torn = tmp_path / "torn.json"
    torn.write_text('{"schema": 2, "arms"')
    with pytest.raises(RecordError, match=r"torn\.json"):
        publish(comparison=str(torn))


# ---- the summary ----

ENTRIES = (
    entry_of("2.14.1"),
    entry_of("2.14.1", python="cp310"),
    entry_of("2.14.1+x86.64.v3", targets=("x86_64_v3",)),
    entry_of("2.14.1+fleet", targets=("zen4", "haswell")),
)
CHOICES = {target.name: choose(ENTRIES, target) for target in list_targets("x86_64")}
PUBLISHED = PublishResult(added=("a", "b"), present=("c",), pages=("d",), choices=CHOICES)
NO_CANDIDATES = Candidates(made=(), refused={})


def candidate(*targets: str, version: str) -> WheelCandidate:
    entry = entry_of(version, targets=targets)
    return WheelCandidate(
        wheel=Path(entry.file), entry=entry, tuned=tuned_for(targets), judgement=NOTHING
    )


def rows(text: str) -> dict[str, list[str]]:
    """What each wheel's first line says, by version and Python."""
    words = (line.split() for line in text.splitlines() if line.startswith("tensorflow-cpu"))
    return {" ".join(word[1:3]): word[3:] for word in words}


def test_each_python_has_a_row_of_its_own() -> None:
    actual = rows(describe(PUBLISHED, NO_CANDIDATES, "here", dry_run=False))
    assert list(actual) == [
        *("2.14.1+x86.64.v3 cp311", "2.14.1+fleet cp311", "2.14.1 cp311", "2.14.1 cp310")
    ]
    assert actual["2.14.1 cp310"][:3] == ["stock", "x86_64_v3", "x86_64_v4"]
    assert actual["2.14.1 cp311"][:3] == ["stock", "sandybridge", "ivybridge"]
    assert actual["2.14.1+x86.64.v3 cp311"][1:3] == ["x86_64_v3", "x86_64_v4"]


def test_every_target_stands_in_the_table() -> None:
    text = describe(PUBLISHED, NO_CANDIDATES, "here", dry_run=False)
    assert set(CHOICES) <= set(text.split())


def test_targets_that_no_wheel_runs_on_are_named_with_what_they_lack() -> None:
    text = describe(PUBLISHED, NO_CANDIDATES, "here", dry_run=False)
    (line,) = (
        text_line for text_line in text.splitlines() if text_line.startswith("no TensorFlow for ")
    )
    names, _, reason = line.removeprefix("no TensorFlow for ").partition(": ")
    assert {*names.split()} == {name for name, listed in CHOICES.items() if not listed}
    assert "they lack avx, which" in reason
    assert "--scope full --arch" in reason
    actual = build_fields(PUBLISHED, NO_CANDIDATES, "here", dry_run=False)["lacking"]
    assert isinstance(actual, dict)
    assert actual.keys() == {*names.split()}
    assert actual["nehalem"] == ("avx",)


def test_an_index_that_nothing_was_given_for_names_none() -> None:
    """--reindex goes without a wheel; and an Arm wheel says nothing of x86-64."""
    arm = entry_of("2.14.1", machine="aarch64")
    for entries in ((), (arm,)):
        choices = {target.name: choose(entries, target) for target in list_targets()}
        published = PublishResult(added=(), present=(), pages=(), choices=choices)
        assert "no TensorFlow" not in describe(published, NO_CANDIDATES, "here", dry_run=False)
        assert build_fields(published, NO_CANDIDATES, "here", dry_run=False)["lacking"] == {}


def test_what_was_restored_and_what_nobody_looked_at_is_said() -> None:
    done = dataclasses.replace(PUBLISHED, restored=("e", "f"), unread=("c",))
    text = describe(done, NO_CANDIDATES, "s3://here/", dry_run=False)
    assert text.startswith("s3://here/: 2 wheels added, 2 restored, 1 already there, ")
    (line,) = (
        text_line for text_line in text.splitlines() if text_line.startswith("the bytes of ")
    )
    assert "bytes of c were not compared: " in line
    assert "--reindex" in line
    assert "2 would be restored" in describe(done, NO_CANDIDATES, "here", dry_run=True)
    fields = build_fields(done, NO_CANDIDATES, "here", dry_run=False)
    assert (fields["restored"], fields["unread"]) == (("e", "f"), ("c",))


def test_a_wheel_that_did_not_pass_says_so_in_the_summary() -> None:
    """As the index has it, which may know more of it than was judged now."""
    wheel_candidate = candidate("zen4", version="2.14.1+zen4")
    candidates = Candidates(made=(wheel_candidate,), refused={})
    words = "tensorflow-cpu 2.14.1+zen4 cp311: published without passing the gate"
    assert f"\n{words}\n" in describe(PUBLISHED, candidates, "here", dry_run=False)
    assert f"\n{words}\n" in describe_uploads((), candidates, "https://i", dry_run=False)
    near = dataclasses.replace(
        wheel_candidate.entry, gating=GateResult(passed=True), near="other sources: 1 of 2"
    )
    choices = {"zen4": choose((near,), parse_target("zen4"))}
    published = dataclasses.replace(PUBLISHED, choices=choices)
    text = describe(published, candidates, "here", dry_run=False)
    assert "without passing" not in text
    assert "cp311: compiled from other sources: 1 of 2\n" in text
    actual = build_fields(published, candidates, "here", dry_run=False)["caveats"]
    assert actual == {near.file: ("compiled from other sources: 1 of 2",)}


def test_a_wheel_that_no_page_lists_says_why() -> None:
    everywhere = candidate("haswell", version="2.14.1+haswell")
    nowhere = candidate("sapphirerapids+sha512", version="2.14.1+odd")
    text = describe(
        PUBLISHED, Candidates(made=(everywhere, nowhere), refused={}), "here", dry_run=False
    )
    assert "2.14.1+haswell cp311    none" in text
    actual = rows(text)
    assert " ".join(actual["2.14.1+haswell cp311"]).endswith("nearer")
    assert "no target" in " ".join(actual["2.14.1+odd cp311"])


def verdict(target: str) -> TargetVerdict:
    words = {"verdict": "equivalent", "cpu": "EPYC [9]", "file": "f", "sha256": "0"}
    return TargetVerdict(target=target, speedup=1.0, low=0.99, high=1.01, **words)


def test_a_fleet_has_a_line_for_each_target() -> None:
    (*_, fleet) = ENTRIES
    assert format_verdicts(fleet, [verdict("haswell")]).splitlines() == [
        "haswell: equivalent, 1.000x (0.990 to 1.010) on EPYC [9]",
        "zen4: none",
    ]


def test_what_is_published_is_written_as_it_is() -> None:
    """No word of a CPU or a folder is taken for markup or an emoji."""
    wheel_candidate = candidate("zen4", version="2.14.1+zen4")
    judgement = Judgement(verdicts=(verdict("zen4"),), faults=(), gaps=(), silent=(), published={})
    candidates = Candidates(
        made=(
            WheelCandidate(
                wheel=wheel_candidate.wheel,
                entry=wheel_candidate.entry,
                tuned=wheel_candidate.tuned,
                judgement=judgement,
            ),
        ),
        refused={},
    )
    text = describe(PUBLISHED, candidates, "/srv/[bold]:boom:", dry_run=True)
    assert text.startswith("/srv/[bold]:boom:: 2 wheels would be added, 1 already there, ")
    assert "on EPYC [9]" in text


def cpu_of(name: str, *more: str) -> Cpu:
    """A CPU of a target, with features that others of it have not."""
    target = parse_target(name)
    return dataclasses.replace(comparisons.host().cpu, features=target.features | {*more})


def test_a_wheel_that_only_this_cpu_of_its_target_runs_is_pointed_out() -> None:
    native = candidate("icelake+avx512_bf16/sapphirerapids", version="2.14.1+native")
    entries: tuple[Entry, ...] = (entry_of("2.14.1"), native.entry)
    choices = {target.name: choose(entries, target) for target in list_targets("x86_64")}
    published = PublishResult(added=(), present=(), pages=(), choices=choices)
    (line,) = find_unserved(published, [native], cpu_of("icelake", "avx512_bf16"))
    assert line.startswith(
        "this CPU runs 2.14.1+native, but simple/icelake/ lists 2.14.1: icelake lacks avx512_bf16; "
    )
    assert list(find_unserved(published, [native], cpu_of("icelake"))) == []
    assert list(find_unserved(published, [native], cpu_of("sapphirerapids"))) == []


def test_an_upload_says_how_many_and_what_each_is() -> None:
    wheel_candidate = candidate("zen4", version="2.14.1+zen4")
    sent = [
        Upload(
            wheel=wheel_candidate.wheel,
            project="tensorflow-cpu",
            sha256="0",
            state=UploadState.SENT,
        ),
    ]
    text = describe_uploads(
        sent, Candidates(made=(wheel_candidate,), refused={}), "https://i", dry_run=False
    )
    assert text.splitlines()[0] == "https://i: 1 wheel sent, 0 already there"
    assert "\ntensorflow-cpu 2.14.1+zen4 cp311  none     sent\n" in text


# ---- admission ----


def as_stand_in(wheel: Path, stock: Path) -> Path:
    """The wheel, which says that its kernels were run as compiled for another target."""
    unit_conformances = tuned_for(("haswell",)).libraries[0].admission
    fields = json.loads(format_canonical(read_tuned(wheel)))
    fields["libraries"][0]["admission"] = {
        unit: {"ran_as": "x86_64_v2", "ops": ["Tanh"]} for unit in unit_conformances
    }
    return saying(wheel, stock, **fields)


def recorded(wheel: Path, reason: str = "") -> None:
    """The record of an admission of these bytes."""
    trial = ConformanceTrial(
        cpu="A CPU", kind="k", judge="j", units={"cwise_op_tanh": UnitOutcome(reason=reason)}
    )
    record = ConformanceRecord(
        wheel=wheel.name, wheel_sha256=hash_file(wheel), targets={"haswell": trial}
    )
    conformance.save_record(wheel, record)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    "options", [{}, {"gate": False}, {"gate": False, "dry_run": True}], ids=str
)
def test_kernels_that_never_ran_on_their_target_are_refused_whatever_the_options(
    options: dict[str, Any], sound: Path, stock: Path, publish: Publish, index: Path
) -> None:
    wheel = as_stand_in(sound, stock)
    with pytest.raises(AdmissionError, match="passed the conformance test as x86_64_v2") as caught:
        publish(**options)
    assert caught.value.hint == f"Run invoke admit {wheel} on a CPU that runs haswell"
    assert not index.exists()


@pytest.mark.toolchain
def test_with_a_record_of_its_bytes_it_goes_on_to_the_gate(
    sound: Path, stock: Path, publish: Publish, paths: Paths
) -> None:
    wheel = as_stand_in(sound, stock)
    recorded(wheel)
    with pytest.raises(GateError, match="has no verdict"):
        publish()
    compared(paths.reports / "one", wheel)
    document = json.loads(publish(as_json=True))
    (admission,) = document["admissions"][wheel.name]
    assert (admission["ran_as"], admission["proven"]) == (["x86_64_v2"], True)


@pytest.mark.toolchain
def test_a_kernel_that_failed_is_named_and_the_remedy_said(sound: Path, publish: Publish) -> None:
    recorded(sound, "Tanh T=1: 9e+05 ULPs from the stock kernel")
    with pytest.raises(AdmissionError, match="kernel group cwise_op_tanh failed") as caught:
        publish(gate=False)
    assert "--without cwise_op_tanh" in caught.value.hint


@pytest.mark.toolchain
def test_a_torn_record_excludes_its_wheel_only(
    sound: Path, publish: Publish, capsys: pytest.CaptureFixture[str]
) -> None:
    other = stand_in(sound.parent, "2.14.1+zen4", targets=("zen4",))
    conformance.get_record_path(other).write_text("{", "utf-8")
    document = json.loads(publish(gate=False, as_json=True))
    assert (document["added"], [*document["left_out"]]) == ([SOUND], [other.name])
    assert "is not valid JSON" in capsys.readouterr().err


@pytest.mark.toolchain
def test_a_torn_record_is_refused(sound: Path, publish: Publish) -> None:
    conformance.get_record_path(sound).write_text("{")
    with pytest.raises(RecordError, match="is not valid JSON"):
        publish(gate=False)
