"""Whatever stands in a file, its reader answers with a value or with an error of ours, which is a
line that a terminal can take; in bounded time and memory, and without writing anywhere else."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import lzma
import re
import socketserver
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import markupsafe._speedups
import pytest
from elftools.elf.sections import NoteSection
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import recorded_cpus, report_comparisons
from tests.builders.audit_cases import CORE, STEM, packed, stock_wheel, tuned_wheel
from tests.builders.compiled_code import KERNEL, QUICK, library
from tests.builders.confined_runs import confined
from tests.builders.conformance_records import SHA, record, trial
from tests.builders.examples import at_most
from tests.builders.index_wheels import entry_of, stand_in, tuned_for
from tests.builders.kernel_call_sites import call_site
from tests.builders.kit_lines import line
from tests.builders.mutations import altered, torn
from tests.builders.profiles import profile, program
from tests.builders.recordings import SETTING, run
from tests.builders.staging import STAGING
from tests.builders.structure_tables import tables
from tests.builders.vendor_folders import make_folder
from tests.builders.xgetbv import XGETBV

from tfbench.arms import lineup
from tfbench.costs import article, catalog, kit_runs
from tfbench.engine import folder as folders
from tfbench.engine import journal
from tfbench.experiments.accuracy import curve_file
from tfbench.experiments.strategies import published as figures
from tfbench.hosts.host_table import load_hosts
from tfbench.hosts.results import OUTCOME, read_result
from tfbench.inside import kit as inside_kit
from tfbench.kernels import profiles
from tfbench.kit.phases import group_launches
from tfbench.measuring.comparing import KIND
from tfbench.measuring.replay import recompute_comparison as computed_again
from tfbench.measuring.samples import KINDS
from tfbuild.auditing.audit import audit, describe
from tfbuild.binaries import census, elf
from tfbuild.kernelbuild.structures import KERNELS
from tfbuild.kernelbuild.structures import WHEEL as WHEEL_TABLE
from tfbuild.packing import conformance, tuned, wheel
from tfbuild.planning import selection
from tfbuild.remote import bazelrc
from tfbuild.remote.caches import check_settings, resolve_remote
from tfbuild.upstream import source
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.registrations import find_ops
from tfbuild.upstream.registrations import strip_comments as plain_text
from tfbuild.vendoring import declarations, vendor_folder
from tfbuild.watching.events import read_outcome
from tfcore.comparisons import comparison
from tfcore.cpus.cpu import parse_cpuinfo
from tfcore.errors import (
    ChecksumError,
    PublishError,
    RecordError,
    TensorwrightError,
    WheelError,
)
from tfcore.records import convert_record, format_json, load
from tfcore.settings import ROOT, Paths
from tfwheels import catalog as index_catalog
from tfwheels import pages
from tfwheels.entry import read_entry
from tfwheels.gate import find_comparisons
from tfwheels.remote import Credentials, open_index
from tfwheels.upload import plan_uploads

# What fails is printed whole, however long it is.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

DATA = ROOT / "tests" / "data"
MANY = 1500
"""Examples of each reader in the second tier, half a minute of the slowest."""
LONGEST = 2000
"""Characters of a message."""
WHEEL = "tensorflow_cpu-2.14.1+haswell-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
INFO = "tensorflow_cpu-2.14.1+haswell.dist-info"
HOST_OUTCOME = (
    b'{"schema": 1, "status": "done", "seconds": 1.5, "cpu": "A CPU", "target": "zen4", '
    b'"usable": 2, "refused": [["wheel-2", "lacks avx512f"]]}'
)
HOSTS = b"""[defaults]
user = "ubuntu"
[hosts.a]
port = 2222
vcpus = [1, 2]
environment = { A = "b" }
"""
NOW = "2026-11-21T12:00:00Z"
Read = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`reads` are what is done with a file of this name, one after the other, and `inputs` gives
    what stands in it. `beside` are other files of its folder."""

    name: str
    inputs: Callable[[], st.SearchStrategy[bytes]]
    reads: tuple[Read, ...]
    beside: Mapping[str, bytes] = field(default_factory=dict)


