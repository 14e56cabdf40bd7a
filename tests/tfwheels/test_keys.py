"""Key files, as openssl makes them, and what is none."""

from __future__ import annotations

import functools
import hashlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.signing_keys import key_file, made_key, public_file

from tfcore.errors import UsageError
from tfcore.settings import ROOT
from tfwheels.keys import PASSWORD, PublicKey, create_verifier, read_public_keys, read_signing_key

ROOTS = ("build", "wheels")
SECRET = "correct horse"  # noqa: S105  (a test's)
PROMPT = """
import fcntl, sys, termios
from pathlib import Path
from tfwheels.keys import read_signing_key
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
print(read_signing_key(Path(sys.argv[1])).public.id)
"""


def openssl(*words: str | Path) -> bytes:
    return subprocess.run(["openssl", *words], check=True, capture_output=True).stdout


@pytest.fixture
def of_openssl(tmp_path: Path) -> Path:
    path = tmp_path / "openssl.pem"
    openssl("genpkey", "-algorithm", "ed25519", "-out", path)
    return path


def test_a_key_that_openssl_made_is_read_and_its_id_is_the_documented_hash(
    of_openssl: Path, tmp_path: Path
) -> None:
    public = tmp_path / "public.pem"
    openssl("pkey", "-in", of_openssl, "-pubout", "-out", public)
    der = openssl("pkey", "-pubin", "-in", public, "-outform", "DER")
    key = read_signing_key(of_openssl).public
    assert key == PublicKey(id=hashlib.sha256(der).hexdigest(), pem=public.read_text())
    assert read_public_keys(f"{public}, {public}") == (key,)
    assert create_verifier(key).keyid == key.id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o777])
def test_a_key_that_others_can_open_is_refused(of_openssl: Path, mode: int) -> None:
    read_signing_key(of_openssl)
    of_openssl.chmod(mode)
    with pytest.raises(UsageError, match=f"mode is {mode:04o}") as caught:
        read_signing_key(of_openssl)
    assert f"chmod 600 {of_openssl}" in caught.value.hint


# Passphrases --------------------------------------------------------------------------------------


def test_a_passphrase_comes_from_the_environment_and_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = key_file(tmp_path, passphrase=SECRET.encode())
    monkeypatch.setenv(PASSWORD, SECRET)
    assert read_signing_key(path).public.id
    assert PASSWORD not in os.environ


def test_a_passphrase_is_not_handed_to_programs_by_a_key_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    made_key(tmp_path)
    assert PASSWORD not in os.environ


@pytest.mark.parametrize(("given_", "reason"), [("", PASSWORD), ("wrong one", "wrong passphrase")])
def test_a_passphrase_that_lacks_or_does_not_fit_is_said_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_: str, reason: str
) -> None:
    path = key_file(tmp_path, passphrase=SECRET.encode())
    monkeypatch.setenv(PASSWORD, given_)
    with (tmp_path / "empty").open("w+") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(UsageError, match=reason) as caught:
            read_signing_key(path)
    assert "wrong one" not in str(caught.value)


def test_on_a_terminal_the_passphrase_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    path = key_file(tmp_path, passphrase=SECRET.encode())
    ours, theirs = pty.openpty()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}
    with subprocess.Popen(
        [sys.executable, "-c", PROMPT, path],
        env=env,
        stdin=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = os.read(ours, 1000)
        os.write(ours, f"{SECRET}\n".encode())
        out, _ = process.communicate(timeout=30)
    shown += os.read(ours, 1000)
    os.close(ours)
    assert process.returncode == 0
    assert f"Passphrase of {path}: ".encode() in shown
    assert SECRET.encode() not in shown
    assert len(out.strip()) == 64


# What is no key -----------------------------------------------------------------------------------


def test_other_kinds_of_keys_are_refused(tmp_path: Path) -> None:
    private, public = tmp_path / "ec.pem", tmp_path / "ec-public.pem"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    for read, path in (
        (read_signing_key, private),
        (lambda key_path: read_public_keys(str(key_path)), public),
    ):
        with pytest.raises(UsageError, match="is not an ed25519 key") as caught:
            read(path)
        assert "openssl genpkey -algorithm ed25519" in caught.value.hint


def test_a_private_key_is_no_public_one_nor_the_reverse(tmp_path: Path) -> None:
    private = key_file(tmp_path)
    with pytest.raises(UsageError, match="is not a public key") as caught:
        read_public_keys(str(private))
    assert "-pubout" in caught.value.hint
    assert private.read_text().splitlines()[1] not in str(caught.value)
    public = public_file(tmp_path, read_signing_key(private).public)
    public.chmod(0o600)
    with pytest.raises(UsageError, match="is not a private key"):
        read_signing_key(public)


@given(st.binary(max_size=200))
def test_garbage_is_no_key_and_is_not_shown(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage.pem"
    path.touch(0o600)
    for content in (
        data,
        b"-----BEGIN PRIVATE KEY-----\n" + data + b"\n-----END PRIVATE KEY-----\n",
    ):
        path.write_bytes(content)
        for message in (
            _refused(lambda: read_signing_key(path)),
            _refused(lambda: read_public_keys(str(path))),
        ):
            assert message.startswith(f"{path} is not a")


def _refused(read: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        read()
    return caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        assert str(path) in _refused(functools.partial(read_signing_key, path))
        assert str(path) in _refused(functools.partial(read_public_keys, str(path)))
    with pytest.raises(UsageError, match="names no file"):
        read_public_keys(",")


def test_a_key_that_is_shown_does_not_show_what_is_private(tmp_path: Path) -> None:
    key = made_key(tmp_path)
    assert "signer" not in repr(key)
    assert (tmp_path / "key.pem").read_text().splitlines()[1] not in repr(key)


def test_a_stored_key_with_the_id_of_another_is_none(tmp_path: Path) -> None:
    key, second = made_key(tmp_path, "one").public, made_key(tmp_path, "other").public
    with pytest.raises(ValueError, match="does not match its PEM"):
        create_verifier(PublicKey(id=key.id, pem=second.pem))
