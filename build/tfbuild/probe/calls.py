"""Runs one op with the kernel that TensorFlow selects, and records the outcome."""

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
    """Calls ops eagerly, each with a fresh kernel; ops on reference variables run in a graph."""

    def __init__(self) -> None:
        import tensorflow as tf
        from tensorflow.python.eager import context, execute
        from tensorflow.python.framework import op_def_registry

        self._tf = tf
        self._execute = execute.quick_execute
        self._record = execute.record_gradient
        self._context = context.context()
        self._definition = op_def_registry.get
        self._names = (f"tensorwright_{number}" for number in itertools.count())

    def __call__(self, case: Case) -> Outcome:
        """Run one case, and return its outcome. Raises TypeError or ValueError for a case that
        TensorFlow's Python side refuses.
        """
        op = self._definition(case.op)
        try:
            if any(arg.is_ref for arg in (*op.input_arg, *op.output_arg)):
                return self._run_in_graph(op, case)
            return self._run_eagerly(op, case)
        except self._tf.errors.OpError as error:
            return type(error).__name__

    def _run_eagerly(self, op: Any, case: Case) -> Outcome:
        # Clear cached kernels: a cached kernel would continue its random stream.
        self._context.clear_kernel_cache()
        attributes = dict(case.attributes)
        if "shared_name" in attributes:
            attributes["shared_name"] = next(self._names)
        tensors = [self._create_tensor(source, case) for source in case.inputs]
        count = sum(_count_tensors(arg, attributes) for arg in op.output_arg)
        flat = tuple(itertools.chain.from_iterable(attributes.items()))
        if case.gradient:
            return self._compute_gradients(case, tensors, flat, count)
        results = self._execute(case.op, count, tensors, flat, self._context)
        state = [
            self._tf.raw_ops.ReadVariableOp(resource=tensor, dtype=source.type)
            for tensor, source in zip(tensors, self._list_contents(case), strict=True)
            if source.role == "variable"
        ]
        return tuple(self._convert_result(tensor, attributes) for tensor in (*results, *state))

    def _compute_gradients(
        self, case: Case, tensors: list[Any], flat: tuple[Any, ...], count: int
    ) -> Outcome:
        """Compute the gradients of the sum of all results, weighted between 1 and 2 so that no
        terms cancel.
        """
        tf = self._tf
        inputs = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = self._execute(case.op, count, tensors, flat, self._context)
            self._record(case.op, tensors, flat, results)
            sums = [_sum_weighted(tf, tensor) for tensor in results if tensor.dtype.is_floating]
        gradients = tape.gradient(sums, inputs, unconnected_gradients="zero")
        return tuple(np.array(tf.convert_to_tensor(gradient)) for gradient in gradients)

    def _list_contents(self, case: Case) -> list[Input]:
        """List the inputs, with the types of the values that handles hold."""
        content_type = _get_content_type(case)
        return [
            Input(source.role, content_type, source.array) if source.type == RESOURCE else source
            for source in case.inputs
        ]

    def _create_tensor(self, op_input: Input, case: Case) -> Any:
        raw = self._tf.raw_ops
        content_type = _get_content_type(case)
        if op_input.role == "array":
            return self._create_dense(op_input, case)
        content = self._cast(op_input.array, content_type)
        makers: dict[str, Callable[[], Any]] = {
            "variable": lambda: self._create_variable(content, content_type),
            "table": lambda: self._create_table(case, filled=True),
            "fresh table": lambda: self._create_table(case, filled=False),
            "handles": lambda: self._create_handles(op_input, content),
            "stack": lambda: self._create_stack(content, content_type),
            "tensor array": lambda: self._create_tensor_array(content, content_type),
            "queue": lambda: self._create_queue(content, content_type),
            "list": lambda: self._create_list(content),
            "map": lambda: self._execute("EmptyTensorMap", 1, [], (), self._context)[0],
            "csr": lambda: self._create_csr(op_input.array, content_type),
            "optional": lambda: raw.OptionalFromValue(components=[content]),
        }
        if op_input.role not in makers:
            raise ValueError(f"cannot create a {op_input.role} for {case.op}")
        return makers[op_input.role]()

    def _create_dense(self, op_input: Input, case: Case) -> Any:
        tf = self._tf
        # (a copy: an op may write into its input, and TensorFlow may share NumPy's memory)
        array = op_input.array.copy()
        if case.sliced and array.ndim and op_input.type != STRING:
            tensor = tf.constant(np.concatenate([array[:1], array]))[min(1, len(array)) :]
        else:
            tensor = tf.constant(array, tf.string if op_input.type == STRING else None)
        return (
            tf.bitcast(tensor, tf.dtypes.as_dtype(op_input.type))
            if op_input.type in QUANTIZED
            else tensor
        )

    def _cast(self, array: Array, held: int) -> Any:
        tf = self._tf
        if held == STRING:
            return tf.fill(array.shape, "a")
        return tf.cast(tf.constant(array), tf.dtypes.as_dtype(held))

    def _create_variable(self, content: Any, held: int) -> Any:
        raw = self._tf.raw_ops
        handle = raw.VarHandleOp(dtype=held, shape=None, shared_name=next(self._names))
        raw.AssignVariableOp(resource=handle, value=content)
        return handle

    def _create_handles(self, op_input: Input, content: Any) -> Any:
        """Create one handle for each row of the content, or a single one for a scalar."""
        make = (
            self._create_list
            if op_input.type == VARIANT
            else lambda row: self._create_variable(row, FLOAT)
        )
        if not op_input.array.ndim:
            return make(self._tf.reshape(content, [1]))
        rows = [make(self._tf.reshape(row, [-1])) for row in self._tf.unstack(content)]
        return self._tf.raw_ops.Pack(values=rows, axis=0)

    def _create_table(self, case: Case, *, filled: bool) -> Any:
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

    def _create_stack(self, content: Any, held: int) -> Any:
        raw = self._tf.raw_ops
        stack = raw.StackV2(max_size=4, elem_type=held, stack_name=next(self._names))
        raw.StackPushV2(handle=stack, elem=content)
        return stack

    def _create_tensor_array(self, content: Any, held: int) -> Any:
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

    def _create_queue(self, content: Any, held: int) -> Any:
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

    def _create_list(self, content: Any) -> Any:
        return self._tf.raw_ops.TensorListFromTensor(
            tensor=content, element_shape=np.array(content.shape[1:], np.int32)
        )

    def _create_csr(self, array: Array, held: int) -> Any:
        tf = self._tf
        dense = tf.cast(tf.constant(array), tf.dtypes.as_dtype(held))
        indices = tf.where(tf.not_equal(dense, tf.zeros_like(dense)))
        return tf.raw_ops.DenseToCSRSparseMatrix(dense_input=dense, indices=indices)

    def _convert_result(self, tensor: Any, attributes: dict[str, Any]) -> Array:
        """Convert a result to NumPy; of a handle only the shape, without a value to compare."""
        tf = self._tf
        number = tensor.dtype.as_datatype_enum
        if number in QUANTIZED:
            tensor = tf.bitcast(tensor, tf.dtypes.as_dtype(QUANTIZED[number]))
        if number == VARIANT and "element_dtype" in attributes:
            return self._stack_list(tensor, attributes["element_dtype"])
        if number in {RESOURCE, VARIANT}:
            return np.empty((*tensor.shape, 0), np.uint8)
        return np.array(tensor.numpy(), object if number == STRING else None)

    def _stack_list(self, tensor: Any, element: int) -> Array:
        raw = self._tf.raw_ops
        try:
            stacked = raw.TensorListStack(
                input_handle=tensor, element_shape=-1, element_dtype=element, num_elements=-1
            )
        except self._tf.errors.OpError:  # (elements of different shapes, or an empty list)
            stacked = raw.TensorListLength(input_handle=tensor)
        return np.array(stacked.numpy())

    def _run_in_graph(self, op: Any, case: Case) -> Outcome:
        tf = self._tf
        with tf.Graph().as_default() as graph:
            feeds: dict[Any, Array] = {}
            tensors, variables = [], []
            for source in case.inputs:
                feed = tf.compat.v1.placeholder(tf.dtypes.as_dtype(source.type), None)
                feeds[feed] = source.array
                if source.role == "reference":
                    variable = tf.raw_ops.VariableV2(
                        dtype=source.type, shape=source.array.shape, shared_name=next(self._names)
                    )
                    feed = tf.raw_ops.Assign(ref=variable, value=feed, validate_shape=False)
                    variables.append(variable)
                tensors.append(feed)
            operation = graph.create_op(
                case.op,
                _flatten_inputs(op, tensors, dict(case.attributes)),
                attrs={
                    key: _create_attr_value(tf, op, key, value) for key, value in case.attributes
                },
            )
            with tf.control_dependencies([operation]):
                results = [tf.identity(tensor) for tensor in (*operation.outputs, *variables)]
        options = tf.compat.v1.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        options.graph_options.optimizer_options.opt_level = -1
        with tf.compat.v1.Session(graph=graph, config=options) as session:
            fetched = session.run([results, operation], feeds)[0]
        return tuple(np.array(result) for result in fetched)


