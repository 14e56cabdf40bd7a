"""Every option that a full build gives Bazel, against the Bazels that can be had here: Debian's
4.2.3 and sid's 7.7.1. They serve four releases. Options for a Bazel between them are held against
both: what both accept, it accepts; what one refuses must stand in `BY_VERSION`.

The words are those of `compile_wheel`, which here runs a program that writes them down. `info`
takes every option of `build`, and Bazel reads each option by itself: those of several calls go into
one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from packaging.version import Version
from tests.builders import newer_bazel
from tests.builders.cache_servers import rc_of
from tests.builders.trees import reduced_tree

from tfbuild.commands import Request
from tfbuild.machine import memory
from tfbuild.planning import render
from tfbuild.planning.plan import FullPlan, make_full_plan
from tfbuild.planning.request import resolve
from tfbuild.remote import bazelrc, caches, toolchain
from tfbuild.remote.caches import Remote
from tfbuild.tools import pgo
from tfbuild.tools.bazel import DEBIAN_BAZEL, Bazel
from tfbuild.treebuild import build
from tfbuild.treebuild.build import Order
from tfbuild.treebuild.compiling import BazelCall, compile_wheel
from tfbuild.treebuild.differences import adapt_recipe
from tfbuild.treebuild.site import Site, write_repositories
from tfbuild.treebuild.tree import SourceTree, read_tree
from tfbuild.upstream.releases import Release, find_release, load_releases
from tfbuild.vendoring.vendor_folder import SCHEMA, VendoredFile, VendorLock
from tfbuild.watching.attempt import Attempt
from tfcore import settings
from tfcore.cpus.compilers import Compiler, find_compiler
from tfcore.errors import BuildError, UsageError
from tfcore.run import run
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.slow]

OLD, NEW = "4.2.3", "7.7.1"
ARCHS = ("skylake", "sapphirerapids", "neoverse_v1")
# The first version that is not given the option. A no-op from 6.0.0 on (bazelbuild/bazel#17731), it
# is gone in 7 (google/jax#16682; 7.0.2 refuses it).
BY_VERSION = {"--distinct_host_configuration": Version("6")}
# With a cluster it is given from this version on: before it Bazel refuses the pair
# (bazelbuild/bazel#13852).
DISK_WITH_EXECUTOR = Version("5")
# Of the other Bazel: --local_resources came with 7.1.0 (bazelbuild/bazel#21331), --disk_cache's
# limit with 7.4.
FOREIGN = {
    OLD: ("--local_resources=memory=1", "--experimental_disk_cache_gc_max_size=1G"),
    NEW: ("--distinct_host_configuration=true", "--experimental_execution_log_file=/e"),
}
WRONG = ("--nosuchflag=1", "--jobs=many", "--local_ram_resources=4GB", "--config=tensorwrite")
DEBIAN = ("--install_base=/usr/share/bazel", "--trust_install_base")
# Where nobody answers, that is known after the first attempt, and no error.
AT_ONCE = ("--remote_retries=0", "--remote_local_fallback")
HEADER = "--remote_header=Authorization=Bearer token"
ODD = r"""# a comment \
build of two lines
build "--define=a=b c" '--define=d="e' --define=f="'g'"
	b"uil"d --define=h=\"i\#\ j "--define=k=\l\"m" '--define=n=\'o' # not this one
build --define=p=q\
r --define=s=t#u
build --define=v=w\\

