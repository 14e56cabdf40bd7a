"""An index in an S3 bucket, or in a store with an S3-compatible API (AWS_ENDPOINT_URL_S3).

It uses boto3 because the keys of pages end with a slash: libraries for several providers (obstore,
fsspec) remove it. boto3 finds the credentials; no argument contains them.
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

from tfbuild.packing.wheel import BLOCK
from tfcore import console
from tfcore.errors import PublishError, ToolError
from tfwheels.folder import require_same
from tfwheels.layout import Digest, StoredObject, build_manifest, compute_digest

# A conditional write failed: the object changed, is being written, or does not exist.
_LOST = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)
_MD5 = re.compile(r'"[0-9a-f]{32}"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """An index in an S3 bucket, which implements `store.Store`.

    `prefix` is empty or ends with a slash. An HTML page is also stored under its folder's
    key. Raises PublishError if the store refuses a request.
    """

    client: Any
    name: str
    prefix: str

    @property
    def where(self) -> str:
        return f"s3://{self.name}/{self.prefix}"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Do nothing: `swap` detects concurrent publishers."""
        yield

    def read(self, key: str) -> bytes | None:
        with self._convert_errors(key):
            response = self._get_object(key)
            return None if response is None else response["Body"].read()

    def list_sizes(self, prefix: str) -> dict[str, int]:
        folder = f"{prefix}/" if prefix else ""
        return {key: item["Size"] for key, item in self._list_objects(folder)}

    @contextlib.contextmanager
    def open_local(self, key: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / PurePosixPath(key).name
            response = self._get_object(key)
            if response is None:
                raise PublishError(f"{self.where} has no {key}")
            with self._convert_errors(key), path.open("wb") as sink:
                shutil.copyfileobj(response["Body"], sink, BLOCK)
            changed = response["LastModified"].timestamp()
            os.utime(path, (changed, changed))
            yield path

    def find_differing(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the files whose stored bytes differ, according to the MD5 sums in a listing.

        If the ETags are not MD5 sums (with some encryptions), all files count as different and are
        written again.
        """
        tops = {"".join(key.partition("/")[:2]) for key in files}
        tags = {key: item["ETag"] for top in sorted(tops) for key, item in self._list_objects(top)}
        return tuple(
            file
            for file, data in files.items()
            if any(
                tags.get(item.key) != _format_tag(data)
                for item in _build_objects(file, compute_digest(data))
            )
        )

    def has_content(self, key: str, content: Path, sha256: str) -> bool | None:
        """Return whether the object has these bytes; None if its checksums do not show it.

        Compares the SHA-256 that the store computed at the upload, else the ETag if it is an MD5
        sum. Metadata of our own would prove nothing: it is only a claim about the bytes. Returns
        None for other ETags (multipart uploads, some encryptions).
        """
        with self._convert_errors(key):
            actual = self.client.head_object(**self._build_address(key), ChecksumMode="ENABLED")
        checksum = actual.get("ChecksumSHA256", "")
        if checksum and "-" not in checksum:
            return bool(checksum == _encode_base64(sha256))
        if not _MD5.fullmatch(actual["ETag"]):
            return None
        with content.open("rb") as source:
            return bool(
                actual["ETag"] == f'"{hashlib.file_digest(source, _create_md5).hexdigest()}"'
            )

    def put_new(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """Store a file that never changes; return False if it exists.

        Checks first, to avoid a large upload that the store would refuse.
        """
        actual = self._hash_object(key)
        if actual is None and self._create_object(key, content, sha256):
            return True
        require_same(self.where, key, actual or self._hash_object(key) or "unknown", sha256)
        return False

    def put(self, key: str, data: bytes) -> None:
        for target in _build_objects(key, compute_digest(data)):
            self._send(target, data)

    def swap(self, key: str, data: bytes, expected: bytes | None) -> bool:
        with self._convert_errors(key):
            response = self._get_object(key)
            if (None if response is None else response["Body"].read()) != expected:
                return False
        (target,) = _build_objects(key, compute_digest(data))
        condition = {"IfNoneMatch": "*"} if response is None else {"IfMatch": response["ETag"]}
        return self._send(target, data, **condition)

    def _create_object(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """Store a new object; return False if another publisher was first."""
        if isinstance(content, bytes):
            (target,) = _build_objects(key, Digest(sha256, len(content)))
            return self._send(target, content, IfNoneMatch="*")
        size = content.stat().st_size
        (target,) = _build_objects(key, Digest(sha256, size))
        with (
            console.track_progress("MB", size >> 20) as count,
            _ReadProgress(
                content, lambda done: count.advance(done >> 20, detail=content.name)
            ) as body,
        ):
            return self._send(target, body, IfNoneMatch="*")

    def _send(self, target: StoredObject, body: bytes | io.FileIO, **condition: str) -> bool:
        """Send an object with its SHA-256; return whether the store accepted it.

        The store refuses bytes with another hash.
        """
        with self._convert_errors(target.key) as errors:
            try:
                self.client.put_object(
                    **self._build_address(target.key),
                    Body=body,
                    ContentType=target.content_type,
                    CacheControl=target.cache_control,
                    ChecksumAlgorithm="SHA256",
                    ChecksumSHA256=_encode_base64(target.sha256),
                    **condition,
                )
            except errors.ClientError as error:
                if condition and _get_status(error) in _LOST and _get_code(error) != "NoSuchBucket":
                    return False
                raise
        return True

    def _get_object(self, key: str) -> Any:  # noqa: ANN401  (boto3 has no types)
        """Return the response with the object; None if there is no such object."""
        with self._convert_errors(key) as errors:
            try:
                return self.client.get_object(**self._build_address(key))
            except errors.ClientError as error:
                if _get_code(error) == "NoSuchKey":
                    return None
                raise

    def _hash_object(self, key: str) -> str | None:
        response = self._get_object(key)
        if response is None:
            return None
        digest = hashlib.sha256()
        with self._convert_errors(key):
            for block in response["Body"].iter_chunks(BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def _list_objects(self, prefix: str) -> Iterator[tuple[str, Any]]:
        with self._convert_errors(prefix):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=self.prefix + prefix):
                for item in page.get("Contents", ()):
                    yield item["Key"].removeprefix(self.prefix), item

    def _build_address(self, key: str) -> dict[str, str]:
        return {"Bucket": self.name, "Key": self.prefix + key}

    @contextlib.contextmanager
    def _convert_errors(self, key: str) -> Iterator[Any]:
        """Convert boto3's errors to PublishError, unless the caller handles them."""
        errors = importlib.import_module("botocore.exceptions")
        try:
            yield errors
        except errors.NoCredentialsError as error:
            hint = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise PublishError(f"found no credentials for {self.where}", hint=hint) from error
        except (errors.ClientError, errors.BotoCoreError) as error:
            message = re.sub(r"//[^/@\s]*@", "//", str(error))  # remove the password of an endpoint
            raise PublishError(f"{self.where}{key}: {message}") from error


class _ReadProgress(io.FileIO):
    """A file that reports how much of it was read."""

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        super().__init__(path)
        self._tell = tell

    def read(self, size: int | None = -1) -> bytes:
        block = super().read(-1 if size is None else size)
        self._tell(self.tell())
        return block


def open_bucket(name: str, prefix: str) -> Bucket:
    """Return an index in a bucket.

    Raises ToolError if boto3 is not installed, and PublishError if boto3 rejects the settings.
    """
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
        raise PublishError(f"cannot open s3://{name}: {error}") from error
    return Bucket(client=client, name=name, prefix=prefix)


def _build_objects(file: str, digest: Digest) -> tuple[StoredObject, ...]:
    return build_manifest({file: digest})


def _format_tag(data: bytes) -> str:
    return f'"{_create_md5(data).hexdigest()}"'


def _create_md5(data: bytes = b"") -> Any:  # noqa: ANN401  (hashlib's class has no public name)
    return hashlib.md5(data, usedforsecurity=False)


def _encode_base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _get_status(error: Any) -> int:  # noqa: ANN401  (botocore's ClientError, imported late)
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _get_code(error: Any) -> str:  # noqa: ANN401
    return str(error.response["Error"]["Code"])
