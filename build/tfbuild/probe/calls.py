"""One call of an op by the kernel that TensorFlow picks, and what comes out of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tfbuild.probe.cases import Array
from tfbuild.probe.proposals import FLOAT, QUANTIZED, RESOURCE, STRING, VARIANT, Case, Input

Outcome = tuple[Array, ...] | str
"""The op's results, or the name of the error that it raised."""


class Caller:
    """Calls ops eagerly, each by a fresh kernel; ops on reference variables in a graph."""

    def __init__(self) -> None:
        import tensorflow as tf  # noqa: PLC0415
        from tensorflow.python.eager import context, execute  # noqa: PLC0415
        from tensorflow.python.framework import op_def_registry  # noqa: PLC0415

        self._tf = tf
        self._execute = execute.quick_execute
        self._record = execute.record_gradient
        self._context = context.context()
        self._definition = op_def_registry.get
        self._names = (f"tensorwright_{number}" for number in itertools.count())

    def __call__(self, case: Case) -> Outcome:
        """Raises TypeError or ValueError for a case that TensorFlow's Python side refuses."""
        op = self._definition(case.op)
        try:
            if any(arg.is_ref for arg in (*op.input_arg, *op.output_arg)):
                return self._in_graph(op, case)
            return self._eagerly(op, case)
        except self._tf.errors.OpError as error:
            return type(error).__name__

    def _eagerly(self, op: Any, case: Case) -> Outcome:  # noqa: ANN401
        # A kernel that the context keeps would go on with its random stream.
        self._context.clear_kernel_cache()
        attributes = dict(case.attributes)
        if "shared_name" in attributes:
            attributes["shared_name"] = next(self._names)
        tensors = [self._tensor(given, case) for given in case.inputs]
        count = sum(_count(arg, attributes) for arg in op.output_arg)
        flat = tuple(itertools.chain.from_iterable(attributes.items()))
        if case.gradient:
            return self._gradients(case, tensors, flat, count)
        found = self._execute(case.op, count, tensors, flat, self._context)
        state = [
            self._tf.raw_ops.ReadVariableOp(resource=tensor, dtype=given.type)
            for tensor, given in zip(tensors, self._contents(case), strict=True)
            if given.role == "variable"
        ]
        return tuple(self._array(tensor, attributes) for tensor in (*found, *state))

    def _gradients(
        self, case: Case, tensors: list[Any], flat: tuple[Any, ...], count: int
    ) -> Outcome:
        """Of the sum of all results, weighted between 1 and 2 so that none cancels."""
        tf = self._tf
        inputs = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = self._execute(case.op, count, tensors, flat, self._context)
            self._record(case.op, tensors, flat, found)
            sums = [_weighted(tf, tensor) for tensor in found if tensor.dtype.is_floating]
        gradients = tape.gradient(sums, inputs, unconnected_gradients="zero")
        return tuple(np.array(tf.convert_to_tensor(gradient)) for gradient in gradients)

    def _contents(self, case: Case) -> list[Input]:
        """The inputs with the types of what they hold."""
        held = _held(case)
        return [
            Input(given.role, held, given.array) if given.type == RESOURCE else given
            for given in case.inputs
        ]

    def _tensor(self, given: Input, case: Case) -> Any:  # noqa: ANN401
        raw = self._tf.raw_ops
        held = _held(case)
        if given.role == "array":
            return self._dense(given, case)
        content = self._cast(given.array, held)
        makers: dict[str, Callable[[], Any]] = {
            "variable": lambda: self._variable(content, held),
            "table": lambda: self._table(case, filled=True),
            "fresh table": lambda: self._table(case, filled=False),
            "handles": lambda: self._handles(given, content),
            "stack": lambda: self._stack(content, held),
            "tensor array": lambda: self._tensor_array(content, held),
            "queue": lambda: self._queue(content, held),
            "list": lambda: self._list(content),
            "map": lambda: self._execute("EmptyTensorMap", 1, [], (), self._context)[0],
            "csr": lambda: self._csr(given.array, held),
            "optional": lambda: raw.OptionalFromValue(components=[content]),
        }
        if given.role not in makers:
            raise ValueError(f"no {given.role} for {case.op}")
        return makers[given.role]()

    def _dense(self, given: Input, case: Case) -> Any:  # noqa: ANN401
        tf = self._tf
        # (a copy: an op may write into its input, and TensorFlow may share NumPy's memory)
        array = given.array.copy()
        if case.sliced and array.ndim and given.type != STRING:
            tensor = tf.constant(np.concatenate([array[:1], array]))[min(1, len(array)) :]
        else:
            tensor = tf.constant(array, tf.string if given.type == STRING else None)
        return (
            tf.bitcast(tensor, tf.dtypes.as_dtype(given.type))
            if given.type in QUANTIZED
            else tensor
        )

    def _cast(self, array: Array, held: int) -> Any:  # noqa: ANN401
        tf = self._tf
        if held == STRING:
            return tf.fill(array.shape, "a")
        return tf.cast(tf.constant(array), tf.dtypes.as_dtype(held))

    def _variable(self, content: Any, held: int) -> Any:  # noqa: ANN401
        raw = self._tf.raw_ops
        handle = raw.VarHandleOp(dtype=held, shape=None, shared_name=next(self._names))
        raw.AssignVariableOp(resource=handle, value=content)
        return handle

    def _handles(self, given: Input, content: Any) -> Any:  # noqa: ANN401
        """One for each row of the content, or a single one for a scalar."""
        make = self._list if given.type == VARIANT else lambda row: self._variable(row, FLOAT)
        if not given.array.ndim:
            return make(self._tf.reshape(content, [1]))
        rows = [make(self._tf.reshape(row, [-1])) for row in self._tf.unstack(content)]
        return self._tf.raw_ops.Pack(values=rows, axis=0)

    def _table(self, case: Case, *, filled: bool) -> Any:  # noqa: ANN401
        tf = self._tf
        attributes = dict(case.attributes)
        key = attributes.get("Tin", attributes.get("Tkeys", attributes.get("Tkey", STRING)))
        value = attributes.get("Tout", attributes.get("Tvalues", attributes.get("Tval", 9)))
        make = tf.raw_ops.MutableHashTableV2 if filled else tf.raw_ops.HashTableV2
        table = make(key_dtype=key, value_dtype=value, shared_name=next(self._names))
        if filled:
            keys, values = (self._cast(np.arange(1, 4), number) for number in (key, value))
            tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=keys[:1], values=values[:1])
        return table

    def _stack(self, content: Any, held: int) -> Any:  # noqa: ANN401
        raw = self._tf.raw_ops
        stack = raw.StackV2(max_size=4, elem_type=held, stack_name=next(self._names))
        raw.StackPushV2(handle=stack, elem=content)
        return stack

    def _tensor_array(self, content: Any, held: int) -> Any:  # noqa: ANN401
        raw = self._tf.raw_ops
        handle, flow = raw.TensorArrayV3(
            size=5,
            dtype=held,
            dynamic_size=True,
            tensor_array_name=next(self._names),
            clear_after_read=False,
        )
        for index in range(5):
            raw.TensorArrayWriteV3(handle=handle, index=index, value=content, flow_in=flow)
        return handle

    def _queue(self, content: Any, held: int) -> Any:  # noqa: ANN401
        raw = self._tf.raw_ops
        queue = raw.FIFOQueueV2(
            component_types=[held],
            shapes=[content.shape],
            capacity=99,
            shared_name=next(self._names),
        )
        for _ in range(5):
            raw.QueueEnqueueV2(handle=queue, components=[content])
        return queue

    def _list(self, content: Any) -> Any:  # noqa: ANN401
        return self._tf.raw_ops.TensorListFromTensor(
            tensor=content, element_shape=np.array(content.shape[1:], np.int32)
        )

    def _csr(self, array: Array, held: int) -> Any:  # noqa: ANN401
        tf = self._tf
        dense = tf.cast(tf.constant(array), tf.dtypes.as_dtype(held))
        where = tf.where(tf.not_equal(dense, tf.zeros_like(dense)))
        return tf.raw_ops.DenseToCSRSparseMatrix(dense_input=dense, indices=where)

    def _array(self, tensor: Any, attributes: dict[str, Any]) -> Array:  # noqa: ANN401
        """A result as NumPy holds it; of a handle its shape, without a value to compare."""
        tf = self._tf
        number = tensor.dtype.as_datatype_enum
        if number in QUANTIZED:
            tensor = tf.bitcast(tensor, tf.dtypes.as_dtype(QUANTIZED[number]))
        if number == VARIANT and "element_dtype" in attributes:
            return self._stacked(tensor, attributes["element_dtype"])
        if number in {RESOURCE, VARIANT}:
            return np.empty((*tensor.shape, 0), np.uint8)
        return np.array(tensor.numpy(), object if number == STRING else None)

    def _stacked(self, tensor: Any, element: int) -> Array:  # noqa: ANN401
        raw = self._tf.raw_ops
        try:
            found = raw.TensorListStack(
                input_handle=tensor, element_shape=-1, element_dtype=element, num_elements=-1
            )
        except self._tf.errors.OpError:  # (elements of unlike shapes, or none yet)
            found = raw.TensorListLength(input_handle=tensor)
        return np.array(found.numpy())

    def _in_graph(self, op: Any, case: Case) -> Outcome:  # noqa: ANN401
        tf = self._tf
        with tf.Graph().as_default() as graph:
            feeds: dict[Any, Array] = {}
            tensors, variables = [], []
            for given in case.inputs:
                feed = tf.compat.v1.placeholder(tf.dtypes.as_dtype(given.type), None)
                feeds[feed] = given.array
                if given.role == "reference":
                    variable = tf.raw_ops.VariableV2(
                        dtype=given.type, shape=given.array.shape, shared_name=next(self._names)
                    )
                    feed = tf.raw_ops.Assign(ref=variable, value=feed, validate_shape=False)
                    variables.append(variable)
                tensors.append(feed)
            made = graph.create_op(
                case.op,
                _grouped(op, tensors, dict(case.attributes)),
                attrs={key: _attr_value(tf, op, key, value) for key, value in case.attributes},
            )
            with tf.control_dependencies([made]):
                results = [tf.identity(tensor) for tensor in (*made.outputs, *variables)]
        options = tf.compat.v1.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        options.graph_options.optimizer_options.opt_level = -1
        with tf.compat.v1.Session(graph=graph, config=options) as session:
            fetched = session.run([results, made], feeds)[0]
        return tuple(np.array(result) for result in fetched)


