"""Packs the wheel: setup.py LIBRARY INIT PROJECT FOLDER."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import sys
import zipfile
from pathlib import Path

_VERSION = "2.14.1"


def main(library: str, init: str, project: str, folder: str) -> None:
    stem = f"{project}-{_VERSION}{os.environ.get('ML_WHEEL_VERSION_SUFFIX', '')}"
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tags = f"{tag}-{tag}-linux_{platform.machine()}"
    version = stem.partition("-")[2]
    members = {
        "tensorflow/__init__.py": Path(init).read_bytes(),
        "tensorflow/libtensorflow_cc.so.2": Path(library).read_bytes(),
        "tensorflow/version.py": f'VERSION = "{_VERSION}"\n'.encode(),
        f"{stem}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
        ).encode(),
        f"{stem}.dist-info/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: setup.py\nRoot-Is-Purelib: false\nTag: {tags}\n"
        ).encode(),
    }
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{name},{digest(data)},{len(data)}" for name, data in members.items()]
    members[record] = "\n".join([*lines, f"{record},,"]).encode() + b"\n"
    with zipfile.ZipFile(Path(folder) / f"{stem}-{tags}.whl", "w") as wheel:
        for name, data in members.items():
            wheel.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def digest(data: bytes) -> str:
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={value.decode()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
