from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.remote import bazelrc
from tfbuild.remote.bazelrc import Bazelrc
from tfcore.errors import UsageError

VALUES = st.from_regex(r"[!#-&(-\[\]-~]([ !#-&(-\[\]-~]{0,20}[!#-&(-\[\]-~])?", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)
HEADERS = (
    "remote_header",
    "remote_cache_header",
    "remote_exec_header",
    "remote_downloader_header",
    "bes_header",
)


def kept(folder: Path, text: str) -> Path:
    path = folder / "user.bazelrc"
    path.write_text(text, encoding="latin-1", newline="")
    path.chmod(0o600)
    return path


def read(folder: Path, text: str) -> Bazelrc:
    return bazelrc.read_bazelrc(kept(folder, text))


def test_without_a_file_there_is_nothing() -> None:
    assert bazelrc.read_bazelrc(None) == Bazelrc()
    assert (Bazelrc().secrets, Bazelrc().build_sha256, Bazelrc().get_values("copt")) == ((), "", ())


def test_a_value_stands_behind_an_equals_sign_or_is_the_next_word(tmp_path: Path) -> None:
    text = (
        "# the cluster's\n\n"
        "build --remote_timeout=9s -c opt --nobuild_runfile_links # not --this=one\n"
        "build:ci --remote_timeout 8s --copt=-DX=1\r\n"
        "common\n"
    )
    rc = read(tmp_path, text)
    assert rc.options == (
        ("build", "remote_timeout", "9s"),
        ("build", "c", "opt"),
        ("build", "nobuild_runfile_links", ""),
        ("build:ci", "remote_timeout", "8s"),
        ("build:ci", "copt", "-DX=1"),
    )
    assert rc.get_values("remote_timeout") == ("9s", "8s")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('build "--a=b c" --d', ["build", "--a=b c", "--d"]),
        ("build '--a=b \"c' --d", ["build", '--a=b "c', "--d"]),
        ("--a=\"b c\"' d'e", ["--a=b c de"]),
        (r"--a=b\ c\"\\\#", [r'--a=b c"\#']),
        (r"'--a=\'b c'", ["--a='b c"]),  # (a shell sees two words)
        (r'"--a=\b"', ["--a=b"]),
        ("--a=b#c --d", ["--a=b"]),
        ("'--a=b#c'", ["--a=b#c"]),
        ('--a "" --b', ["--a", "--b"]),
        ('--a "b c  ', ["--a", "b c"]),  # what is open ends with the line
        ("--a\\", ["--a"]),
        ("\v--a\f--b\t--c ", ["--a", "--b", "--c"]),
        ("--a\xa0b", ["--a\xa0b"]),
        ("  # --a", []),
    ],
)
def test_lines_are_split_as_bazel_splits_them(line: str, words: list[str]) -> None:
    assert bazelrc.split_words(line) == words


@given(st.lists(st.text("ab =-#.", min_size=1), max_size=5))
def test_words_in_single_quotes_are_kept(words: list[str]) -> None:
    assert bazelrc.split_words(shlex.join(words)) == words


def test_a_backslash_continues_a_line_wherever_it_ends(tmp_path: Path) -> None:
    text = 'build --a=b\\\nc \\\r\n  "--remote_header=x-key=1\\\n2"\n# a comment \\\n--d=e\n'
    rc = read(tmp_path, text)
    assert rc.options == (("build", "a", "bc"), ("build", "remote_header", "x-key=12"))
    # Bazel takes the pair out once: a backslash that is left escapes nothing of the next line.
    assert read(tmp_path, "build --a=b\\\\\n\nbuild --c=d").options == (
        ("build", "a", "b"),
        ("build", "c", "d"),
    )


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    "line",
    [
        'build "--{}=Authorization=Bearer a=b:c"',
        "common:ci '--{}=Authorization=Bearer a=b:c' --jobs=1",
        "build --jobs=1 --{} 'Authorization=Bearer a=b:c'",
        r"build --{}=Authorization=Bearer\ a=b:c # it",
        'b"uild" --"{}"=\'Authorization\'="Bearer "a=b:c',
        "build --{}=Author\\\nization=Bearer\\ a=b:c",
    ],
)
def test_headers_are_secrets_however_they_are_written(tmp_path: Path, name: str, line: str) -> None:
    rc = read(tmp_path, line.format(name))
    assert rc.secrets == (("Authorization", "Bearer a=b:c"),)
    assert "Bearer" not in repr(rc)


@given(pairs=st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4))
def test_every_header_is_found(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    text = "".join(f'build "--remote_header={name}={value}"\n' for name, value in pairs)
    assert read(tmp_path_factory.mktemp("kept"), text).secrets == tuple(pairs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("build --a\nbuild --remote_header=hunter2\n", "line 2 .*NAME=VALUE"),
        ("build --remote_header=a=\n", "line 1 .*NAME=VALUE"),
        ("build --remote_header\n", "line 1 .*NAME=VALUE"),
        ("build --remote_header --b=hunter2\n", "line 1 .*NAME=VALUE"),
        ("build --remote_header=a=\"'hunter2'\"\n", "line 1 .*without quotes"),
        ("build '--remote_header=a=hunter2\\\\'\n", "line 1 .*backslashes"),
        ("build --remote_header=a=hunter2\x07\n", "line 1 "),
        ("build --remote_header=a=h\xfcnter2\n", "line 1 .*ASCII"),
        ("build \\\n --a\n\nbuild --bes_header=a=Bearer hunter2\n", "line 4 .*no option"),
        ("build --bes_header a=Bearer hunter2\n", "line 1 .*no option"),
        ("build --remote_header\nbuild a=hunter2\n", "line 1 .*NAME=VALUE"),
        ("build hunter2\n", "line 1 .*no option"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_shown(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(tmp_path, text)
    assert "nter2" not in str(caught.value)
    assert caught.value.hint.endswith('build "--remote_header=NAME=VALUE"')


@pytest.mark.parametrize(
    "line",
    [
        "startup --output_user_root=/tmp/open",
        "startup --batch",
        "'start'up --host_jvm_args=-Xmx1g",
        "startup:ci --batch",
        "import /etc/bazelrc",
        "try-import %workspace%/user.bazelrc",
        "im\\\nport x",
        "try-import-if-bazel-version >=8 x",
    ],
)
def test_startup_options_and_imports_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError, match=r"line 2 of --bazelrc .*startup option or an import"):
        read(tmp_path, f"build --a\n{line}\n")


@pytest.mark.parametrize("kind", ["none", "folder", "large"])
def test_what_is_no_file_of_options_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    if kind == "large":
        path.write_text("#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match=str(path)):
        bazelrc.read_bazelrc(path)


def test_only_what_may_change_results_decides(tmp_path: Path) -> None:
    service = (
        "build --remote_header=a=b --noremote_upload_local_results --tls_certificate=/ca\n"
        "build --bes_backend=grpcs://h --remote_default_exec_properties=pool=large\n"
    )
    assert read(tmp_path, service).build_sha256 == ""
    copt = read(tmp_path, "build --copt=-O3\n").build_sha256
    assert len(copt) == 64
    assert read(tmp_path, f"# more\n{service}build '--copt=-O3'\n").build_sha256 == copt
    other_names = {
        read(tmp_path, text).build_sha256
        for text in (
            "build --copt=-O2",
            "build:ci --copt=-O3",
            "build --nocopt=-O3",
            "build --copt=-O3 --c=d",
        )
    }
    assert len(other_names - {copt}) == 4
