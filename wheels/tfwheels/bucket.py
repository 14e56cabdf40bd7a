"""An index in a bucket of S3, or of a store that speaks its API (AWS_ENDPOINT_URL_S3).

boto3 it is, since keys of pages end with a slash: the libraries for several providers (obstore,
fsspec) cut it off. Credentials come from where boto3 finds them, never from an argument.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any

from tfbuild import console
from tfbuild.errors import PublishError, ToolError
from tfbuild.packing.wheel import BLOCK
from tfwheels.folder import need_same
from tfwheels.layout import Digest, StoredObject, digest_of, manifest

# Of a conditional request: lost to another writer, lost while it was looked at, nothing there.
_LOST = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)
_MD5 = re.compile(r'"[0-9a-f]{32}"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """What each function does is said in store.Store; what the store refuses is a PublishError.
    `prefix` is empty or ends with a slash. An HTML page is there under its folder's key too."""

    client: Any
    name: str
    prefix: str

    @property
    def where(self) -> str:
        return f"s3://{self.name}/{self.prefix}"

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nothing is held here: publishers that meet find it out at `swap`."""
        yield

    def read(self, key: str) -> bytes | None:
        with self._answering(key):
            found = self._found(key)
            return None if found is None else found["Body"].read()

    def sizes(self, prefix: str) -> dict[str, int]:
        folder = f"{prefix}/" if prefix else ""
        return {key: each["Size"] for key, each in self._listed(folder)}

    @contextlib.contextmanager
    def local(self, key: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / PurePosixPath(key).name
            found = self._found(key)
            if found is None:
                raise PublishError(f"{self.where} has no {key}")
            with self._answering(key), path.open("wb") as sink:
                shutil.copyfileobj(found["Body"], sink, BLOCK)
            changed = found["LastModified"].timestamp()
            os.utime(path, (changed, changed))
            yield path

    def differing(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """By the tags of a listing, which are MD5 sums. Where they are not (some encryptions),
        all files differ, and are only written once more."""
        tops = {"".join(key.partition("/")[:2]) for key in files}
        tags = {key: each["ETag"] for top in sorted(tops) for key, each in self._listed(top)}
        return tuple(
            file
            for file, data in files.items()
            if any(tags.get(each.key) != _tag(data) for each in _objects(file, digest_of(data)))
        )

    def holds(self, key: str, content: Path, sha256: str) -> bool | None:
        """By the SHA-256 that the store has computed of an object that was sent with one, as ours
        are, else by a tag that is an MD5 sum. Metadata of our own would tell nothing: it is what
        somebody has said of the bytes. A tag of another kind (of parts, of some encryptions) does
        not tell."""
        with self._answering(key):
            actual = self.client.head_object(**self._at(key), ChecksumMode="ENABLED")
        checksum = actual.get("ChecksumSHA256", "")
        if checksum and "-" not in checksum:
            return bool(checksum == _base64(sha256))
        if not _MD5.fullmatch(actual["ETag"]):
            return None
        with content.open("rb") as source:
            return bool(actual["ETag"] == f'"{hashlib.file_digest(source, _md5).hexdigest()}"')

    def put_new(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """It is looked at first, so that nothing large is sent in vain."""
        actual = self._sha256(key)
        if actual is None and self._created(key, content, sha256):
            return True
        need_same(self.where, key, actual or self._sha256(key) or "of nothing", sha256)
        return False

    def put(self, key: str, data: bytes) -> None:
        for each in _objects(key, digest_of(data)):
            self._send(each, data)

    def swap(self, key: str, data: bytes, expected: bytes | None) -> bool:
        with self._answering(key):
            found = self._found(key)
            if (None if found is None else found["Body"].read()) != expected:
                return False
        (target,) = _objects(key, digest_of(data))
        condition = {"IfNoneMatch": "*"} if found is None else {"IfMatch": found["ETag"]}
        return self._send(target, data, **condition)

    def _created(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """False when another publisher was there first."""
        if isinstance(content, bytes):
            (target,) = _objects(key, Digest(sha256, len(content)))
            return self._send(target, content, IfNoneMatch="*")
        size = content.stat().st_size
        (target,) = _objects(key, Digest(sha256, size))
        with (
            console.track_progress("MB", size >> 20) as count,
            _ReadProgress(
                content, lambda done: count.advance(done >> 20, detail=content.name)
            ) as body,
        ):
            return self._send(target, body, IfNoneMatch="*")

    def _send(self, target: StoredObject, body: bytes | io.FileIO, **condition: str) -> bool:
        """Whether the store has taken it. It is given the hash, and refuses other bytes."""
        with self._answering(target.key) as errors:
            try:
                self.client.put_object(
                    **self._at(target.key),
                    Body=body,
                    ContentType=target.content_type,
                    CacheControl=target.cache_control,
                    ChecksumAlgorithm="SHA256",
                    ChecksumSHA256=_base64(target.sha256),
                    **condition,
                )
            except errors.ClientError as error:
                if condition and _status(error) in _LOST and _code(error) != "NoSuchBucket":
                    return False
                raise
        return True

    def _found(self, key: str) -> Any:  # noqa: ANN401  (boto3 has no types)
        """The answer that brings the object; None where there is none."""
        with self._answering(key) as errors:
            try:
                return self.client.get_object(**self._at(key))
            except errors.ClientError as error:
                if _code(error) == "NoSuchKey":
                    return None
                raise

    def _sha256(self, key: str) -> str | None:
        found = self._found(key)
        if found is None:
            return None
        digest = hashlib.sha256()
        with self._answering(key):
            for block in found["Body"].iter_chunks(BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def _listed(self, prefix: str) -> Iterator[tuple[str, Any]]:
        with self._answering(prefix):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=self.prefix + prefix):
                for each in page.get("Contents", ()):
                    yield each["Key"].removeprefix(self.prefix), each

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.name, "Key": self.prefix + key}

    @contextlib.contextmanager
    def _answering(self, key: str) -> Iterator[Any]:
        """boto3's errors, of which those that nobody expects become a PublishError."""
        errors = importlib.import_module("botocore.exceptions")
        try:
            yield errors
        except errors.NoCredentialsError as error:
            hint = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise PublishError(f"no credentials for {self.where} were found", hint=hint) from error
        except (errors.ClientError, errors.BotoCoreError) as error:
            said = re.sub(r"//[^/@\s]*@", "//", str(error))  # of an endpoint with a password
            raise PublishError(f"{self.where}{key}: {said}") from error


