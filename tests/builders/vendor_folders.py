"""Vendor folders without a Bazel: a few files and their lock."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tfbuild.upstream.download import hash_file
from tfbuild.vendoring.vendor_folder import LOCK, SCHEMA, VendoredFile, VendorLock, compute_lock_key
from tfcore import records

FILES = {
    "repository_cache/content_addressable/sha256/00/file": b"archive a",
    "repository_cache/content_addressable/sha256/11/file": b"archive b",
    "sources/tensorflow.tar.gz": b"sources",
}


def make_folder(
    folder: Path, *, bazel: str = "4.2.3", more: dict[str, bytes] | None = None
) -> VendorLock:
    """A whole folder; Bazel is the system's unless `more` has one."""
    files = {**FILES, **(more or {})}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    lock = VendorLock(
        schema=SCHEMA,
        release="2.14.1",
        bazel=bazel,
        from_system=not any(name.startswith("bazel/") for name in files),
        first_use={"b": hash_file(folder / [*FILES][1])},
        files=tuple(
            VendoredFile(
                path=name,
                urls=("https://x.example/" + name,),
                sha256=hash_file(folder / name),
                size=len(data),
            )
            for name, data in sorted(files.items())
        ),
        key="",
    )
    lock = dataclasses.replace(lock, key=compute_lock_key(lock))
    records.save(folder / LOCK, lock)
    return lock
