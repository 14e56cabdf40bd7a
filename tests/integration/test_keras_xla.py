"""What each Keras of our locks gives to XLA on a machine that has no devices but CPUs.

Each runs on one TensorFlow: what is asked is decided in Keras's own Python.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from tests.tools.locks import bare, entries, name_of

from tfbuild.kernelbuild import admission
from tfbuild.tools import pip
from tfbuild.tools.environment import Environment
from tfbuild.upstream.lock_files import LOCKS
from tfcore.run import run

pytestmark = pytest.mark.toolchain

NEEDS = ("markdown-it-py", "mdurl", "namex", "optree", "pygments", "rich")
"""What Keras 3 imports beside what comes with TensorFlow 2.14."""
PROGRAM = """
import json
import sys
import keras as package
import numpy as np
import tensorflow as tf
keras = tf.keras if sys.argv[1] == "2" else package
layers = keras.layers

def compiled(shape, layer, **settings):
    model = keras.Sequential([keras.Input(shape), layer, layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse", **settings)
    given = np.ones((8, *shape), "float32")
    if layer.name == "fitted":
        model.fit(given, np.ones((8, 1), "float32"), verbose=0)
    called = tf.function(lambda x: model(x)).get_concrete_function(tf.constant(given))
    functions = called.graph.as_graph_def().library.function
    marked = any(each.attr["_XlaMustCompile"].b for each in functions)
    return bool(getattr(model, "jit_compile", None)), marked

image, volume = (9, 9, 4), (4, 4, 4, 4)
found = {
    "dense": compiled((8,), layers.Dense(3, name="fitted")),
    "asked": compiled((8,), layers.Dense(3), jit_compile=True),
    "conv2d": compiled(image, layers.Conv2D(4, 3)),
    "grouped": compiled(image, layers.Conv2D(4, 3, groups=2)),
}
if sys.argv[1] == "3":
    found["first"] = compiled(volume, layers.Conv3D(2, 3, data_format="channels_first"))
print(json.dumps({"version": package.__version__, **found}))
"""


def locked(name: str) -> dict[str, str]:
    """What our locks say of a package, by its version, without markers."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(LOCKS.glob("*.txt"))]
    actual = [bare(entry)[0] for text in texts for entry in entries(text) if name_of(entry) == name]
    return {entry.partition("==")[2].split()[0]: entry for entry in actual}


VERSIONS = tuple(locked("keras"))


@pytest.mark.parametrize("version", VERSIONS)
def test_only_what_was_asked_for_and_some_convolutions_go_to_xla(
    version: str, stock_arm: Environment, tmp_path: Path
) -> None:
    generation = version.partition(".")[0]
    needs = [[*locked(name).values()][-1] for name in NEEDS] if generation == "3" else []
    (tmp_path / "wanted.txt").write_text("".join([locked("keras")[version], *needs]), "utf-8")
    pip.download(tmp_path / "wanted.txt", tmp_path / "wheels", "--only-binary=:all:")
    for wheel in (tmp_path / "wheels").iterdir():
        zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    env = admission.build_probe_env() | {"PYTHONPATH": str(tmp_path / "site")}
    words: list[str | Path] = [stock_arm.python, "-c", PROGRAM, generation]
    document = json.loads(run(words, env=env, timeout_s=600).output.splitlines()[-1])
    assert document.pop("version") == version
    assert document == {
        "dense": [False, False],
        "asked": [True, False],
        "conv2d": [False, False],
        "grouped": [False, True],
        **({"first": [False, True]} if generation == "3" else {}),
    }


def test_the_locks_have_both_generations() -> None:
    assert {version.partition(".")[0] for version in VERSIONS} == {"2", "3"}
