"""A user's workload: a compiled Keras model from a file, and batches for it.

The file is one of these.

    PATH.py            defines `build()`, which returns a compiled tf.keras model, and may define
                       `data()`, which returns an argument of `fit`: arrays (inputs, targets), split
                       into batches of 32 as `fit` does, or a tf.data.Dataset of batches
    PATH.keras, .h5    a model that was compiled when it was saved
    PATH/              the folder of a SavedModel that Keras wrote, also compiled

Without `data()`, random batches are drawn that match the model's inputs and its loss. All
randomness must come from TensorFlow's, NumPy's and Python's global seeds, which are set before the
file is read. For inference (`--phase infer`) the model need not be compiled.

This file runs inside each arm's environment: it imports only the standard library, NumPy and
TensorFlow.
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
"""Batch size if the data are not batched: the default of `fit`."""
_SAVED = (".keras", ".h5", ".hdf5")
_PROGRAM = "tensorwright_program"


class ProgramError(Exception):
    """A user's file that cannot be used; the message is one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A user's model and its batches.

    `examples` hold up to BATCHES batches: the first axis counts batches, the second examples;
    `arrays` are the arrays of `examples`, in the order of tf.nest. `predicts` is false for a
    model without call().
    """

    model: Model
    examples: Structure
    arrays: tuple[Array, ...]
    predicts: bool
    given: Structure | None
    """The value that data() returned."""

    @property
    def batch(self) -> int:
        return int(self.arrays[0].shape[1])

    @property
    def parts(self) -> list[Any]:
        """Return the parts with variables.

        That is the model, or the built layers of a model without call().
        """
        parts = [self.model] if self.predicts else self.model.layers
        return [part for part in parts if part.built]

    @property
    def parameters(self) -> int:
        return sum(int(part.count_params()) for part in self.parts)

    @property
    def trainable(self) -> list[Any]:
        return [weight for part in self.parts for weight in part.trainable_weights]


def read_program(tf: TensorFlow, path: Path, seed: int, *, trained: bool = True) -> Program:
    """Read a user's file and prepare its batches.

    A model that is not `trained` need not be compiled, and has no targets unless data()
    returns some.

    Raises ProgramError for a model that cannot be used this way. Exceptions of the user's code
    are not caught, see `format_error`.
    """
    model, data = _load_python(tf, path) if path.suffix == ".py" else (_load_saved(tf, path), None)
    if trained:
        _require_trainable(tf, model)
    draw = np.random.default_rng(seed)
    examples = _split_batches(
        tf, draw_examples(tf, model, draw, trained=trained) if data is None else data
    )
    arrays = tuple(tf.nest.flatten(examples))
    predicts = _build_variables(tf, model, examples)
    if not (trained or predicts):
        raise ProgramError(
            "the model has no call(), so it can be trained but not run for inference"
        )
    return Program(model=model, examples=examples, arrays=arrays, predicts=predicts, given=data)


def format_error(error: BaseException, path: Path) -> str:
    """Return a user's error in one line: the line in their file, and the message's last line."""
    words = str(error).strip().splitlines()
    if isinstance(error, ProgramError):
        return words[-1]
    message = ": ".join([type(error).__name__, *(line.strip() for line in words[-1:])])
    line = _find_error_line(error, path)
    return f"line {line}: {message}" if line else message


def _find_error_line(error: BaseException, path: Path) -> int | None:
    """Return the innermost line of the user's file in the error's traceback, or None."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def _load_python(tf: TensorFlow, path: Path) -> tuple[Model, Structure | None]:
    """Return the model of a Python file, and its data if it defines data().

    Raises ProgramError if build() is missing or returns no model.
    """
    module = _load_module(path)
    build, data = getattr(module, "build", None), getattr(module, "data", None)
    if not callable(build):
        raise ProgramError("the file must define build(), which returns a compiled tf.keras model")
    model = build()
    if not isinstance(model, tf.keras.Model):
        raise ProgramError(f"build() returns {type(model).__name__}, not a tf.keras model")
    return model, data() if callable(data) else None


def _load_module(path: Path) -> ModuleType:
    """Run a file as a module and return it.

    It can import modules from its own folder, as a script can.
    """
    spec = importlib.util.spec_from_file_location(_PROGRAM, path)
    assert spec is not None  # noqa: S101  (every .py file has a spec)
    assert spec.loader is not None  # noqa: S101  (a spec from a path has a loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PROGRAM] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def _load_saved(tf: TensorFlow, path: Path) -> Model:
    if not path.is_dir() and path.suffix not in _SAVED:
        raise ProgramError(f"must be .py, {', '.join(_SAVED)} or the folder of a SavedModel")
    model = tf.keras.models.load_model(path)
    if not isinstance(model, tf.keras.Model):
        raise ProgramError("Keras did not write this SavedModel, so it has no training step")
    return model


def _require_trainable(tf: TensorFlow, model: Model) -> None:
    """Raise ProgramError if the model is not compiled or has no loss."""
    own_step = type(model).train_step is not tf.keras.Model.train_step
    if model.optimizer is None:
        raise ProgramError("the model is not compiled: call compile() with an optimizer and a loss")
    if not (model.loss or model.losses or own_step):  # (Keras has {} for no loss)
        raise ProgramError("the model has no loss: pass one to compile()")


def _build_variables(tf: TensorFlow, model: Model, examples: Structure) -> bool:
    """Create the variables of a subclassed model, as `fit` does from its first batch.

    Returns False for a model that only its own train_step can run.
    """
    first = tf.nest.map_structure(lambda example: example[0], examples)
    inputs, *_ = tf.keras.utils.unpack_x_y_sample_weight(first)
    try:
        if not model.built:
            model(inputs, training=False)
    except NotImplementedError:
        return False
    return True


