"""The command line as a user meets it, in a folder that is not the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.parser.context import ParserContext
from tests.builders.command_names import ARTICLES, NAMES, silent_index
from tests.builders.invoke_calls import Tasks, said, started
from tests.builders.later import later
from tests.builders.trees import change, make_tree

from tensorwright.program import collect_commands
from tfcore import settings
from tfcore.errors import ToolError, UsageError
from tfcore.records import hash_record
from tfcore.settings import ROOT

COMMON = {
    "build": ["detect", "plan", "build", "audit"],
    "measure": ["compare", "tune", "report"],
    "publish": ["publish", "install-snippet"],
    "articles": ["articles"],
    "project": ["quickstart", "doctor"],
}


def chosen(**options: str) -> tuple[str, ...]:
    """Options of a plan: a compiler that need not be here, for a target that this CPU need not be.

    Invoke takes each option once only.
    """
    words = {"arch": "skylake", "compiler": "clang@16.0.6", "python": "3.11"} | options
    return tuple(word for name, value in words.items() for word in (f"--{name}", value))


DECLARED = chosen()
DECLARED_ARCHIVE = f"""http_archive(
    name = "a",
    sha256 = "{"0" * 64}",
    urls = ["https://example.com/a.tar.gz"],
)

"""
FULL = chosen(scope="full")


# What there is ------------------------------------------------------------------------------------


def listed(text: str) -> dict[str, list[str]]:
    """The names below the heading of each group."""
    groups: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"(\w+):", line):
            groups[heading[1]] = []
        elif row := re.match(r"  ([a-z][a-z.-]*) +[A-Z]", line):
            list(groups.values())[-1].append(row[1])
    return groups


def test_the_list_shows_what_people_use_by_group(invoke: Tasks) -> None:
    actual = listed(invoke("--list").stdout)
    assert actual == COMMON
    assert sum(map(len, actual.values())) == 12


def test_every_task_is_listed_where_all_are_asked_for(invoke: Tasks) -> None:
    actual = listed(invoke("--list", "all").stdout)
    all_names = {name.rpartition(".")[2] for names in actual.values() for name in names}
    assert all_names == NAMES
    assert sum(map(len, actual.values())) == len(NAMES)
    assert {
        group: [name for name in actual[group] if name in COMMON[group]] for group in actual
    } == (COMMON)


def test_one_group_is_listed_whole(invoke: Tasks) -> None:
    (names,) = listed(invoke("--list", "articles").stdout).values()
    assert {*names} == {"articles", *(f"articles.{name}" for name in ARTICLES)}


def test_programs_read_every_task_and_a_line_about_each(invoke: Tasks) -> None:
    document = json.loads(invoke("--list", "-F", "json").stdout)
    assert {task["name"] for task in document["tasks"]} == NAMES - {"articles"}
    assert all(task["help"].endswith(".") for task in document["tasks"])
    (articles,) = document["collections"]
    assert {task["name"] for task in articles["tasks"]} == ARTICLES | {"all"}


def test_what_serves_an_article_has_two_names(invoke: Tasks) -> None:
    for name in sorted(ARTICLES):
        words = ("--vcpus", "none", "--dry-run") if name != "strategies" else ("--devices", "none")
        assert said(invoke(f"articles.{name}", *words), 2) == said(invoke(name, *words), 2)
    words = ("--arms", "nowhere.whl", "--dry-run")
    assert said(invoke("articles", *words), 21) == said(invoke("articles.all", *words), 21)


def test_the_list_loads_nothing_but_invoke_and_the_declared_options(invoke: Tasks) -> None:
    argv = invoke.argv("--list")
    argv[1:1] = ["-X", "importtime"]
    done = subprocess.run(argv, cwd=invoke.folder, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "quickstart" in done.stdout
    assert "invoke.tasks" in loaded
    heavy = {"archspec", "jinja2", "numpy", "rich", "tensorflow"}
    assert not {name.partition(".")[0] for name in loaded} & heavy
    roots = {"tfcore", "tfbuild", "tfbench", "tfwheels"}
    ours = {name for name in loaded if name.partition(".")[0] in roots}
    packages = {name.partition(".")[0] for name in ours}
    assert ours - packages == {
        *("tfbuild.commands", "tfcore.errors", "tfcore.option"),
        *("tfbench.commands", "tfwheels.commands"),
        *("tfbench.arms", "tfbench.arms.lever_table"),
        *("tfbench.inside", "tfbench.inside.compile_arguments", "tfbench.inside.runtimes"),
    }


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_option_is_explained(name: str) -> None:
    arguments = collect_commands()[name].get_arguments()
    assert [argument.name for argument in arguments if not argument.help] == []
    helps = ParserContext(name=name, args=arguments).help_tuples()
    assert len(helps) == len(arguments), "which --help prints"


# A line that cannot be read -----------------------------------------------------------------------

UNREADABLE = [
    ("complie", "no command 'complie'. Did you mean compare? See invoke --list all"),
    ("nosuch", "no command 'nosuch'. See invoke --list all"),
    ("lint nosuch", "no command 'nosuch'"),
    ("targets foo", "no command 'foo'"),
    ("--help biuld", "no command 'biuld'. Did you mean build?"),
    ("--list nosuch", "no group 'nosuch'. See invoke --list all"),
    ("plan --zzz 11", "plan has no option --zzz. See invoke --help plan"),
    ("plan --kernel all", "no option --kernel. Did you mean --kernels"),
    ("build --no-preflght", "no option --no-preflght. Did you mean --no-preflight"),
    ("build --remote-headers x", "no option --remote-headers. Did you mean --remote-cache"),
    ("build --remote-timeout=5", "Put other options of Bazel in a file: --bazelrc FILE"),
    ("plan --remote-timeout 5", "no option --remote-timeout. See invoke --help plan"),
    ("--arch haswell plan", "invoke has no option --arch. Put it after the command"),
    ("--search-rot . plan", "invoke has no option --search-rot. Did you mean --search-root or"),
    ("detect --jsn --arch", "detect has no option --jsn. Did you mean --json"),
    ("--dry detect", "--dry before a command is not supported. Use --dry-run after the command"),
    ("detect --arch zen4", "detect has no option --arch. See invoke --help detect"),
    ("publish --to", "publish --to needs a value. See invoke --help publish"),
    ("publish --to --dry-run", "publish --to needs a value"),
    ("--config", "invoke --config needs a value"),
    ("audit", "audit needs WHEEL: path of a wheel. Run: invoke audit WHEEL"),
    ("plan --arch haswell --arch zen4", "--arch is given twice, the second time as 'zen4'"),
    ("plan --arch=haswell --arch=zen4", "--arch is given twice, the second time as 'zen4'"),
    ("targets --json=yes", "--json takes no value, but 'yes' follows it"),
    ("targets --json yes", "--json takes no value, but 'yes' follows it"),
    ("--list-format xml --list", "--list-format xml is unknown. Use flat, nested or json"),
    ("--command-timeout x targets", "'x'. See invoke --help"),
    ("--config pyproject.toml targets", "type 'toml'"),
]


@pytest.mark.parametrize(("line", "message"), UNREADABLE, ids=str)
def test_a_line_that_cannot_be_read_is_a_usage_error(
    line: str, message: str, invoke: Tasks
) -> None:
    text = said(invoke(*line.split()), UsageError.exit_code)
    assert message in text
    assert text.count("\n") == 1


def test_invokes_own_program_hands_over(invoke: Tasks) -> None:
    """`invoke`, as it lies in the environment's bin."""
    script = Path(sys.executable).with_name("invoke")
    done = subprocess.run(
        [script, "lint", "nosuch"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "there is no command 'nosuch'" in said(done, UsageError.exit_code)


# Targets and releases -----------------------------------------------------------------------------


def test_targets_lists_what_arch_accepts(invoke: Tasks) -> None:
    rows = invoke("targets", "--family", "aarch64").stdout.splitlines()
    assert rows[0].split() == ["--arch", "family", "vendor", "runs", "here"]
    assert {row.split()[1] for row in rows[1:]} == {"aarch64"}
    document = json.loads(invoke("targets", "--json").stdout)
    assert {"skylake", "zen3", "neoverse_v1"} <= {target["name"] for target in document}


def test_a_mask_that_hides_nothing_known_is_a_usage_error(invoke: Tasks) -> None:
    for task in ("detect", "targets", "plan"):
        message = said(invoke(task, TENSORWRIGHT_MASK="AVX2"), UsageError.exit_code)
        assert "TENSORWRIGHT_MASK names an unknown CPU feature: 'AVX2'" in message
        assert "Did you mean avx2" in message


def test_an_unknown_family_is_a_usage_error(invoke: Tasks) -> None:
    message = said(invoke("targets", "--family", "sparc"), 2)
    assert "--family sparc" in message
    assert "x86_64 or aarch64" in message


def test_releases_lists_what_release_accepts(invoke: Tasks) -> None:
    rows = invoke("releases").stdout.splitlines()
    assert [row for row in rows if row.startswith("2.14.1 ") and "kernels, full" in row]
    document = json.loads(invoke("releases", "--json").stdout)
    assert [row["version"] for row in document] == [row.split()[0] for row in rows[1:]]


# Plan ---------------------------------------------------------------------------------------------


def test_the_plan_as_json_carries_its_key(invoke: Tasks) -> None:
    document = json.loads(invoke("plan", *DECLARED, "--json").stdout)
    (plan,) = document["plans"]
    assert document["key"] == hash_record(plan)
    assert plan["target"]["name"] == "skylake"
    assert document["estimate"]["seconds"] > 0


def test_the_key_does_not_depend_on_the_machine_or_the_jobs(invoke: Tasks) -> None:
    def key(*words: str, **env: str) -> str:
        document = json.loads(invoke("plan", *DECLARED, "--json", *words, **env).stdout)
        return str(document["key"])

    keys = {
        key(),
        key("--jobs", "7", PYTHONHASHSEED="1"),
        key("--jobs", "1", PYTHONHASHSEED="2", TENSORWRIGHT_CACHE="/nowhere", LC_ALL="C"),
    }
    assert len(keys) == 1


def test_the_plan_says_in_words_what_would_be_done(invoke: Tasks) -> None:
    rows = dict(re.findall(r"^(\w+) +(\S.*)$", invoke("plan", *DECLARED).stdout, re.MULTILINE))
    assert rows["wheel"] == "tensorflow-cpu 2.14.1+skylake for Python 3.11"
    assert rows["flags"] == "-march=skylake -mtune=skylake"
    assert rows["stock"].startswith("tensorflow_cpu-2.14.1-cp311")
    assert rows["scope"] == "kernels"
    assert {"time", "memory", "disk", "jobs", "sources", "verified"} <= set(rows)


def test_a_full_plan_is_complete_and_says_what_was_verified(invoke: Tasks) -> None:
    text = invoke("build", *FULL, "--dry-run").stdout
    for phrase in ("build_pip_package", "--copt=-march=skylake", "TF_NEED_CUDA=0", "verified"):
        assert phrase in text
    assert "not installed" in said(invoke("build", *FULL), 14)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--remote-cache", "https://u:p@host"), "--remote-cache contains a user"),
        (("--bazelrc", "/nowhere"), "--bazelrc /nowhere"),
        (("--tree", "/nowhere"), "--tree /nowhere"),
        (("--define", "x"), "--define 'x' is not NAME=VALUE"),
        (("--keep-going",), "--keep-going needs --scope kernels"),
    ],
)
def test_unusable_options_of_a_full_build_are_named(
    invoke: Tasks, words: tuple[str, ...], message: str
) -> None:
    options = ("--arch", "skylake", "--scope", "full", *words)
    assert message in said(invoke("build", *options), 2)


