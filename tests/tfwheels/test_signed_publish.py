"""`invoke publish --sign` and `--trust` as a user meets them."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders.audit_cases import pin_stock, sound_wheel
from tests.builders.invoke_calls import Tasks, said
from tests.builders.signing_keys import key_file, made_key, public_file

from tfcore.records import format_json
from tfwheels.candidates import Candidates
from tfwheels.keys import PASSWORD, read_signing_key
from tfwheels.publish import PublishResult
from tfwheels.summary import build_fields, describe

SECRET = "correct horse"  # noqa: S105  (a test's)
HERE = ("--no-gate", "--only-tuned", "--to", "index")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_wheel(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def sound(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy2(made, tmp_path))


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Options for the sound wheel, whose small stock wheel is the published one."""
    (stock,) = made.parents[1].glob("*.whl")
    pin_stock(monkeypatch, stock)
    return (*HERE, "--stock-wheel", str(stock))


def test_the_summary_says_who_signed_and_what_is_unsigned() -> None:
    signers = {"a.whl": "f" * 64, "b.whl": "", "c.whl": "f" * 64} | {
        f"{number}.whl": "" for number in range(3)
    }
    published = PublishResult(added=(), present=(), pages=(), choices={}, signers=signers)
    candidates = Candidates(made=(), refused={})
    text = describe(published, candidates, "index", dry_run=False)
    assert f"2 wheels signed by key {'f' * 64}\n" in text
    assert "4 wheels unsigned: b.whl, 0.whl, 1.whl and 1 more\n" in text
    document = json.loads(format_json(build_fields(published, candidates, "index", dry_run=False)))
    assert document["signers"] == signers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("publish --to index --sign no-such.pem", "no-such.pem"),
        ("publish --to index --sign .", "key"),
        ("publish --to index --sign open.pem", "chmod 600 open.pem"),
        ("publish --to index --sign public.pem", "is not a private key"),
        ("publish --to index --trust key.pem", "is not a public key"),
        ("publish --to index --trust ,", "names no file"),
        ("publish --to index --trust public.pem --variants", "variants"),
        ("publish --upload https://i.example --sign key.pem", "--sign has no effect with --upload"),
        ("publish --upload https://i.example --trust public.pem", "--trust has no effect with"),
        ("serve --at tree --trust no-such.pem", "no-such.pem"),
        ("install-snippet --at tree --trust key.pem", "is not a public key"),
    ],
)
def test_bad_keys_are_one_line_and_leave_no_trace(
    words: str, message: str, invoke: Tasks, tmp_path: Path
) -> None:
    key = made_key(tmp_path)
    public_file(tmp_path, key.public).chmod(0o600)
    shutil.copy(tmp_path / "key.pem", tmp_path / "open.pem")
    (tmp_path / "open.pem").chmod(0o644)
    (tmp_path / "tree" / "simple").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    text = said(invoke(*words.split()), 2)
    assert message in text
    assert text.count("\n") == 1
    assert secrets(tmp_path / "key.pem")[0] not in text
    assert sorted(tmp_path.rglob("*")) == before


def secrets(key: Path) -> tuple[str, ...]:
    """What of a private key must be nowhere else, in the forms that it could have."""
    body = "".join(key.read_text("utf-8").splitlines()[1:-1])
    raw = base64.b64decode(body)[-32:]
    return body, raw.hex(), base64.b64encode(raw).decode()


@pytest.mark.toolchain
def test_a_key_with_a_passphrase_signs_and_neither_is_seen_again(
    invoke: Tasks, sound: Path, here: tuple[str, ...], tmp_path: Path
) -> None:
    key = key_file(tmp_path, passphrase=SECRET.encode())
    said(invoke("publish", *here, "--wheels", str(sound), "--sign", str(key)), 2)
    env = {PASSWORD: SECRET}
    words = ("publish", *here, "--wheels", str(sound), "--sign", "key.pem", "--json")
    done = invoke(*words, **env)
    assert done.returncode == 0, done.stderr
    (signer,) = json.loads(done.stdout)["signers"].values()
    index = [path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file()]
    shown = b"".join((done.stdout.encode(), done.stderr.encode(), *index))
    assert signer.encode() in shown
    for secret in (SECRET, *secrets(key)):
        assert secret.encode() not in shown