build --define=x=y\\\z
build --define=z="left open  """
RECORDER = '#!/bin/sh\nprintf \'%s\\0\' "$@" > "$0.words"\nexit 1\n'
# Asks Bazel inside the other system: a line with words and a folder, a line with what came of them.
DRIVER = """
import json, subprocess, sys
for line in sys.stdin:
    words, folder = json.loads(line)
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
    print(json.dumps([done.returncode, done.stdout]), flush=True)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What Bazel is called with, in the folder of the tree."""

    startup: tuple[str, ...]
    options: tuple[str, ...]
    folder: Path

    @property
    def names(self) -> frozenset[str]:
        return frozenset(map(name_of, self.options))

    def without(self, *names: str) -> Words:
        options = tuple(option for option in self.options if name_of(option) not in names)
        return replace(self, options=options)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    code: int
    said: str

    @property
    def accepted(self) -> bool:
        return self.code == 0

    def refuses(self, option: str) -> bool:
        lines = [line for line in self.said.split("\n") if line.startswith("ERROR: ")]
        return self.code == 2 and len(lines) == 1 and option in lines[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The options of a release for Bazel `claimed`, given to Bazel `run`."""

    release: str
    claimed: str
    run: str

    @property
    def key(self) -> tuple[str, str]:
        return self.release, self.claimed

    def __str__(self) -> str:
        away = "" if self.claimed == self.run else f" (not here), on {self.run}"
        return f"{self.release} for {self.claimed}{away}"


def cases() -> Iterator[Case]:
    for release in load_releases():
        versions = [version for version in (OLD, NEW) if release.can_use_bazel(version)]
        yield from (Case(release=release.version, claimed=name, run=name) for name in versions)
        if Version(OLD).major < Version(release.bazel).major < Version(NEW).major:
            for word in (OLD, NEW):
                yield Case(release=release.version, claimed=release.bazel, run=word)


CASES = tuple(cases())
SERVED = tuple(case for case in CASES if case.claimed == case.run)
BETWEEN = tuple(case for case in CASES if case.claimed != case.run)


def gone(version: str) -> frozenset[str]:
    """The options that this Bazel is not given."""
    return frozenset(name for name, first in BY_VERSION.items() if Version(version) >= first)


def misfits(words: Words, version: str) -> dict[str, str]:
    """The options that this Bazel refuses, and what it says of each."""
    fields = {name: name for name in words.names & gone(version)}
    with_disk = {"--remote_executor", "--disk_cache"} <= words.names
    if with_disk and Version(version) < DISK_WITH_EXECUTOR:
        fields["--disk_cache"] = "Cannot combine gRPC based remote execution with disk caching"
    return fields


def name_of(option: str) -> str:
    return option.partition("=")[0]


Written = Mapping[tuple[str, str], Mapping[str, Words]]
"""For each release and version of Bazel, by cache or cluster, the options of all calls at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where calls are written down. `folder` is seen by both Bazels under the same name."""

    folder: Path
    compiler: Compiler
    recorder: Path
    paths: Paths

    def tree(self, release: str) -> SourceTree:
        folder = reduced_tree(self.folder / "trees" / release, release)
        (folder / "WORKSPACE").touch()
        return read_tree(folder)

    def site(self, plan: FullPlan, tree: SourceTree, bazel: Bazel, name: str) -> Site:
        recipe = adapt_recipe(plan.full_recipe, tree, bazel.version)
        folder = self.folder / "sites" / plan.release / bazel.version / name
        render.write(render.render(replace(plan, full_recipe=recipe), self.paths.templates), folder)
        return Site(
            plan=plan,
            recipe=recipe,
            compiler=self.compiler,
            tree=tree,
            differences=(),
            bazel=bazel,
            repositories=write_repositories(bazel, recipe, self.paths),
            python=Path(sys.executable),
            source_sha256="0" * 64,
            folder=folder,
            paths=self.paths,
        )

    def bazel(self, version: str, *, debian: bool = False) -> Bazel:
        return Bazel(bazelisk=self.recorder, use=version, version=version, debian=debian)

    def written(self, site: Site, call: BazelCall) -> Words:
        """What compile_wheel calls."""
        first = Attempt(jobs=call.budget.jobs, defines=("xnn_enable_avx512fp16=false",))
        with pytest.raises(BuildError):
            compile_wheel(site, call, first)
        words = Path(f"{self.recorder}.words").read_text().split("\0")[:-1]
        at = words.index("build")
        assert words[-1] == site.recipe.target
        return Words(
            startup=tuple(words[:at]),
            options=tuple(words[at + 1 : -1]),
            folder=site.tree.folder,
        )


def calls(site: Site, remote: Remote) -> tuple[BazelCall, ...]:
    """The calls of a build from a vendor folder: where the plan says so, two for its profile."""
    item = VendoredFile(path="wheels/a.whl", urls=(), sha256="", size=0)
    lock = VendorLock(
        schema=SCHEMA,
        release=site.plan.release,
        bazel=site.bazel.version,
        from_system=False,
        first_use={},
        files=(item,),
        key="",
    )
    order = Order(
        budget=memory.choose_budget(8_000, 2), vendored=site.paths.cache / "vendor", remote=remote
    )
    call = build._create_call(site, order, lock)
    if not site.plan.full_recipe.training:
        return (call,)
    learned = pgo.build_use_option(site.folder / "learned.profdata")
    return tuple(replace(call, options=(*call.options, name)) for name in (pgo.INSTRUMENT, learned))


def variants(release: Release, program: Path) -> Iterator[tuple[str, FullPlan]]:
    """A plan for each target: plain, with LTO, with PGO."""
    request = Request(release=release.version, scope="full", compiler="clang@16.0.6")
    for arch in ARCHS:
        for kind, chosen in (
            ("plain", request),
            ("lto", replace(request, lto=True)),
            ("pgo", replace(request, pgo=str(program))),
        ):
            yield f"{arch}-{kind}", make_full_plan(resolve(replace(chosen, arch=arch)))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    identified = functools.cache(toolchain.identify_toolchain)
    with (
        tempfile.TemporaryDirectory(prefix="tensorwright-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        # The same compiler's files need not be hashed for each call.
        patch.setattr(toolchain, "identify_toolchain", identified)
        folder = Path(name)
        recorder = folder / "recorder"
        recorder.write_text(RECORDER)
        recorder.chmod(0o755)
        own_paths = Paths(root=settings.ROOT, cache=folder / "cache", pool=folder / "pool")
        yield Bench(folder=folder, compiler=find_compiler(), recorder=recorder, paths=own_paths)


@pytest.fixture(scope="module")
def remotes(bench: Bench) -> Mapping[str, Remote]:
    """Where nobody answers. Bazel opens the files for TLS, and asks a gRPC cache what it can do:
    `info` goes on without, for the build falls back to this machine."""
    key, authority = bench.folder / "client.key", bench.folder / "ca.pem"
    key_options = ("-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1")
    run(["openssl", "req", "-x509", *key_options, "-keyout", key, "-out", authority])
    tls = (f"--tls_client_certificate={authority}", f"--tls_client_key={key}")
    trusted = f"--tls_certificate={authority}"
    lines = {
        "http": (HEADER, "--remote_timeout=5s"),
        "https": (trusted, "--noremote_upload_local_results"),
        "grpcs": (HEADER, trusted, *tls, "--remote_instance_name=main"),
        "cluster": (
            "--remote_default_exec_properties=OSFamily=linux",
            "--remote_default_exec_properties=container-image=docker://image@sha256:0",
        ),
    }
    rcs = {name: bench.folder / "rcs" / name for name in lines}
    for folder in rcs.values():
        folder.mkdir(parents=True)
    files = {name: rc_of(rcs[name], *options) for name, options in lines.items()}
    return {
        "none": Remote(),
        "http": caches.resolve_remote(cache="http://127.0.0.1:9", rc=files["http"]),
        "https": caches.resolve_remote(cache="https://127.0.0.1:9/tf", rc=files["https"]),
        "grpcs": caches.resolve_remote(cache="grpcs://127.0.0.1:9", rc=files["grpcs"]),
        "cluster": caches.resolve_remote(executor="grpcs://127.0.0.1:9", rc=files["cluster"]),
    }


@pytest.fixture(scope="module")
def written(bench: Bench, remotes: Mapping[str, Remote]) -> Written:
    """All calls of each release for each version of Bazel."""
    program = bench.folder / "training.py"
    program.touch()
    actual: dict[tuple[str, str], dict[str, Words]] = {}
    for release, claimed in {case.key: None for case in CASES}:
        tree, bazel = bench.tree(release), bench.bazel(claimed)
        sites = [
            bench.site(plan, tree, bazel, name)
            for name, plan in variants(find_release(release), program)
        ]
        actual[release, claimed] = {
            name: union(bench.written(site, call) for site in sites for call in calls(site, remote))
            for name, remote in remotes.items()
            if usable(remote, bazel)
        }
    return actual


def usable(remote: Remote, bazel: Bazel) -> bool:
    with contextlib.suppress(UsageError):
        caches.check_remote(remote, bazel)
        return True
    return False


def union(several: Iterable[Words]) -> Words:
    """Their options, each once, in order."""
    several = tuple(several)
    startup = itertools.chain.from_iterable(words.startup for words in several)
    options = itertools.chain.from_iterable(words.options for words in several)
    return Words(
        startup=tuple(dict.fromkeys(startup)),
        options=tuple(dict.fromkeys(options)),
        folder=several[0].folder,
    )


@pytest.fixture(scope="module")
def every(written: Written) -> Words:
    """The options of all calls for all releases."""
    return union(
        words for options_by_name in written.values() for words in options_by_name.values()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Real:
    """A Bazel that runs here, kept by a process that asks it."""

    version: str
    program: str | Path
    workspace: Path
    driver: subprocess.Popen[str]

    def ask(self, words: Words) -> Answer:
        """What `info` says to the options of a build. One server, which belongs to one workspace,
        answers for all trees: the tree's own .bazelrc is given to it."""
        tree = f"--bazelrc={words.folder / '.bazelrc'}"
        startup = (tree, *(word for word in words.startup if word != "--batch"), *self._server())
        options = [self._spoken(option) for option in words.options]
        return self._answer([*startup, "info", *options, *AT_ONCE, "release"], self.workspace)

    def _spoken(self, option: str) -> str:
        """Debian's Java in 4.2.3 ends over gRPC with TLS, which `caches.check_remote` sees to."""
        return option.replace("=grpcs://", "=grpc://") if self.version == OLD else option

    def as_it_is(self, words: Words) -> Answer:
        return self._answer([*words.startup, "info", *words.options, "release"], words.folder)

    def alone(self, option: str, words: Words) -> Answer:
        """Without the bazelrcs of users, whose lines are options as well."""
        startup = tuple(word for word in words.startup if not word.endswith("user.bazelrc"))
        return self.ask(replace(words, startup=startup, options=(option,)))

    def own_version(self) -> str:
        return self._answer(["--version"], self.workspace).said.split()[-1]

    def end(self) -> None:
        self._answer([*self._server(), "shutdown"], self.workspace)

    def _server(self) -> tuple[str, ...]:
        base_options = (
            "--max_idle_secs=60",
            "--host_jvm_args=-Xmx1g",
            "--nosystem_rc",
            "--nohome_rc",
        )
        return (*base_options, *DEBIAN, f"--output_user_root={self.workspace}.output")

    def _answer(self, words: Sequence[str], folder: Path) -> Answer:
        stdin, stdout = self.driver.stdin, self.driver.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([[str(self.program), *words], str(folder)]) + "\n")
        stdin.flush()
        code, output = json.loads(stdout.readline())
        return Answer(code=code, said=output)


