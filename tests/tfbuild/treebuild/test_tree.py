from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.trees import (
    EVERY_RELEASE,
    PIP_PACKAGE,
    change,
    facts_of,
    make_tree,
    reduced_tree,
)

from tfbuild.planning.plan import list_source_pins
from tfbuild.treebuild.tree import (
    find_wheel_target,
    has_shared_host_flags,
    list_configs,
    list_wheel_options,
    parse_bazel_version,
    parse_configure,
    read_rc_lines,
    read_tree,
)
from tfbuild.upstream import source
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release, find_release
from tfcore.errors import TreeError
from tfcore.settings import Paths

RULE = "//tensorflow/tools/pip_package:wheel"
PROGRAM = "//tensorflow/tools/pip_package:build_pip_package"


def lines_of(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(read_rc_lines(text, lambda _name, _needed: None))


# What a tree says.


@EVERY_RELEASE
def test_a_tree_is_read_as_the_table_knows_it(tmp_path: Path, release: Release) -> None:
    tree = read_tree(reduced_tree(tmp_path, release.version))
    assert tree.release == release.version
    assert tree.bazel == release.bazel
    assert tree.configs - {"linux"} == set(release.configs)
    assert tree.shares_host_flags == release.distinct_host
    assert tree.wheel_target == release.wheel_target
    assert tree.wheel_folder == release.wheel_folder
    assert dict(release.configure_env).keys() <= tree.variables
    assert tree.questions == set(facts_of(release.version)["questions"])
    assert tree.questions <= dict(release.configure_env).keys() | set(release.unasked)


def test_the_workspace_of_the_build_tests_is_a_tree(tmp_path: Path) -> None:
    tree = read_tree(make_tree(tmp_path, "2.14.1"))
    assert (tree.release, tree.bazel, tree.wheel_target) == ("2.14.1", "6.1.0", PROGRAM)
    assert {"avx_linux", "monolithic", "nogcp"} <= tree.configs
    assert {"CC_OPT_FLAGS", "CLANG_COMPILER_PATH"} <= tree.variables
    assert "--cpu" in tree.wheel_options
    assert read_tree(make_tree(tmp_path, "2.19.1")).wheel_target == RULE


def test_what_configure_wrote_is_read_too(tmp_path: Path) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    (tree / ".tf_configure.bazelrc").write_text("build:opt --copt=-w\nbuild:mine --copt=-w\n")
    assert {"opt", "mine"} <= read_tree(tree).configs


# Files that are not what they should be.


@pytest.mark.parametrize("name", [".bazelrc", "configure.py", f"{PIP_PACKAGE}/BUILD"])
def test_a_folder_without_the_files_that_decide_is_no_tree(tmp_path: Path, name: str) -> None:
    (reduced_tree(tmp_path, "2.14.1") / name).unlink()
    with pytest.raises(TreeError, match=f"has no {name}"):
        read_tree(tmp_path)


def test_nothing_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=str(tmp_path / "missing")):
        read_tree(tmp_path / "missing")


def test_a_tree_that_names_no_release_is_refused(tmp_path: Path) -> None:
    (reduced_tree(tmp_path, "2.14.1") / PIP_PACKAGE / "setup.py").write_text("_VERSION = read()\n")
    with pytest.raises(TreeError, match="no release"):
        read_tree(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"build \xff\xfe", "UTF-8 from byte 6"),
        ("build:ö".encode("utf-16"), "UTF-8"),
        (b"build\0:x", "NUL at character 5"),
        (b"#" * 4_000_001, "4.0 MB"),
    ],
)
@pytest.mark.parametrize("name", [".bazelrc", "configure.py", f"{PIP_PACKAGE}/BUILD"])
def test_a_file_of_other_bytes_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (reduced_tree(tmp_path, "2.14.1") / name).write_bytes(content)
    with pytest.raises(TreeError, match=message) as caught:
        read_tree(tmp_path)
    assert name in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["configure.py", f"{PIP_PACKAGE}/BUILD"])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, name: str) -> None:
    path = reduced_tree(tmp_path, "2.14.1") / name
    text = path.read_text()
    path.write_text(text[: text.rindex(")")])
    with pytest.raises(TreeError, match=name):
        read_tree(tmp_path)


@pytest.mark.parametrize("name", [".bazelrc", ".bazelversion", "third_party/py/python_repo.bzl"])
def test_a_link_out_of_the_tree_is_refused(tmp_path: Path, name: str) -> None:
    tree = reduced_tree(tmp_path / "tree", "2.14.1")
    (tree / name).rename(tmp_path / "outside")
    (tree / name).symlink_to(tmp_path / "outside")
    with pytest.raises(TreeError, match="is a link"):
        read_tree(tree)