def test_options_of_a_full_build_are_refused_by_another(invoke: Tasks) -> None:
    assert "--auto-fix needs --scope full" in said(invoke("build", *DECLARED, "--auto-fix"), 2)
    words = (*DECLARED, "--bazelrc", "/nowhere")
    assert "--bazelrc needs --scope full" in said(invoke("build", *words), 2)


def test_native_is_refused_with_a_shared_cache(invoke: Tasks) -> None:
    words = ("--scope", "full", "--arch", "native", "--remote-cache", "https://cache.example.com")
    assert "--arch native" in said(invoke("build", *words), 2)


def test_the_archives_of_a_tree_are_listed(invoke: Tasks, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    change(tree, "WORKSPACE", "local_repository(", DECLARED_ARCHIVE + "local_repository(")
    lines = invoke("vendor", *DECLARED, "--tree", str(tree), "--dry-run").stdout.splitlines()
    assert lines[0] == f"{'0' * 64}  https://example.com/a.tar.gz"
    assert lines[1].startswith("1 archive;")
    document = json.loads(
        invoke("vendor", *DECLARED, "--tree", str(tree), "--dry-run", "--json").stdout
    )
    assert [archive["name"] for archive in document["archives"]] == ["a"]


def test_a_folder_without_a_tree_is_an_error(invoke: Tasks, tmp_path: Path) -> None:
    words = ("--tree", str(tmp_path), "--dry-run")
    assert "TensorFlow source tree" in said(invoke("vendor", *DECLARED, *words), 38)


@pytest.mark.parametrize("choice", [DECLARED, FULL], ids=["kernels", "full"])
def test_container_files_are_written(invoke: Tasks, choice: tuple[str, ...]) -> None:
    done = invoke("containers", *choice, "--vcpus", "2", "--out", "files")
    assert "files in files" in done.stdout
    text = (invoke.folder / "files/build.Dockerfile").read_text()
    assert "@sha256:" in text
    assert "--arch" in text
    assert "--vcpus none" in said(invoke("containers", *choice, "--vcpus", "none"), 2)


def test_native_is_resolved_before_it_is_planned(invoke: Tasks) -> None:
    document = json.loads(invoke("plan", "--compiler", "gcc@99.0", "--json").stdout)
    (plan,) = document["plans"]
    assert plan["target"]["name"] != "native"
    assert "native" not in " ".join(plan["flags"])


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"arch": "skylak"}, 11, "Did you mean skylake"),
        ({"arch": "skylake+avx521f"}, 11, "Did you mean avx512f"),
        ({"arch": "skylake/zen99"}, 11, "zen99"),
        ({"release": "2.14.9"}, 12, "TensorFlow 2.14.9"),
        ({"release": "2.9.3"}, 12, "TensorFlow 2.9.3"),
        ({"compiler": "icc@2021"}, 14, "icc@2021"),
        ({"compiler": "clang@3.0"}, 14, "clang 3.0"),
        ({"compiler": "icpx"}, 14, "called icpx"),
        ({"jobs": "x"}, 2, "--jobs x"),
        ({"jobs": "0"}, 2, "--jobs 0"),
        ({"scope": "x"}, 2, "Use kernels or full"),
        ({"kernels": "No Such"}, 2, "No Such"),
        ({"package": "jax"}, 2, "--package jax"),
        ({"python": "3.11.7"}, 2, "--python 3.11.7"),
        ({"python": "3.8"}, 13, "3.9, 3.10, 3.11"),
    ],
    ids=str,
)
@pytest.mark.parametrize("task", ["plan", "build"])
def test_bad_input_is_one_line_with_a_code_of_its_own(
    task: str, options: dict[str, str], code: int, message: str, invoke: Tasks
) -> None:
    text = said(invoke(task, *chosen(**options)), code)
    assert message in text
    assert text.count("\n") == 1
    assert not invoke.cache.exists()