@contextlib.contextmanager
def running(version: str, program: str | Path, folder: Path, *driven: str | Path) -> Iterator[Real]:
    """`driven` are the words that start the driver's Python."""
    workspace = folder / f"workspace-{version}"
    workspace.mkdir()
    (workspace / "WORKSPACE").touch()
    pipe = subprocess.PIPE
    with subprocess.Popen([*driven, "-c", DRIVER], stdin=pipe, stdout=pipe, text=True) as driver:
        real = Real(version=version, program=program, workspace=workspace, driver=driver)
        yield real
        real.end()


@pytest.fixture(scope="module")
def older(bench: Bench) -> Iterator[Real]:
    if not DEBIAN_BAZEL.is_file():
        pytest.skip(f"{DEBIAN_BAZEL} is not installed: apt-get install bazel-bootstrap")
    with running(OLD, DEBIAN_BAZEL, bench.folder, sys.executable) as real:
        yield real


@pytest.fixture(scope="module")
def newer(bench: Bench, paths: Paths) -> Iterator[Real]:
    command = newer_bazel.inside(newer_bazel.sid(paths), bench.folder)
    with running(NEW, newer_bazel.BAZEL, bench.folder, *command, "python3") as real:
        actual = real.own_version()
        if not find_release("2.21.0").can_use_bazel(actual):
            pytest.fail(f"Debian sid has Bazel {actual} now: look for another of {NEW}'s range")
        yield real


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Real:
    """The Bazel of the test's parameter `run`."""
    actual: Real = request.getfixturevalue({OLD: "older", NEW: "newer"}[request.param])
    return actual