def test_a_link_within_the_tree_is_followed(tmp_path: Path) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    before = read_tree(tree)
    (tree / ".bazelrc").rename(tree / "rc")
    (tree / ".bazelrc").symlink_to("rc")
    assert read_tree(tree) == before


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    (tree / ".bazelversion").unlink()
    (tree / ".bazelversion").symlink_to(".bazelversion")
    with pytest.raises(TreeError, match=r"\.bazelversion"):
        read_tree(tree)


def test_a_folder_in_the_place_of_a_file_is_no_file(tmp_path: Path) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    (tree / "configure.py").unlink()
    (tree / "configure.py").mkdir()
    with pytest.raises(TreeError, match=r"no configure\.py"):
        read_tree(tree)


def test_nothing_of_the_tree_is_run(tmp_path: Path) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    change(tree, "configure.py", "import os\n", "import os\nos.mkdir('ran')\n")
    read_tree(tree)
    assert not list(tmp_path.rglob("ran"))


# .bazelrc.


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("build:a --copt=-w\ncommon:b --x\nalways:c --x", {"a", "b", "c"}),
        ("test:a --x\nrun:b --x\nbuild --x\n", set()),
        ("#build:a --x\n  build:b  --x # build:c", {"b"}),
        ("build:a \\\n  build:b --x\n", {"a"}),
        ("'build:a' --x\n", {"a"}),
        ("build: --x\n:a --x\n", set()),
        ("build:a --x\r\nbuild:b --x\r\n", {"a", "b"}),
    ],
)
def test_configs_are_those_that_a_build_can_name(text: str, names: set[str]) -> None:
    assert list_configs(lines_of(text)) == names


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("build:linux --distinct_host_configuration=false", True),
        ("build --distinct_host_configuration=0", True),
        ("build:linux --nodistinct_host_configuration", True),
        ("build:linux --copt=-w --distinct_host_configuration=no", True),
        ("build:windows --distinct_host_configuration=false", False),
        ("build:linux --distinct_host_configuration=true", False),
        ("build --nodistinct_host_configuration\nbuild:linux --distinct_host_configuration", False),
        ("# build:linux --distinct_host_configuration=false", False),
        ("", False),
    ],
)
def test_shared_host_flags_are_seen(text: str, shared: bool) -> None:
    assert has_shared_host_flags(lines_of(text)) is shared


def test_imports_are_read_where_they_stand(tmp_path: Path) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    (tree / ".bazelrc").write_text(
        "build --distinct_host_configuration=true\nimport %workspace%/ci/one.bazelrc\n"
        "try-import missing.bazelrc\ntry-import /etc/tensorwright.bazelrc\n"
        "try-import %workspace%/../other.bazelrc\n"
    )
    (tree / "ci").mkdir()
    (tree / "ci/one.bazelrc").write_text("import ci/two.bazelrc\nbuild:one --x\n")
    (tree / "ci/two.bazelrc").write_text("build --distinct_host_configuration=false\nbuild:two -x")
    (tmp_path.parent / "other.bazelrc").write_text("build:other --x\n")
    read = read_tree(tree)
    assert read.configs == {"one", "two"}
    assert read.shares_host_flags


def test_an_import_of_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    (reduced_tree(tmp_path, "2.14.1") / ".bazelrc").write_text("import %workspace%/missing.rc\n")
    with pytest.raises(TreeError, match=r"\.bazelrc .*missing\.rc"):
        read_tree(tmp_path)


@pytest.mark.parametrize("through", [".bazelrc", "./.bazelrc", "%workspace%/.bazelrc", "a.rc"])
def test_an_rc_file_that_imports_itself_is_an_error(tmp_path: Path, through: str) -> None:
    tree = reduced_tree(tmp_path, "2.14.1")
    (tree / ".bazelrc").write_text(f"try-import {through}\n")
    (tree / "a.rc").write_text("import ./.bazelrc\n")
    with pytest.raises(TreeError, match=r"imports itself"):
        read_tree(tree)


# The other files.


@pytest.mark.parametrize(
    ("text", "version"),
    [("6.1.0\n# a note", "6.1.0"), ("7.4.1", "7.4.1"), ("\n5.3.0\r\n", "5.3.0"), ("", "")],
)
def test_the_first_line_of_bazelversion_counts(text: str, version: str) -> None:
    assert parse_bazel_version(text) == version


@pytest.mark.parametrize("text", ["latest", "# only a note", "6.1.0 7.0.0", "version https://x"])
def test_a_bazelversion_without_a_version_is_an_error(text: str) -> None:
    with pytest.raises(TreeError, match=r"\.bazelversion"):
        parse_bazel_version(text)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ('sh_binary(name = "build_pip_package")', PROGRAM),
        ('py_binary(name = "build_pip_package")\ntf_wheel(\n    name = "wheel")', RULE),
        ('sh_binary(name = "wheelhouse", srcs = ["wheel"])', ""),
        ('# sh_binary(name = "build_pip_package")', ""),
        ('[sh_binary(name = "build_pip_package") for _ in [1]]', PROGRAM),
        (r'x = "\d"', ""),
    ],
)
def test_the_wheel_target_is_found(text: str, target: str) -> None:
    assert find_wheel_target(text) == target