def _sum_weighted(tf: Any, tensor: Any) -> Any:
    flat = tf.reshape(tensor, [-1])
    weights = 1 + (np.arange(flat.shape[0]) % 7) / 8
    return tf.reduce_sum(flat * tf.cast(weights, flat.dtype))


def _get_content_type(case: Case) -> int:
    """Return the type of the values that a handle among the inputs holds."""
    attributes = dict(case.attributes)
    for name in ("dtype", "T", "element_dtype", "elem_type", "type"):
        # (an op that moves handles gets handles of float variables)
        if isinstance(attributes.get(name), int) and attributes[name] not in {RESOURCE, VARIANT}:
            return int(attributes[name])
    components = attributes.get("component_types") or attributes.get("Tcomponents") or [1]
    return int(components[0])


def _count_tensors(arg: Any, attributes: dict[str, Any]) -> int:
    if arg.type_list_attr:
        return len(attributes[arg.type_list_attr])
    return int(attributes[arg.number_attr]) if arg.number_attr else 1


def _flatten_inputs(op: Any, tensors: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """Return the tensors in the flat order that create_op takes. Raises ValueError if their
    number is wrong.
    """
    expected = sum(_count_tensors(arg, attributes) for arg in op.input_arg)
    if expected != len(tensors):
        raise ValueError(f"{op.name} takes {expected} tensors, not {len(tensors)}")
    return tensors


def _create_attr_value(tf: Any, op: Any, name: str, value: Any) -> Any:
    kind = next(attr.type for attr in op.attr if attr.name == name)
    fields = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type"}
    if kind == "shape":
        return tf.compat.v1.AttrValue(shape=tf.TensorShape(value).as_proto())
    if kind.startswith("list("):
        values = {fields[kind[5:-1]]: value}
        return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(**values))
    return tf.compat.v1.AttrValue(**{fields[kind]: value})