def on(*chosen: Case) -> pytest.MarkDecorator:
    pairs = [pytest.param(case, case.run, id=str(case)) for case in chosen]
    return pytest.mark.parametrize(("case", "real"), pairs, indirect=["real"])


on_both = pytest.mark.parametrize("real", [OLD, NEW], indirect=True)


@on(*SERVED)
def test_a_bazel_of_the_releases_range_takes_all(case: Case, real: Real, written: Written) -> None:
    for name, words in written[case.key].items():
        answer = real.ask(words)
        assert answer.accepted, (name, answer.said)


@on(*BETWEEN)
def test_a_bazel_outside_the_range_refuses_what_the_table_says(
    case: Case, real: Real, written: Written
) -> None:
    for name, words in written[case.key].items():
        refused = misfits(words, real.version)
        answer = real.ask(words.without(*refused))
        assert answer.accepted, (name, answer.said)
        for option, text in refused.items():
            other_names = refused.keys() - {option}
            assert real.ask(words.without(*other_names)).refuses(text)


@pytest.mark.parametrize("case", {case.key: case for case in CASES}.values(), ids=str)
def test_an_option_that_is_gone_is_not_given(case: Case, written: Written, bench: Bench) -> None:
    names = union(written[case.key].values()).names
    expected = bench.tree(case.release).shares_host_flags
    assert names & set(BY_VERSION) == (set(BY_VERSION) - gone(case.claimed) if expected else set())