# --- what is sound --------------------------------------------------------------------------------


@functools.cache
def sound_members() -> Mapping[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = stand_in(Path(folder), "2.14.1+haswell", targets=("haswell",), content=b"x" * 300)
        assert path.name == WHEEL
        with zipfile.ZipFile(path) as archive:
            return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(members: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return sink.getvalue()


@st.composite
def with_torn_member(draw: st.DrawFn) -> bytes:
    members = dict(sound_members())
    name = draw(st.sampled_from(sorted(members)))
    members[name] = draw(torn(members[name]))
    return zipped(members)


def with_facts(facts: bytes) -> bytes:
    return zipped({**sound_members(), f"{INFO}/{tuned.FILE}": facts})


@functools.cache
def recorded_run() -> Mapping[str, bytes]:
    """run.json and the journal, of few lines."""
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@functools.cache
def sources() -> bytes:
    """A small tree in a tar, with every kind of member."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in {
            "top/tensorflow/core/a.h": b"#pragma once",
            f"top/tensorflow/core/{'long' * 40}.h": b"",
            "top/third_party/eigen3/Eigen/Core": b"x" * 600,
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for kind, target in (
            (tarfile.SYMTYPE, "a.h"),
            (tarfile.LNKTYPE, "top/tensorflow/core/a.h"),
        ):
            member = tarfile.TarInfo(f"top/tensorflow/core/link{kind.decode()}.h")
            member.type, member.linkname = kind, target
            tar.addfile(member)
    return sink.getvalue()


def vendor_lock() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return convert_record(make_folder(Path(folder)))


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@st.composite
def with_altered_line(draw: st.DrawFn, sound: bytes) -> bytes:
    """A file of JSON lines in which one is altered."""
    rows = sound.splitlines()
    number = draw(st.integers(0, len(rows) - 1))
    rows[number] = draw(altered(json.loads(rows[number])))
    return b"\n".join([*rows, b""])


def torn_or_altered(sound: bytes) -> st.SearchStrategy[bytes]:
    return torn(sound) | altered(json.loads(sound))


def torn_or_altered_lines(sound: bytes) -> st.SearchStrategy[bytes]:
    return torn(sound) | with_altered_line(sound)


# --- what is done with it -------------------------------------------------------------------------


def unpack_wheel(path: Path) -> None:
    wheel.extract(path, ("tensorflow_cpu/", f"{INFO}/METADATA"), path.parent / "out" / "here")


def use_facts(path: Path) -> None:
    facts = tuned.read_tuned(path)
    if facts is not None:
        cpu = recorded_cpus.cpu_of("haswell")
        tuned.choose_build(facts, cpu)
        tuned.list_nearest_missing(facts, cpu)
        tuned.is_control(facts)
        conformance.list_statuses(facts, None)
        facts.to_bytes()


def use_admission(path: Path) -> None:
    conformance_record = conformance.read_record(path.with_name(WHEEL), SHA)
    for status in conformance.list_statuses(tuned_for(("zen4",)), conformance_record):
        conformance.describe(status)
    if conformance_record is not None:
        format_json(conformance_record)


def use_index(path: Path) -> None:
    actual = index_catalog.parse(path.read_bytes(), "here")
    pages.render(actual.entries, "x86_64")
    index_catalog.merge_entries(actual.entries, [entry_of("2.14.1")])


def go_on(path: Path) -> None:
    paths = Paths(root=path.parent, cache=path.parent, pool=path.parent)
    folders.find_unfinished(KIND, SETTING, [path.parent])
    folders.find_newest(KIND, paths)
    folders.begin(KIND, SETTING, path.parent)


def use_result(path: Path) -> None:
    folders.require_unfinished(KIND, path.parent)


def use_comparison(path: Path) -> None:
    find_comparisons(path.parent, SHA)
    measured_comparison = comparison.load(path)
    format_json(measured_comparison)


def use_profile(path: Path) -> None:
    profiles.rank_call_sites(profiles.read_profile(path))


def use_kit(path: Path) -> None:
    kit_launches = kit_runs.read_launches(path)
    group_launches(kit_launches)
    kit_runs.compose_runs(kit_launches, catalog.find_book("2017-07-gce").prices[0])


def resume_kit(path: Path) -> None:
    with contextlib.suppress(SystemExit):  # (its way to say an error in a line)
        inside_kit.read_launches(path)


def look_into_library(path: Path) -> None:
    code = elf.read_code(path)
    elf.find_symbols(path, [code.sections[0].address] if code.sections else ())


def unpack_sources(path: Path) -> None:
    paths = Paths(root=path.parent, cache=path.parent / "cache", pool=path.parent)
    source.unpack(path, hash_file(path), paths)


def plain_source(path: Path) -> str:
    return plain_text(path.read_text(encoding="utf-8", errors="replace"))


def stage_sources(path: Path) -> None:
    paths = Paths(root=path.parent, cache=path.parent / "cache", pool=path.parent)
    source.stage(path, hash_file(path), STAGING, paths)


ON_WHEELS: tuple[Read, ...] = (
    wheel.read_identity,
    wheel.read_stem,
    wheel.verify_record,
    wheel.read_record,
    lambda path: wheel.read_member(path, f"{INFO}/METADATA"),
    unpack_wheel,
    use_facts,
    lambda path: read_entry(path, published=NOW),
)
ON_LIBRARIES: tuple[Read, ...] = (
    census.count_instructions,
    lambda path: census.find_uses(path, {"avx", "undecoded"}, 3),
    lambda path: census.count_by_function(path, ()),
    elf.read_version_floors,
    elf.list_needed,
    elf.read_isa_level,
    look_into_library,
)
LIBRARY = Path(markupsafe._speedups.__file__)
BOOK = (DATA.parents[1] / "benchmarks/tfbench/costs/books/2017-07-gce.toml").read_bytes()
LINEUP = b"""[[arm]]
name = "stock"
tolerance = 0.01

[[arm]]
name = "fast"
wheel = "a.whl"
onednn = true
intra = 2
env = {TF_X = "1"}
"""
KERNEL_SOURCE = b"""#include "a.h"
#ifdef INTEL_MKL
#undef INTEL_MKL
#endif
#if defined(A) && !defined(B) || C >= 2
#define REGISTER(T) /* one */ \\
  REGISTER_KERNEL_BUILDER(Name("X" #T).Device(DEVICE_CPU).TypeConstraint<T>("T"), Op##T)
#else
#define REGISTER(T, ...) REGISTER_KERNEL_BUILDER(Name("Y").Device(DEVICE_CPU), Op<T>)
#endif
REGISTER(float);
"""
CATALOGUE = b"""InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,Region,Price,SpotPrice
m8,8,32,,,r,0.5,0.1
,,,K80,4,r,0.7,
"""
BAZELRC = b"""# the cluster's
build "--remote_header=a=b c" --remote_cache=grpcs://h:1 \\
  --tls_certificate=/nonexistent
build:ci --copt '-DX="y"' # more
common --jobs=4
"""
CURVE = b"epoch\thours\ttop1Accuracy\n1\t0.5\t30.5\n2\t1\t70\n"
CANDIDATE = b'{"costPerHour": 1.5, "hardware": "m8", "timestamp": "2018-04-20"}'
WORKSPACE = b"""workspace(name = "org_tensorflow")
load("//third_party:repo.bzl", "tf_http_archive")
V = "1." + "2"
def deps(name = "x"):
    tf_http_archive(
        name = name,
        sha256 = "%s",
        urls = tf_mirror_urls("https://a.example/{}.tar.gz".format(V)),
    )
http_archive(name = "b", sha256 = "%s", urls = ["https://b.example/%%s.zip" %% V])
""" % (b"a" * 64, b"b" * 64)
READERS: Mapping[str, Reader] = {
    "wheel": Reader(name=WHEEL, inputs=lambda: torn(zipped(sound_members())), reads=ON_WHEELS),
    "members of a wheel": Reader(name=WHEEL, inputs=with_torn_member, reads=ON_WHEELS),
    "tuned.json": Reader(
        name=WHEEL,
        inputs=lambda: altered(convert_record(tuned_for(("haswell", "zen4")))).map(with_facts),
        reads=(use_facts, lambda path: read_entry(path, published=NOW)),
    ),
    "record of an admission": Reader(
        name=conformance.get_record_path(Path(WHEEL)).name,
        inputs=lambda: torn_or_altered(format_json(record(SHA, zen4=trial())).encode()),
        reads=(use_admission,),
    ),
    "library": Reader(name="a.so", inputs=lambda: torn(LIBRARY.read_bytes()), reads=ON_LIBRARIES),
    "catalog of an index": Reader(
        name="catalog.json",
        inputs=lambda: torn_or_altered(
            index_catalog.Catalog(
                entries=(entry_of("2.14.1"), entry_of("2.14.1+zen4", targets=("zen4",)))
            ).to_bytes()
        ),
        reads=(use_index,),
    ),
    "journal": Reader(
        name="journal.jsonl",
        inputs=lambda: torn_or_altered_lines(
            b"\n".join(recorded_run()[KIND.journal].splitlines()[:6]) + b"\n"
        ),
        reads=(lambda path: journal.read_entries(path, KINDS),),
    ),
    "packed journal": Reader(
        name="journal.jsonl.xz",
        inputs=lambda: torn(lzma.compress(recorded_run()[KIND.journal])),
        reads=(lambda path: journal.read_entries(path, KINDS),),
    ),
    "question of a run": Reader(
        name=KIND.spec,
        inputs=lambda: torn_or_altered(recorded_run()[KIND.spec]),
        reads=(go_on, lambda path: computed_again(path.parent)),
        beside={KIND.journal: b""},
    ),
    "recorded run": Reader(
        name=KIND.journal,
        inputs=lambda: torn_or_altered_lines(recorded_run()[KIND.journal]),
        reads=(lambda path: computed_again(path.parent),),
        beside={KIND.spec: recorded_run()[KIND.spec]},
    ),
    "comparison": Reader(
        name=comparison.FILE,
        inputs=lambda: torn_or_altered(format_json(report_comparisons.sound()).encode()),
        reads=(use_comparison, use_result),
    ),
    "outcome of a host": Reader(
        name=OUTCOME,
        inputs=lambda: torn_or_altered(HOST_OUTCOME),
        reads=(lambda path: read_result(path.parent, ["tuned"], name="a", machine="", count=1),),
        beside={comparison.FILE: format_json(report_comparisons.sound()).encode()},
    ),
    "table of hosts": Reader(name="hosts.toml", inputs=lambda: torn(HOSTS), reads=(load_hosts,)),
    "price book": Reader(
        name="book.toml", inputs=lambda: torn(BOOK[:1200]), reads=(catalog.read_toml,)
    ),
    "catalogue of prices": Reader(
        name="skypilot.csv",
        inputs=lambda: torn(CATALOGUE),
        reads=(lambda path: catalog.read_csv(path, as_of="2026-11-21"),),
    ),
    "bazelrc": Reader(
        name="user.bazelrc",
        inputs=lambda: torn(BAZELRC),
        reads=(
            lambda path: check_settings(resolve_remote(rc=path)),
            lambda path: bazelrc.read_bazelrc(path).build_sha256,
        ),
    ),
    "log of an article": Reader(
        name="log.csv",
        inputs=lambda: torn(b"epoch,elapsed\n0,1.5\n1,1.25\n"),
        reads=(article.read_epochs,),
    ),
    "totals of an article": Reader(
        name="totals.csv",
        inputs=lambda: torn(article.TOTALS.read_bytes()[:400]),
        reads=(lambda path: article.read_totals(catalog.find_book(article.PRICES), path),),
    ),
    "published figures": Reader(
        name="p100.toml",
        inputs=lambda: torn(figures.P100.read_bytes()),
        reads=(figures.read_published,),
    ),
    "selection": Reader(
        name="selection.json",
        inputs=lambda: torn_or_altered(short_selection()),
        reads=(selection.read_selection,),
    ),
    "profile": Reader(
        name="profile.json",
        inputs=lambda: torn_or_altered(
            format_json(profile(program("a", (call_site("Tanh", 10), 2, 0.5)))).encode()
        ),
        reads=(use_profile,),
    ),
    "line-up": Reader(name="lineup.toml", inputs=lambda: torn(LINEUP), reads=(lineup.read_toml,)),
    "samples of the kit": Reader(
        name="samples.jsonl",
        inputs=lambda: torn_or_altered_lines(
            lines(*(line(phase, launch) for phase in ("train", "validate") for launch in (0, 1)))
        ),
        reads=(use_kit, resume_kit),
    ),
    "curve": Reader(
        name="curve.tsv",
        inputs=lambda: torn(CURVE),
        reads=(curve_file.read_curve,),
        beside={"curve.json": CANDIDATE},
    ),
    "price beside a curve": Reader(
        name="curve.json",
        inputs=lambda: torn_or_altered(CANDIDATE),
        reads=(lambda path: curve_file.read_curve(path.with_suffix(".tsv")),),
        beside={"curve.tsv": CURVE},
    ),
    "/proc/cpuinfo": Reader(
        name="cpuinfo",
        inputs=lambda: st.sampled_from(recorded_cpus.COMPLETE).flatmap(
            lambda name: torn(recorded_cpus.text_of(name).encode()[:6000])
        ),
        reads=(lambda path: parse_cpuinfo(path.read_text("utf-8", errors="replace")),),
    ),
    "events of Bazel": Reader(
        name="events.json",
        inputs=lambda: st.sampled_from(("killed", "succeeded", "target", "killed_7")).flatmap(
            lambda name: torn_or_altered_lines((DATA / f"events/{name}.json").read_bytes())
        ),
        reads=(read_outcome,),
    ),
    "lock of a vendor folder": Reader(
        name=vendor_folder.LOCK,
        inputs=lambda: torn_or_altered(format_json(vendor_lock()).encode()),
        reads=(vendor_folder.read_lock,),
    ),
    "declarations of a tree": Reader(
        name="WORKSPACE",
        inputs=lambda: torn(WORKSPACE),
        reads=(lambda path: declarations.read_declarations(path.parent),),
    ),
    "kernel source": Reader(
        name="x.cc",
        inputs=lambda: torn(KERNEL_SOURCE),
        reads=(lambda path: find_ops("x.cc", {"x.cc": plain_source(path)}, {"INTEL_MKL": "1"}),),
    ),
    "sources": Reader(
        name="v2.tar", inputs=lambda: torn(sources()), reads=(unpack_sources, stage_sources)
    ),
    "packed sources": Reader(
        name="v2.tar.gz",
        inputs=lambda: torn(gzip.compress(sources())),
        reads=(unpack_sources, stage_sources),
    ),
}


def short_selection() -> bytes:
    path = Path(selection.__file__).parent / "selections/2.14.1-haswell.json"
    actual = load(path, schema=selection.SCHEMA)
    return format_json({**actual, "rows": actual["rows"][:2], "kept": actual["kept"][:2]}).encode()


@pytest.mark.parametrize("reader", READERS)
def test_an_answer_is_a_value_or_an_error_of_ours(reader: str) -> None:
    @given(READERS[reader].inputs())
    def answers(data: bytes) -> None:
        answer(READERS[reader], data)

    answers()


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_so_it_is_with_many_inputs(reader: str) -> None:
    @settings(max_examples=MANY)
    @given(READERS[reader].inputs())
    def answers(data: bytes) -> None:
        answer(READERS[reader], data)

    answers()


def answer(reader: Reader, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in {**reader.beside, reader.name: data}.items():
            (root / name).write_bytes(content)
        for read in reader.reads:
            text = refusal(read, root / reader.name)
            assert len(text) < LONGEST, text[:LONGEST]
            assert "\n" not in text.strip()
            assert text.replace("\n", "").replace("\t", "").isprintable()


def refusal(read: Read, path: Path) -> str:
    """What a reader says of a file; empty where it takes it."""
    with confined(path.parent):
        try:
            read(path)
        except TensorwrightError as error:
            return str(error)
    return ""


# --- what compilers make --------------------------------------------------------------------------


@pytest.mark.toolchain
def test_tables_of_a_library_may_lead_anywhere(tmp_path: Path) -> None:
    sound = tables(tmp_path, {KERNELS: {"sizeof(Tensor)": 32}, WHEEL_TABLE: {"x": 1}}).read_bytes()
    reader = Reader(
        name="a.so",
        inputs=lambda: torn(sound),
        reads=(
            lambda path: elf.read_number_table(path, KERNELS),
            lambda path: elf.read_texts(path, re.compile(KERNELS), 1),
            lambda path: elf.find_shared_objects(path, frozenset({KERNELS})),
        ),
    )

    @at_most(100)
    @given(reader.inputs())
    def answers(data: bytes) -> None:
        answer(reader, data)

    answers()


@pytest.mark.toolchain
def test_a_note_may_claim_more_bytes_than_there_is_memory(tmp_path: Path) -> None:
    broken = tmp_path / "a.so"
    broken.write_bytes(LIBRARY.read_bytes())
    with elf.open_library(broken) as library:
        notes = (section for section in library.iter_sections() if isinstance(section, NoteSection))
        offset = next(notes)["sh_offset"]
    with broken.open("r+b") as file:
        file.seek(offset + 4)  # n_descsz, behind n_namesz
        file.write(b"\xff" * 4)
    with confined(tmp_path):
        assert "a.so is not a complete ELF library" in refusal(elf.read_isa_level, broken)


@pytest.mark.toolchain
def test_an_audit_finds_out_of_any_member_that_it_is_broken(tmp_path: Path) -> None:
    """RECORD fits what is there, so only the member itself can tell."""
    core = library(tmp_path, "core", KERNEL, *QUICK, "-mavx")
    kernels = library(tmp_path, "haswell", KERNEL, *QUICK, "-march=haswell", "-s")
    stock = stock_wheel(tmp_path / "stock", {CORE: core})
    dispatcher = library(tmp_path, "dispatcher", XGETBV, *QUICK)
    path = tuned_wheel(stock, {"haswell": kernels}, dispatcher, more={})
    with zipfile.ZipFile(path) as archive:
        sound = {info.filename: archive.read(info) for info in archive.infolist()}
    names = st.sampled_from(sorted(name for name in sound if not name.endswith("/RECORD")))

    @at_most(100)
    @given(names.flatmap(lambda name: st.tuples(st.just(name), torn(sound[name]))))
    def answers(changed: tuple[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            broken = packed(Path(folder) / path.name, sound | dict((changed,)), STEM)
            text = refusal(functools.partial(look_through, stock=stock), broken)
            assert len(text) < LONGEST, text[:LONGEST]

    answers()


def look_through(path: Path, *, stock: Path) -> None:
    paths = Paths(root=path.parent, cache=path.parent / "cache", pool=path.parent)
    describe(audit(path, paths=paths, stock=stock))


# --- bombs ----------------------------------------------------------------------------------------


def inflating(megabytes: int) -> bytes:
    """A raw deflate stream of so many zeros; a thousandth of them long."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + b"\x03\x00"


def saying(raw: bytes, size: int, *, method: int = zipfile.ZIP_DEFLATED, times: int = 1) -> bytes:
    """A wheel whose METADATA, and `times` - 1 members like it, are these raw bytes, and say that
    they are `size` bytes packed by the method."""
    members = sound_members()
    bombs = [f"{INFO}/METADATA", *(f"{INFO}/{number}" for number in range(times - 1))]
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in bombs:
            archive.writestr(zipfile.ZipInfo(name), raw)
            info = archive.getinfo(name)
            info.file_size, info.compress_type = size, method  # (written at the end, in the list)
        for name in sorted(members.keys() - {*bombs}):
            archive.writestr(name, members[name])
    data = bytearray(sink.getvalue())
    for name in bombs:
        at = data.index(name.encode()) - 30
        data[at + 8 : at + 10] = method.to_bytes(2, "little")
    return bytes(data)


METADATA = f"{INFO}/METADATA"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: saying(b"\x03\x00", 4 << 30), r"METADATA is too large \(4294967296 bytes\)"),
        (lambda: saying(b"\x03\x00", 10 << 30), r"METADATA is too large \(10737418240 bytes\)"),
        (
            lambda: saying(b"\x03\x00", 2 << 30, times=5),
            r"the content is too large \(1073742\d+ bytes\)",
        ),
        (lambda: saying(b"x", 1, method=zipfile.ZIP_BZIP2), "METADATA has compression method 12"),
        (lambda: saying(b"x", 1, method=zipfile.ZIP_LZMA), "METADATA has compression method 14"),
        (lambda: saying(inflating(2000), 100), "another size or checksum"),
    ],
)
def test_a_wheel_that_would_fill_disk_or_memory_is_refused(
    tmp_path: Path, data: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(data())
    for read in (lambda path: wheel.read_member(path, METADATA), unpack_wheel):
        with confined(tmp_path), pytest.raises(WheelError, match=message):
            read(path)
    assert {file.name for file in tmp_path.iterdir()} <= {WHEEL, "out"}
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (b"[" + b'{"":0},' * 9_000_000 + b"0]", "it has .* bytes"),
        (b'{"schema": 6, "libraries": ' + b"[" * 900 + b"]" * 900 + b"}", "nested more than 64"),
        (b'{"schema": ' + b"[" * 900 + b"]" * 900 + b"}", "nested more than 64"),
        (b"[" * 10**6, "nested too deeply"),
        (b'{"schema": 6, "key": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_facts_that_would_fill_the_memory_or_the_stack_are_refused(
    tmp_path: Path, facts: bytes, message: str
) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(with_facts(facts))
    with confined(tmp_path), pytest.raises(WheelError, match=message):
        tuned.read_tuned(path)


def test_a_record_of_half_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / comparison.FILE
    with path.open("wb") as file:
        file.truncate(500_000_000)
    with confined(tmp_path), pytest.raises(RecordError, match="more than 16777216 bytes"):
        comparison.load(path)


def test_a_packed_journal_that_grows_beyond_all_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{KIND.journal}{journal.PACKED}"
    path.write_bytes(lzma.compress(bytes(1 << 20)) * 3000)
    with confined(tmp_path), pytest.raises(RecordError, match="is larger than"):
        journal.read_entries(path, KINDS)


def header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            lambda: (
                gzip.compress(header("x", tarfile.GNUTYPE_LONGNAME, 2 << 30))
                + gzip.compress(bytes(1 << 20)) * 2100
            ),
            "a header of 2147483648 bytes",
        ),
        (
            lambda: (
                gzip.compress(header("x", tarfile.XHDTYPE, 2 << 30))
                + gzip.compress(bytes(1 << 20)) * 2100
            ),
            "a header of 2147483648 bytes",
        ),
        (lambda: header("top/big", tarfile.REGTYPE, 5 << 30), "more than 4000 MB"),
        (lambda: header("x", tarfile.GNUTYPE_LONGNAME, 0) * 3000, "recursion"),
    ],
)
def test_sources_that_would_fill_memory_or_disk_are_refused(
    tmp_path: Path, data: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / "v2.tar"
    path.write_bytes(data())
    for read in (unpack_sources, stage_sources):
        with confined(tmp_path), pytest.raises(ChecksumError, match=message):
            read(path)
    assert [path.name for path in (tmp_path / "cache/sources").iterdir()] == [".lock"]


# --- an index on a server -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index() -> Iterator[Callable[[bytes], str]]:
    """A server that answers each request with the bytes that it was last given, as they are."""
    datas = [b""]

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(datas[0])

    def answering(data: bytes) -> str:
        datas[0] = data
        return f"http://127.0.0.1:{server.server_address[1]}/"

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield answering
        server.shutdown()
        thread.join()


def ask(url: str, wheel: Path) -> None:
    with open_index(url, f"{url}simple/", Credentials()) as actual:
        plan_uploads([wheel], actual)


def http_answer(kind: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


JSON_PAGE = "application/vnd.pypi.simple.v1+json"
PAGE: Any = {
    "meta": {"api-version": "1.1"},
    "name": "tensorflow-cpu",
    "versions": ["2.14.1"],
    "files": [
        {
            "filename": WHEEL,
            "url": f"https://a.example/{WHEEL}",
            "hashes": {"sha256": "0" * 64},
            "requires-python": ">=3.9",
            "size": 1000,
            "upload-time": "2026-11-21T12:00:00Z",
            "yanked": False,
        }
    ],
}
HTML_PAGE = f'<!DOCTYPE html><a href="../{WHEEL}#sha256={"0" * 64}">{WHEEL}</a>'.encode()
ANSWERS = {
    "JSON": lambda: altered(PAGE).map(functools.partial(http_answer, JSON_PAGE)),
    "HTML": lambda: torn(HTML_PAGE).map(functools.partial(http_answer, "text/html")),
    "HTTP": lambda: torn(http_answer(JSON_PAGE, json.dumps(PAGE).encode())),
    "elsewhere": lambda: torn(
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1]/a\r\nContent-Length: 0\r\n\r\n"
    ),
}


def need_answer(index: Callable[[bytes], str], data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / WHEEL
        path.write_bytes(zipped(sound_members()))
        text = refusal(lambda wheel: ask(index(data), wheel), path)
    assert len(text) < LONGEST
    assert text.isprintable()


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_index_may_answer_what_it_likes(index: Callable[[bytes], str], kind: str) -> None:
    @given(ANSWERS[kind]())
    def answers(data: bytes) -> None:
        need_answer(index, data)

    answers()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERS)
def test_an_index_may_answer_often(index: Callable[[bytes], str], kind: str) -> None:
    @settings(max_examples=MANY)
    @given(ANSWERS[kind]())
    def answers(data: bytes) -> None:
        need_answer(index, data)

    answers()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: http_answer(JSON_PAGE, b" " * (33 << 20)), "more than 33554432 bytes"),
        (
            lambda: http_answer(
                JSON_PAGE, gzip.compress(bytes(1 << 20)) * 3000, "Content-Encoding: gzip\r\n"
            ),
            "it is compressed",
        ),
        (lambda: http_answer(JSON_PAGE, b"[" * 10**6), "RecursionError"),
        (lambda: http_answer(JSON_PAGE, b"\xff"), "UnicodeDecodeError"),
        (
            lambda: http_answer(
                JSON_PAGE, json.dumps(PAGE).encode().replace(b'"%s"' % (b"0" * 64), b"0")
            ),
            "has no hashes",
        ),
        (
            lambda: b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
            "redirects to an invalid address",
        ),
    ],
)
def test_a_page_that_is_none_or_too_much_is_refused(
    index: Callable[[bytes], str], tmp_path: Path, data: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(zipped(sound_members()))
    url = index(data())
    with confined(tmp_path), pytest.raises(PublishError, match=message):
        ask(url, path)