@pytest.mark.toolchain
def test_from_the_key_to_the_lines_of_a_client(
    invoke: Tasks, sound: Path, here: tuple[str, ...], tmp_path: Path
) -> None:
    key = read_signing_key(key_file(tmp_path))
    public_file(tmp_path, key.public)
    other_key = made_key(tmp_path, "other")
    public_file(tmp_path, other_key.public, "their")
    wheels = ("--wheels", str(sound))
    refused = invoke("publish", *here, *wheels, "--trust", "public.pem")
    assert (refused.returncode, refused.stdout) == (36, "")
    assert f"{sound.name} is unsigned" in refused.stderr.splitlines()[-1]
    done = invoke("publish", *here, *wheels, "--sign", "key.pem", "--trust", "public.pem")
    assert done.returncode == 0, done.stderr
    assert f"1 wheel signed by key {key.public.id}" in done.stdout
    assert "does not trust" in said(invoke("publish", *here, *wheels, "--sign", "other.pem"), 36)
    snippet = ("install-snippet", "--at", "index", "--arch", "haswell")
    assert "python3 check_wheel.py" in invoke(*snippet, "--trust", "public.pem").stdout
    assert "not signed by any" in said(invoke(*snippet, "--trust", "their.pem"), 44)
    check = ("check-index", "--at", "index", "--trust", "public.pem", "--json")
    checked = json.loads(invoke(*check).stdout)
    assert (checked["key"], checked["faults"]) == (key.public.id, [])
    renew = ("publish", "--to", "index", "--sign", "key.pem", "--renew")
    assert f"revision {checked['revision'] + 1}, valid until" in invoke(*renew).stdout
    assert json.loads(invoke(*check).stdout)["revision"] == checked["revision"] + 1
    withdraw = ("publish", "--to", "index", "--quarantine", sound.name, "--reason", "wrong LSTM")
    assert "--sign KEY" in said(invoke(*withdraw), 36)
    done = invoke(*withdraw, "--sign", "key.pem")
    assert f"{sound.name} is quarantined: wrong LSTM\n" in done.stdout
    assert re.match(r"index: \d+ pages written\n", done.stdout)
    assert "no wheel of" in said(invoke(*snippet, "--trust", "public.pem"), 2)
    assert "no wheel x" in said(
        invoke("publish", "--to", "index", "--sign", "key.pem", "--restore", "x"), 2
    )
    done = invoke("publish", "--to", "index", "--sign", "key.pem", "--restore", sound.name)
    assert f"{sound.name} is not withdrawn\n" in done.stdout
    assert json.loads(invoke(*check).stdout)["revision"] == checked["revision"] + 3
    path = tmp_path / "index" / "catalog.json"
    kept = path.read_bytes()
    harms: tuple[dict[str, Any], ...] = (
        {"entries": [], "signature": None},
        {"signature": None},
        {"entries": 1},
    )
    for harm in harms:
        path.write_text(json.dumps(json.loads(kept) | harm), "utf-8")
        harmed = path.read_bytes()
        code = 28 if harm == {"entries": 1} else 44
        said(invoke("publish", "--to", "index", "--sign", "key.pem", "--renew"), code)
        assert path.read_bytes() == harmed
    done = invoke("publish", *here, *wheels, "--sign", "key.pem", "--reindex")
    assert done.returncode == 0, done.stderr
    assert json.loads(invoke(*check).stdout)["faults"] == []
    assert "is not an index" in said(
        invoke("publish", "--to", "mistyped", "--yank", "x.whl", "--reason", "r"), 2
    )
    assert not (tmp_path / "mistyped").exists()
    assert "variants" in said(invoke("publish", *here, *wheels, "--variants"), 2)