def test_without_any_compiler_the_package_to_install_is_named(invoke: Tasks) -> None:
    apt = invoke.folder / "apt-get"
    apt.touch()
    apt.chmod(0o755)
    words, env = ("--arch", "x86_64_v3"), {"PATH": str(invoke.folder)}
    planned = invoke("plan", *words, **env)
    assert planned.returncode == 0, planned.stderr
    for message in (said(invoke("build", *words, **env), 14), planned.stderr):
        assert "no C++ compiler for x86_64 is on PATH" in message
        assert "apt-get install " in message
    assert re.search(r"planned with clang \d+", planned.stderr)


def test_quickstart_says_what_it_would_do(invoke: Tasks) -> None:
    done = invoke("quickstart", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "kernels   " in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("compare   stock with the new wheel on mnist_mlp and lstm_text, ")


def test_a_declared_compiler_plans_but_does_not_build(invoke: Tasks) -> None:
    message = said(invoke("build", *DECLARED), 14)
    assert "clang@16.0.6" in message


# aarch64 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["kernels", "full"])
def test_aarch64_is_planned_and_rendered(scope: str, invoke: Tasks) -> None:
    choice = chosen(arch="neoverse_v1", scope=scope)
    assert "-mcpu=neoverse-v1" in invoke("plan", *choice).stdout
    done = invoke("render", *choice, "--out", "rendered")
    assert done.returncode == 0
    assert (invoke.folder / "rendered" / "plan.json").is_file()


def test_an_aarch64_build_without_a_cross_compiler_names_it(invoke: Tasks) -> None:
    message = said(invoke("build", "--arch", "neoverse_v1", PATH=str(invoke.folder)), 14)
    assert "compiler for aarch64" in message


@pytest.mark.toolchain
def test_a_package_without_an_aarch64_wheel_is_refused_before_anything_is_done(
    invoke: Tasks,
) -> None:
    words = ("--arch", "neoverse_v1", "--python", "3.11", "--package", "tensorflow-cpu")
    message = said(invoke("build", *words, "--compiler", "clang-16"), 21)
    assert "cp311 wheel for aarch64" in message
    assert "tensorflow-cpu-aws on aarch64" in message
    assert not invoke.cache.exists()


# Without installing anything ----------------------------------------------------------------------


@pytest.mark.toolchain
@pytest.mark.parametrize("task", ["build", "quickstart", "survey"])
@pytest.mark.parametrize("first", [True, False])
def test_no_task_installs_what_it_must_not(task: str, first: bool, invoke: Tasks) -> None:
    """On a machine that has a compiler, and an npm that would tell of its call."""
    bin_folder, called = invoke.folder / "bin", invoke.folder / "called"
    bin_folder.mkdir()
    for name in ("clang-16", "g++", "ld.gold", "nm", "c++filt", "ld"):
        (bin_folder / name).symlink_to(shutil.which(name) or "/bin/true")
    (bin_folder / "npm").write_text(f"#!/bin/sh\n: >{called}\n")
    (bin_folder / "npm").chmod(0o755)
    words = ("--no-install", task) if first else (task, "--no-install")
    options = () if task == "quickstart" else ("--arch", "x86_64_v2", "--compiler", "clang-16")
    done = invoke(*words, *options, PATH=str(bin_folder))
    assert done.returncode == ToolError.exit_code
    assert "npm install --global @bazel/bazelisk" in done.stderr
    assert not called.exists()


# Doctor -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["nowhere", ".", "x.whl"])
def test_a_place_without_tensorflow_has_no_kernels_to_look_at(place: str, invoke: Tasks) -> None:
    (invoke.folder / "x.whl").touch()
    message = said(invoke("doctor", "--wheel", place), UsageError.exit_code)
    assert f"no TensorFlow is installed in {place}" in message
    assert "invoke audit" in message


# Render -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [DECLARED, FULL], ids=["kernels", "full"])
def test_what_was_rendered_passes_the_check(choice: tuple[str, ...], invoke: Tasks) -> None:
    words = ("render", *choice, "--out", "rendered")
    assert "rendered" in invoke(*words).stdout
    assert invoke(*words, "--verify").returncode == 0


def test_a_check_of_nothing_says_what_is_missing_and_writes_nothing(invoke: Tasks) -> None:
    message = said(invoke("render", *FULL, "--out", "rendered", "--verify"), 23)
    assert "without --verify" in message
    assert not (invoke.folder / "rendered").exists()


def test_a_check_of_a_changed_file_shows_the_difference(invoke: Tasks) -> None:
    words = ("render", *FULL, "--out", "rendered")
    invoke(*words)
    path = invoke.folder / "rendered" / "tensorwright.bazelrc"
    path.write_text(path.read_text().replace("-march=skylake", "-march=native"))
    message = said(invoke(*words, "--verify"), 23)
    assert "-build:tensorwright --copt=-march=native" in message.splitlines()
    assert "+build:tensorwright --copt=-march=skylake" in message.splitlines()
    assert "native" in path.read_text()


def test_a_folder_that_cannot_be_written_is_a_disk_error(invoke: Tasks) -> None:
    (invoke.folder / "file").touch()
    said(invoke("render", *FULL, "--out", "file/rendered"), 18)


# Build --------------------------------------------------------------------------------------------


def test_a_dry_run_does_nothing(invoke: Tasks) -> None:
    before = sorted(invoke.folder.rglob("*"))
    done = invoke("build", *DECLARED, "--dry-run")
    assert done.stdout == invoke("plan", *DECLARED).stdout
    assert done.stderr == ""
    assert sorted(invoke.folder.rglob("*")) == before


# A target and a kernel that no other test builds: the pool has no such wheel.
OWN = ("--arch", "core2", "--kernels", "cwise_op_log", "--python", "3.11", "--compiler", "g++")


@pytest.mark.toolchain
def test_a_cache_that_cannot_be_made_is_a_disk_error(invoke: Tasks) -> None:
    (invoke.folder / "file").touch()
    place = str(invoke.folder / "file" / "cache")
    message = said(invoke("build", *OWN, TENSORWRIGHT_CACHE=place), 18)
    assert place in message


@pytest.mark.toolchain
def test_a_second_build_is_told_to_wait(invoke: Tasks) -> None:
    with settings.lock_folder(invoke.cache, "a test"):
        message = said(invoke("build", *OWN), 22)
    assert f"process {os.getpid()} is using {invoke.cache}" in message


@pytest.fixture
def tooled(invoke: Tasks) -> Tasks:
    """With the tools that are already here, so that nothing is fetched for them."""
    invoke.cache.mkdir()
    (invoke.cache / "tools").symlink_to(settings.paths().tools)
    return invoke


@pytest.mark.toolchain
def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(tooled: Tasks) -> None:
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c")
    if subprocess.run([*prefix, "mount -t tmpfs none /mnt"], check=False).returncode:
        pytest.skip("this kernel lets nobody mount a small disk")
    script = (
        'tools=$(readlink "$0/tools"); mount -t tmpfs -o size=256k none "$0"; '
        'ln -s "$tools" "$0/tools"; exec "$@"'
    )
    done = subprocess.run(
        [*prefix, script, str(tooled.cache), *tooled.argv("build", *OWN)],
        cwd=tooled.folder,
        env=tooled.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 18
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.match(r"error: .* 4\.5 GB in .*, but only 2\d\d\.\d kB", last)
    assert "TENSORWRIGHT_CACHE" in last


@pytest.mark.toolchain
@pytest.mark.parametrize("number", [signal.SIGINT, *later(signal.SIGTERM, signal.SIGHUP)])
def test_a_signal_ends_a_build_and_all_that_it_started(
    tooled: Tasks, number: signal.Signals
) -> None:
    with silent_index() as (env, came, ended):
        with started(tooled, "build", *OWN, **env) as process:
            assert came.wait(120), "the build did not ask the index for the stock wheel"
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=60)
        assert ended.wait(30), "pip is still waiting for the index"
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped")
    assert out == ""
    assert not list(tooled.cache.rglob("*.whl"))
    with settings.lock_folder(tooled.cache, "a test"):
        pass


# Where the output goes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [("targets",), ("releases", "--json"), ("plan", *DECLARED), ("--list",), ("--help", "build")],
)
def test_a_reader_that_goes_away_ends_a_task_quietly(words: tuple[str, ...], invoke: Tasks) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        invoke.argv(*words),
        cwd=invoke.folder,
        env=invoke.env,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE


def test_a_reader_of_both_that_goes_away_is_told_nothing(invoke: Tasks) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = invoke.argv("plan", *DECLARED, "--no-such")
    done = subprocess.run(words, cwd=invoke.folder, stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("line", ["audit --help", "audit -h", "--help audit", "build -c g++ -h"])
def test_help_is_of_the_task_that_it_stands_behind(invoke: Tasks, line: str) -> None:
    """Also where the task has an argument, which Invoke would take --help to be."""
    done = invoke(*line.split())
    name = "build" if "build" in line else "audit"
    assert (done.returncode, done.stderr) == (0, "")
    assert f" {name} [--options]" in done.stdout