# --- data -----------------------------------------------------------------------------------------


def _split_batches(tf: TensorFlow, data: Structure) -> Structure:
    """Split the user's data into batches of one shape.

    Raises ProgramError if that is not possible.
    """
    if isinstance(data, tf.data.Dataset):
        return _stack_batches(tf, list(data.take(BATCHES).as_numpy_iterator()))
    arrays = tf.nest.map_structure(_convert_array, _convert_lists(data))
    lengths = {len(array) if array.ndim else 0 for array in tf.nest.flatten(arrays)}
    if len(lengths) != 1 or 0 in lengths:
        raise ProgramError(
            f"data() returns no arrays, or arrays of different lengths: {sorted(lengths)}"
        )
    (length,) = lengths
    batch = min(BATCH, length)
    count = min(BATCHES, length // batch)
    return tf.nest.map_structure(
        lambda array: array[: count * batch].reshape(count, batch, *array.shape[1:]), arrays
    )


def _stack_batches(tf: TensorFlow, batches: Sequence[Structure]) -> Structure:
    """Stack the batches that have the shapes of the first one.

    The last batch of a dataset may be smaller. Raises ProgramError if there are no batches.
    """
    if not batches:
        raise ProgramError("data() returns no batches")
    arrays = [tf.nest.map_structure(_convert_array, batch) for batch in batches]
    shapes = [[array.shape for array in tf.nest.flatten(batch)] for batch in arrays]
    if not all(shapes[0]) or not all(shape and shape[0] for shape in shapes[0]):
        raise ProgramError("data() returns a dataset without batches: call its batch()")
    matching = [batch for batch, shape in zip(arrays, shapes, strict=True) if shape == shapes[0]]
    return tf.nest.map_structure(lambda *parts: np.stack(parts), *matching)


def _convert_array(value: object) -> Array:
    """Return a value as an array; strings become bytes.

    Raises ProgramError for ragged or sparse data.
    """
    array = np.asarray(value)
    if array.dtype != object:
        return array
    try:
        return array.astype(np.bytes_)  # (strings, which NumPy stores as objects)
    except (TypeError, ValueError, SystemError):
        raise ProgramError(
            "data() returns ragged or sparse data, which are not supported"
        ) from None


def _convert_lists(value: Structure) -> Structure:
    """Convert lists of arrays to tuples, and lists of numbers, or of rows of numbers, to arrays.

    tf.data reads a list as one array.
    """
    match value:
        case Mapping():
            return {name: _convert_lists(item) for name, item in value.items()}
        case list() | tuple():
            is_array = not any(map(_has_arrays, value))
            return _convert_array(value) if is_array else tuple(map(_convert_lists, value))
        case _:
            return value


def _has_arrays(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_arrays, value))
    return isinstance(value, Mapping) or hasattr(value, "shape")


def draw_examples(
    tf: TensorFlow, model: Model, draw: np.random.Generator, *, trained: bool = True
) -> Structure:
    """Draw BATCHES batches of random inputs, and of targets for a model that is trained.

    Raises ProgramError if the model does not determine their shapes.
    """
    count = BATCHES * BATCH
    inputs = tuple(_draw_input(tf, model, tensor, draw, count) for tensor in model.inputs or ())
    if not inputs:
        raise ProgramError("the model's inputs are unknown: define data() in a Python file")
    features = inputs[0] if len(inputs) == 1 else inputs
    if not trained:
        return (features,)
    if isinstance(model.loss, list | tuple | dict) or len(model.outputs) != 1:
        raise ProgramError("the model's targets are unknown: define data() in a Python file")
    shape = _require_shape(model.outputs[0], "output")
    return features, _draw_targets(_get_loss_name(model.loss), shape, draw, count)


def _require_shape(tensor: Any, kind: str) -> tuple[int, ...]:
    """Return a tensor's shape without the batch axis.

    Raises ProgramError if an axis has no fixed size.
    """
    shape = tuple(tensor.shape)[1:]
    if None in shape:
        raise ProgramError(
            f"the {kind} {tensor.name} has no fixed shape, but {shape}: "
            "define data() in a Python file"
        )
    return shape


def _draw_input(
    tf: TensorFlow,
    model: Model,
    tensor: Any,
    draw: np.random.Generator,
    count: int,
) -> Array:
    """Draw the values of one input.

    Floats are normally distributed, inputs of an Embedding are valid indices, other integers are
    0 or 1.
    """
    shape = (count, *_require_shape(tensor, "input"))
    tables = [
        layer.input_dim
        for layer in model.layers
        if isinstance(layer, tf.keras.layers.Embedding) and layer.input is tensor
    ]
    dtype = tf.as_dtype(tensor.dtype).as_numpy_dtype  # (Keras 3 has names of types)
    if tables or not np.issubdtype(dtype, np.floating):
        return draw.integers(0, min(tables, default=2), shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


def _draw_targets(
    loss: str, shape: tuple[int, ...], draw: np.random.Generator, count: int
) -> Array:
    """Draw targets that Keras's loss of that name accepts for outputs of that shape."""
    if loss == "sparse_categorical_crossentropy":
        return draw.integers(0, shape[-1], (count, *shape[:-1]))
    if loss == "categorical_crossentropy":
        return np.eye(shape[-1], dtype=np.float32)[
            draw.integers(0, shape[-1], (count, *shape[:-1]))
        ]
    if "crossentropy" in loss:
        return draw.integers(0, 2, (count, *shape)).astype(np.float32)
    return draw.standard_normal((count, *shape)).astype(np.float32)


def _get_loss_name(loss: object) -> str:
    """Return the name of a loss that compile() accepts: a name, a function or an object."""
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))
