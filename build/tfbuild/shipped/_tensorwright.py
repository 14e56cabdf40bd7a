"""Makes `import tensorflow` fail if it would run stock kernels and TENSORWRIGHT_REQUIRE=1 is set.

tensorflow/__init__.py calls `require` only if that variable is set. The message contains
TENSORWRIGHT_INDEX, the base URL of the index.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DISPATCHER = FOLDER / "core" / "kernels" / "libtfkernel_tensorwright.so"


def require() -> None:
    """Raise ImportError if the stock kernels run, with the reason."""
    fault = why_stock(DISPATCHER)
    if fault:
        raise ImportError(
            f"TENSORWRIGHT_REQUIRE is set, but TensorFlow runs with its stock kernels: {fault}. "
            f"{describe_wheel_page(os.environ.get('TENSORWRIGHT_INDEX', ''))}",
            name="tensorflow",
        )


def why_stock(path: Path) -> str:
    """Return the dispatcher's reason for using the stock kernels, or an empty string if kernels
    of the wheel are loaded.
    """
    if not path.exists():
        return f"{path} is missing"
    try:
        dispatcher = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
    except OSError:
        return f"TensorFlow did not load {path}: it does so only in a site-packages folder"
    dispatcher.tensorwright_loaded.restype = ctypes.c_char_p
    dispatcher.tensorwright_reason.restype = ctypes.c_char_p
    if dispatcher.tensorwright_loaded():
        return ""
    return str(dispatcher.tensorwright_reason().decode(errors="replace"))


def describe_wheel_page(index: str) -> str:
    """Describe the page of the index that has the wheels for this CPU."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        data = json.loads((FOLDER / "_tensorwright.json").read_text(encoding="utf-8"))
        target = find_target(cpuinfo, data)
    except (OSError, ValueError, LookupError, TypeError):
        return "This CPU cannot be identified. `archspec cpu` prints the name of its index page"
    # Do not show a login in the address.
    base = re.sub(r"//[^/]*@", "//", index).rstrip("/")
    page = f"{base}/simple/{target}/" if base else f"the page simple/{target}/ of your index"
    return f"Wheels for this CPU, {target}: {page}"


def find_target(cpuinfo: str, known: Mapping[str, Any]) -> str:
    """Return the target that `archspec cpu` prints on a machine with this /proc/cpuinfo.

    `known` is _tensorwright.json. Raises ValueError or KeyError for a text that shows no CPU
    of its family.
    """
    vendor, part, features = read_cpuinfo(cpuinfo, known)
    matching = [
        target
        for target in known["targets"]
        if target["vendor"] in (vendor, "generic") and features.issuperset(target["features"])
    ]
    generic = max((target for target in matching if target["vendor"] == "generic"), key=get_depth)
    same_part = [target for target in matching if part and target["part"] == part]
    candidates = [
        target for target in same_part or matching if generic["name"] in target["ancestors"]
    ]
    return str(max(candidates, key=get_depth, default=generic)["name"])


def get_depth(target: Mapping[str, Any]) -> tuple[int, int]:
    return len(target["ancestors"]), len(target["features"])


def read_cpuinfo(text: str, known: Mapping[str, Any]) -> tuple[str, str, set[str]]:
    """Return the vendor, the part number (aarch64), and the features that all processors have,
    by archspec's names.
    """
    pairs = (line.partition(":") for line in text.splitlines())
    rows = [(key.strip(), value.strip()) for key, _, value in pairs]
    first_values = dict(reversed(rows))
    vendor = first_values.get("vendor_id") or first_values["CPU implementer"]
    flags = [set(value.split()) for key, value in rows if key in {"flags", "Features"}]
    if not flags:
        raise ValueError("no processor lists its features")
    names = known["features"]
    features = {name for flag in set.intersection(*flags) for name in names.get(flag, ())}
    return known["vendors"].get(vendor, vendor), first_values.get("CPU part", ""), features
