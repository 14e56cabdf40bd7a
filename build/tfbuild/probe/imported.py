"""Reports which kernels `import tensorflow` runs, in the interpreter that has it: `python -c` runs
this text, so that Tensorwright is not on the path. Writes one JSON object to the file that its
argument names.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(answer: Path) -> None:
    import tensorflow as tf

    folder = Path(tf.__file__).parent
    records = sorted(map(str, folder.parent.glob("tensorflow*.dist-info/tuned.json")))
    facts = {"file": tf.__file__, "version": tf.__version__, "records": records}
    answer.write_text(json.dumps(facts | _read_kernels()), encoding="utf-8")


def _read_kernels() -> dict[str, Any]:
    """Return the target whose kernels are loaded, or the reason why none is."""
    try:
        shipped = importlib.import_module("tensorflow._tensorwright")
    except ImportError:
        return {"loaded": "", "reason": "tensorflow/_tensorwright.py is missing"}
    reason = shipped.why_stock(shipped.DISPATCHER)
    if reason:
        return {"loaded": "", "reason": reason}
    dispatcher = ctypes.CDLL(str(shipped.DISPATCHER))
    dispatcher.tensorwright_loaded.restype = ctypes.c_char_p
    return {"loaded": dispatcher.tensorwright_loaded().decode(), "reason": ""}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