def test_options_of_the_program_are_found() -> None:
    shell = 'if [[ "$1" == "--cpu" ]]; then\nelif [ "${1:-}" = --src ]; then\n'
    assert list_wheel_options(shell) == {"--cpu", "--src"}
    assert list_wheel_options('parser.add_argument(\n    "--output-name", required=True)') == {
        "--output-name"
    }
    assert list_wheel_options('echo "--cpu    build tensorflow_cpu"') == set()


def test_configures_questions_are_told_from_what_it_only_names() -> None:
    named, prompted, limits = parse_configure(
        "_TF_MIN_BAZEL_VERSION = '4.2.1'\n_TF_MAX_BAZEL_VERSION = '4.99.0'\n"
        "def main():\n"
        "  get_var(environ_cp, 'TF_NEED_CUDA', 'CUDA', False)\n"
        "  prompt_loop_or_load_from_env(\n      environ_cp, var_name='CLANG_COMPILER_PATH')\n"
        "  environ_cp.get('TF_ENABLE_XLA')\n"
        "  print('TF_NEED_CUDA is asked for')\n"
    )
    assert named == {"TF_NEED_CUDA", "CLANG_COMPILER_PATH", "TF_ENABLE_XLA"}
    assert prompted == {"TF_NEED_CUDA", "CLANG_COMPILER_PATH"}
    assert limits == ("4.2.1", "4.99.0")
    assert parse_configure("_TF_MIN_BAZEL_VERSION = '1'\n")[2] is None
    with pytest.raises(TreeError, match=r"configure\.py .*newest"):
        parse_configure("_TF_MIN_BAZEL_VERSION = '1'\n_TF_MAX_BAZEL_VERSION = 'newest'\n")


# The real one.


@pytest.fixture(scope="module")
def real_tree(paths: Paths) -> Path:
    """It stays in the user's cache, as after a build."""
    archive = source.fetch_source(list_source_pins(find_release("2.14.1")), paths, None)
    return source.unpack(archive, hash_file(archive), paths)


@pytest.mark.toolchain
def test_the_real_tree_of_2_14_1_is_read(real_tree: Path) -> None:
    tree = read_tree(real_tree)
    assert (tree.release, tree.bazel, tree.bazel_limits) == ("2.14.1", "6.1.0", None)
    own_configs = list_configs(lines_of((real_tree / ".bazelrc").read_text()))
    assert len(own_configs) == 70
    assert {"avx_linux", "linux", "release_cpu_linux", "mkl_aarch64_threadpool"} <= own_configs
    assert {"opt", "avx2_linux", "numa"}.isdisjoint(own_configs)
    assert own_configs <= tree.configs
    assert tree.wheel_options >= {"--cpu", "--project_name", "--nightly_flag"}


@pytest.mark.toolchain
def test_the_reduced_tree_asks_what_the_real_one_asks(real_tree: Path, tmp_path: Path) -> None:
    real, reduced = read_tree(real_tree), read_tree(reduced_tree(tmp_path, "2.14.1"))
    assert reduced.questions == real.questions
    assert reduced.variables <= real.variables
    assert reduced.configs <= real.configs
    assert reduced.repo_env <= real.repo_env
    assert (real_tree / "configure").stat().st_mode & 0o111


# Any text.

WORDS = 'build:a import try-import %workspace%/ .bazelrc x.rc /etc .. \\ ( ) [ name = "wheel" # --x'
TEXT = st.text(max_size=300) | st.lists(
    st.sampled_from((*WORDS.split(), "\n", " ", "'", "\0", "\ud800")), max_size=40
).map("".join)


@given(
    text=TEXT,
    name=st.sampled_from(
        [".bazelrc", ".bazelversion", "configure.py", f"{PIP_PACKAGE}/BUILD", "third_party/x.bzl"]
    ),
)
def test_any_text_is_a_tree_or_a_tree_error(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = reduced_tree(Path(folder), "2.14.1")
        (tree / name).write_bytes(text.encode(errors="surrogatepass"))
        with contextlib.suppress(TreeError):
            assert read_tree(tree).release == "2.14.1"


@pytest.mark.parametrize("text", ["(" * 1000, "-" * 100_000 + "1", "x." * 50_000 + "x"])
def test_text_that_is_nested_too_deep_is_a_tree_error(text: str) -> None:
    with pytest.raises(TreeError, match="parsed"):
        find_wheel_target(text)
