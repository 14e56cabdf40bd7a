"""A real S3 API over HTTP on 127.0.0.1 (moto's server, a process of its own)."""

from __future__ import annotations

import contextlib
import importlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "wheels"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "key-of-a-test",
    "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A server with the bucket `wheels`, which everybody may read. `env` is what boto3 needs."""

    url: str
    client: Any
    env: Mapping[str, str]


@contextlib.contextmanager
def serving_s3() -> Iterator[Served]:
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=log) as server,
    ):
        try:
            yield _prepared(_address(server, Path(log.name)))
        finally:
            server.kill()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """What the server says once it listens."""
    while server.poll() is None:
        match = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(encoding="utf-8"))
        if match:
            return match[0]
        time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8"))


def _prepared(url: str) -> Served:
    client = importlib.import_module("boto3").client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=SETTINGS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=SETTINGS["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=NAME)
    client.put_bucket_policy(
        Bucket=NAME,
        Policy='{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", '
        f'"Resource": "arn:aws:s3:::{NAME}/*"}}]}}',
    )
    return Served(url=url, client=client, env=SETTINGS | {"AWS_ENDPOINT_URL_S3": url})