def _weighted(tf: Any, tensor: Any) -> Any:  # noqa: ANN401
    flat = tf.reshape(tensor, [-1])
    weights = 1 + (np.arange(flat.shape[0]) % 7) / 8
    return tf.reduce_sum(flat * tf.cast(weights, flat.dtype))


def _held(case: Case) -> int:
    """The type of what a handle among the inputs holds."""
    attributes = dict(case.attributes)
    for name in ("dtype", "T", "element_dtype", "elem_type", "type"):
        # (an op that moves handles holds float variables)
        if isinstance(attributes.get(name), int) and attributes[name] not in {RESOURCE, VARIANT}:
            return int(attributes[name])
    several = attributes.get("component_types") or attributes.get("Tcomponents") or [1]
    return int(several[0])


def _count(arg: Any, attributes: dict[str, Any]) -> int:  # noqa: ANN401
    if arg.type_list_attr:
        return len(attributes[arg.type_list_attr])
    return int(attributes[arg.number_attr]) if arg.number_attr else 1


def _grouped(op: Any, tensors: list[Any], attributes: dict[str, Any]) -> list[Any]:  # noqa: ANN401
    """create_op takes lists flat."""
    expected = sum(_count(arg, attributes) for arg in op.input_arg)
    if expected != len(tensors):
        raise ValueError(f"{op.name} takes {expected} tensors, not {len(tensors)}")
    return tensors


def _attr_value(tf: Any, op: Any, name: str, value: Any) -> Any:  # noqa: ANN401
    kind = next(attr.type for attr in op.attr if attr.name == name)
    fields = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type"}
    if kind == "shape":
        return tf.compat.v1.AttrValue(shape=tf.TensorShape(value).as_proto())
    if kind.startswith("list("):
        listed = {fields[kind[5:-1]]: value}
        return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(**listed))
    return tf.compat.v1.AttrValue(**{fields[kind]: value})