@on_both
def test_no_other_option_depends_on_the_version(real: Real, every: Words) -> None:
    """Each by itself: those of the command line and those of the rendered bazelrc."""
    options: dict[str, str] = {}
    for word in (*every.options, *rendered(every)):
        options.setdefault(name_of(word), word)
    refused = {name for name, option in options.items() if not real.alone(option, every).accepted}
    assert refused == gone(real.version)


def rendered(words: Words) -> Iterator[str]:
    for rc in (Path(word.partition("=")[2]) for word in words.startup if "bazelrc=" in word):
        for line in rc.read_text().splitlines():
            if line.startswith("build"):
                yield line.partition(" ")[2].strip('"')


@on_both
@pytest.mark.parametrize("cache", ["none", "http"])
def test_the_startup_options_are_taken_as_they_are(
    real: Real, bench: Bench, remotes: Mapping[str, Remote], cache: str
) -> None:
    case = next(case for case in SERVED if case.run == real.version)
    bazel = bench.bazel(case.claimed, debian=real.version == OLD)
    remote = remotes[cache]
    request = Request(arch="skylake", release=case.release, scope="full", compiler="clang@16.0.6")
    site = bench.site(make_full_plan(resolve(request)), bench.tree(case.release), bazel, "as-it-is")
    (call,) = calls(site, remote)
    words = bench.written(site, call)
    # The product knows the startup options that Debian's Bazel needs, of 4.2.3 alone.
    needs = () if bazel.debian else DEBIAN
    answer = real.as_it_is(replace(words, startup=(*needs, *words.startup)))
    assert answer.accepted, answer.said


@on_both
@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_option_is_refused(real: Real, every: Words, option: str) -> None:
    assert real.alone(option, every).refuses(option.removeprefix("--config="))


@pytest.mark.parametrize(
    ("real", "option"),
    [(version, option) for version, options in FOREIGN.items() for option in options],
    indirect=["real"],
)
def test_an_option_of_the_other_bazel_is_refused(real: Real, every: Words, option: str) -> None:
    assert real.alone(option, every).refuses(option)


@on_both
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("build:tensorwright --nosuchflag=1", "--nosuchflag=1"),
        ("build:tensorwright --copt", "--copt"),
        ("build --remote_header=ab", "--remote_header=ab"),
    ],
)
def test_a_wrong_line_of_a_bazelrc_is_refused(
    real: Real, bench: Bench, every: Words, line: str, message: str
) -> None:
    rc = bench.folder / "wrong.bazelrc"
    rc.write_text(f"{line}\n")
    wrong = replace(every, startup=(*every.startup, f"--bazelrc={rc}"))
    assert real.alone("--config=tensorwright", wrong).refuses(message)


@on_both
def test_a_bazelrc_is_split_as_bazel_splits_it(real: Real, bench: Bench, every: Words) -> None:
    rc = bench.folder / "odd.bazelrc"
    rc.write_text(ODD)
    words = [word for _, line in bazelrc._join_lines(ODD) for word in bazelrc.split_words(line)[1:]]
    assert len(words) == ODD.count("--define")
    answer = real.ask(replace(every, startup=(f"--bazelrc={rc}",), options=("--announce_rc",)))
    assert f"'build' options: {' '.join(words)}\n" in answer.said


@on_both
@pytest.mark.parametrize("option", ["--nosuchstartup", "--bazelrc=/nonexistent.bazelrc"])
def test_a_wrong_startup_option_is_refused(real: Real, every: Words, option: str) -> None:
    answer = real.alone("--config=tensorwright", replace(every, startup=(*every.startup, option)))
    assert answer.code == 2
    assert option.removeprefix("--bazelrc=") in answer.said