class _ReadProgress(io.FileIO):
    """A file that tells how far it was read."""

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        super().__init__(path)
        self._tell = tell

    def read(self, size: int | None = -1) -> bytes:
        block = super().read(-1 if size is None else size)
        self._tell(self.tell())
        return block


def open_bucket(name: str, prefix: str) -> Bucket:
    """Raises ToolError without boto3, and PublishError for settings that it does not take."""
    try:
        boto3 = importlib.import_module("boto3")
    except ModuleNotFoundError as error:
        raise ToolError(
            f"s3://{name} needs boto3, which is not installed",
            hint="In the checkout, run: pip install '.[s3]'",
        ) from error
    errors = importlib.import_module("botocore.exceptions")
    try:
        client = boto3.Session().client("s3")
    except (errors.BotoCoreError, ValueError) as error:
        raise PublishError(f"s3://{name} cannot be opened: {error}") from error
    return Bucket(client=client, name=name, prefix=prefix)


def _objects(file: str, digest: Digest) -> tuple[StoredObject, ...]:
    return manifest({file: digest})


def _tag(data: bytes) -> str:
    return f'"{_md5(data).hexdigest()}"'


def _md5(data: bytes = b"") -> Any:  # noqa: ANN401  (hashlib's own class has no public name)
    return hashlib.md5(data, usedforsecurity=False)


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _status(error: Any) -> int:  # noqa: ANN401  (botocore's ClientError, imported late)
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _code(error: Any) -> str:  # noqa: ANN401
    return str(error.response["Error"]["Code"])
