"""A workload of the user's own: a compiled Keras model from a file, and batches that fit it.

The file is one of these.

    PATH.py            defines `build()`, which returns a compiled tf.keras model, and may define
                       `data()`, which returns what `fit` takes: arrays (inputs, targets), cut into
                       batches of 32 as `fit` does, or a tf.data.Dataset of batches
    PATH.keras, .h5    a model that was compiled when it was saved
    PATH/              the folder of a SavedModel that Keras wrote, compiled as well

Without `data()`, batches are drawn that fit the model's inputs and its loss. Everything random must
follow TensorFlow's, NumPy's and Python's global seeds: they are set before the file is read. For
requests (`--phase infer`) the model need not be compiled.

This file runs inside each arm's own environment: the standard library, NumPy and TensorFlow only.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfbench.inside.workload import BATCHES

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Array: TypeAlias = NDArray[Any]
Structure: TypeAlias = Any
"""Arrays, or tuples and dicts of them."""

BATCH = 32
"""Examples of a batch where the data come unbatched: what `fit` takes by default."""
_SAVED = (".keras", ".h5", ".hdf5")
_PROGRAM = "tensorwright_program"


class ProgramError(Exception):
    """A file that cannot be trained, in one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """`examples` hold up to BATCHES batches: the first axis counts batches, the second examples;
    `arrays` are their own, in the order of tf.nest. `predicts` is false for a model without call().
    """

    model: Model
    examples: Structure
    arrays: tuple[Array, ...]
    predicts: bool
    given: Structure | None
    """What data() returned."""

    @property
    def batch(self) -> int:
        return int(self.arrays[0].shape[1])

    @property
    def parts(self) -> list[Any]:
        """What has variables: the model, or those layers of one without call() that are built."""
        parts = [self.model] if self.predicts else self.model.layers
        return [part for part in parts if part.built]

    @property
    def parameters(self) -> int:
        return sum(int(part.count_params()) for part in self.parts)

    @property
    def trainable(self) -> list[Any]:
        return [weight for part in self.parts for weight in part.trainable_weights]


def read_program(tf: TensorFlow, path: Path, seed: int, *, trained: bool = True) -> Program:
    """One that is not `trained` need not be compiled, and has no targets unless data() gives them.

    Raises ProgramError for what is no model that can be used so; what the user's own code raises
    goes through, see `error_line`.
    """
    model, given = _python(tf, path) if path.suffix == ".py" else (_saved(tf, path), None)
    if trained:
        _need_trainable(tf, model)
    draw = np.random.default_rng(seed)
    examples = _batched(tf, drawn(tf, model, draw, trained=trained) if given is None else given)
    arrays = tuple(tf.nest.flatten(examples))
    predicts = _built(tf, model, examples)
    if not (trained or predicts):
        raise ProgramError("the model has no call(): it can be trained, and not be asked")
    return Program(model=model, examples=examples, arrays=arrays, predicts=predicts, given=given)


def error_line(error: BaseException, path: Path) -> str:
    """What the user's file raised, in one line: where in that file, and the last line of it."""
    words = str(error).strip().splitlines()
    if isinstance(error, ProgramError):
        return words[-1]
    said = ": ".join([type(error).__name__, *(line.strip() for line in words[-1:])])
    line = _line(error, path)
    return f"line {line}: {said}" if line else said


def _line(error: BaseException, path: Path) -> int | None:
    """The innermost line of the user's file that the error went through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def _python(tf: TensorFlow, path: Path) -> tuple[Model, Structure | None]:
    """The model, and the data if the file has any."""
    module = _module(path)
    build, data = getattr(module, "build", None), getattr(module, "data", None)
    if not callable(build):
        raise ProgramError("it defines no build(), which returns a compiled tf.keras model")
    model = build()
    if not isinstance(model, tf.keras.Model):
        raise ProgramError(f"build() returns {type(model).__name__}, not a tf.keras model")
    return model, data() if callable(data) else None


def _module(path: Path) -> ModuleType:
    """The file run as a module; what lies beside it can be imported, as in a script."""
    spec = importlib.util.spec_from_file_location(_PROGRAM, path)
    assert spec is not None  # noqa: S101  (there is one for every .py)
    assert spec.loader is not None  # noqa: S101  (and it is found by its path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PROGRAM] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def _saved(tf: TensorFlow, path: Path) -> Model:
    if not path.is_dir() and path.suffix not in _SAVED:
        raise ProgramError(f"is none of .py, {', '.join(_SAVED)} and the folder of a SavedModel")
    model = tf.keras.models.load_model(path)
    if not isinstance(model, tf.keras.Model):
        raise ProgramError("is a SavedModel that Keras did not write: it has no training step")
    return model


def _need_trainable(tf: TensorFlow, model: Model) -> None:
    own_step = type(model).train_step is not tf.keras.Model.train_step
    if model.optimizer is None:
        raise ProgramError("the model is not compiled: it has no optimizer and no loss")
    if not (model.loss or model.losses or own_step):  # (Keras has {} for no loss)
        raise ProgramError("the model has no loss: give compile() one")


def _built(tf: TensorFlow, model: Model, examples: Structure) -> bool:
    """Make the variables of a subclassed model, as `fit` does from its first batch. Returns False
    for a model that its train_step alone knows how to run."""
    first = tf.nest.map_structure(lambda each: each[0], examples)
    inputs, *_ = tf.keras.utils.unpack_x_y_sample_weight(first)
    try:
        if not model.built:
            model(inputs, training=False)
    except NotImplementedError:
        return False
    return True


# --- data -----------------------------------------------------------------------------------------


def _batched(tf: TensorFlow, given: Structure) -> Structure:
    """The given data as batches of one shape. Raises ProgramError."""
    if isinstance(given, tf.data.Dataset):
        return _stacked(tf, list(given.copy_stock(BATCHES).as_numpy_iterator()))
    whole = tf.nest.map_structure(_array, _tupled(given))
    lengths = {len(each) if each.ndim else 0 for each in tf.nest.flatten(whole)}
    if len(lengths) != 1 or 0 in lengths:
        raise ProgramError(f"data() gives arrays of different lengths or none: {sorted(lengths)}")
    (length,) = lengths
    batch = min(BATCH, length)
    count = min(BATCHES, length // batch)
    return tf.nest.map_structure(
        lambda each: each[: count * batch].reshape(count, batch, *each.shape[1:]), whole
    )


def _stacked(tf: TensorFlow, batches: Sequence[Structure]) -> Structure:
    """Those of the first one's shapes: the last of a dataset may be a part of one."""
    if not batches:
        raise ProgramError("data() gives no batch")
    arrays = [tf.nest.map_structure(_array, each) for each in batches]
    shapes = [[each.shape for each in tf.nest.flatten(one)] for one in arrays]
    if not all(shapes[0]) or not all(shape and shape[0] for shape in shapes[0]):
        raise ProgramError("data() gives a dataset without batches: call its batch()")
    alike = [one for one, shape in zip(arrays, shapes, strict=True) if shape == shapes[0]]
    return tf.nest.map_structure(lambda *each: np.stack(each), *alike)


def _array(value: object) -> Array:
    array = np.asarray(value)
    if array.dtype != object:
        return array
    try:
        return array.astype(np.bytes_)  # (texts, which NumPy holds as objects)
    except (TypeError, ValueError, SystemError):
        raise ProgramError("data() gives ragged or sparse data, which have no one shape") from None


def _tupled(value: Structure) -> Structure:
    """Lists of arrays as tuples, since tf.data takes a list for one array; lists of numbers, and of
    rows of them, as the array that they are."""
    match value:
        case Mapping():
            return {name: _tupled(each) for name, each in value.items()}
        case list() | tuple():
            whole = not any(map(_holds_arrays, value))
            return _array(value) if whole else tuple(map(_tupled, value))
        case _:
            return value


def _holds_arrays(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_arrays, value))
    return isinstance(value, Mapping) or hasattr(value, "shape")


def drawn(
    tf: TensorFlow, model: Model, draw: np.random.Generator, *, trained: bool = True
) -> Structure:
    """BATCHES batches of made-up inputs, and of targets for one that is trained. Raises
    ProgramError where they are open."""
    count = BATCHES * BATCH
    inputs = tuple(_input(tf, model, each, draw, count) for each in model.inputs or ())
    if not inputs:
        raise ProgramError("what the model takes is not known: define data() in a Python file")
    whole = inputs[0] if len(inputs) == 1 else inputs
    if not trained:
        return (whole,)
    if isinstance(model.loss, list | tuple | dict) or len(model.outputs) != 1:
        raise ProgramError(
            "what it is trained to give is not known: define data() in a Python file"
        )
    shape = _shape(model.outputs[0], "output")
    return whole, _targets(_loss_name(model.loss), shape, draw, count)


def _shape(tensor: Any, what: str) -> tuple[int, ...]:  # noqa: ANN401  (a Keras tensor)
    shape = tuple(tensor.shape)[1:]
    if None in shape:
        raise ProgramError(
            f"the {what} {tensor.name} has the open shape {shape}: define data() in a Python file"
        )
    return shape


def _input(
    tf: TensorFlow,
    model: Model,
    tensor: Any,  # noqa: ANN401  (a Keras tensor)
    draw: np.random.Generator,
    count: int,
) -> Array:
    """Normal numbers; for what an Embedding looks up, or another integer, those that it has."""
    shape = (count, *_shape(tensor, "input"))
    tables = [
        layer.input_dim
        for layer in model.layers
        if isinstance(layer, tf.keras.layers.Embedding) and layer.input is tensor
    ]
    dtype = tensor.dtype.as_numpy_dtype
    if tables or not np.issubdtype(dtype, np.floating):
        return draw.integers(0, min(tables, default=2), shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


def _targets(loss: str, shape: tuple[int, ...], draw: np.random.Generator, count: int) -> Array:
    """What Keras's loss of that name takes for outputs of that shape."""
    if loss == "sparse_categorical_crossentropy":
        return draw.integers(0, shape[-1], (count, *shape[:-1]))
    if loss == "categorical_crossentropy":
        return np.eye(shape[-1], dtype=np.float32)[
            draw.integers(0, shape[-1], (count, *shape[:-1]))
        ]
    if "crossentropy" in loss:
        return draw.integers(0, 2, (count, *shape)).astype(np.float32)
    return draw.standard_normal((count, *shape)).astype(np.float32)


def _loss_name(loss: object) -> str:
    """Of a loss as compile() takes it: its name, a function, or an object."""
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))
