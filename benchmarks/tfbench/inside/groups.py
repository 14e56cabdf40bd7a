"""Groups of devices that train one model together, for each strategy of combining gradients.

This file runs inside each arm's environment: it imports only the standard library, NumPy and
TensorFlow, and takes TensorFlow as an argument. Our names of the strategies, and the options of
tf_cnn_benchmarks:

    central       parameter_server, local_parameter_device=cpu
    ring          replicated, all_reduce_spec=xring
    one_device    replicated, all_reduce_spec=pscpu
    hierarchical  replicated, hierarchical_copy
    nccl          replicated, all_reduce_spec=nccl
    independent   independent
    server        parameter_server with a job_name, cross_replica_sync=False
"""

from __future__ import annotations

import importlib
import itertools
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tfbench.inside.worker import build_model, create_dataset

if TYPE_CHECKING:  # (it imports NumPy, which must happen after the affinity is set)
    from tfbench.inside.workload import Workload

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Strategy: TypeAlias = Any
Batch: TypeAlias = Any
Examples: TypeAlias = Any
Variable: TypeAlias = Any

CPU, GPU = "CPU", "GPU"
CENTRAL, SERVER, RING, ONE_DEVICE = "central", "server", "ring", "one_device"
HIERARCHICAL, NCCL, INDEPENDENT = "hierarchical", "nccl", "independent"
STRATEGIES = (CENTRAL, SERVER, RING, ONE_DEVICE, HIERARCHICAL, NCCL, INDEPENDENT)
REFERENCE = "reference"
"""No strategy: one device computes the global batch."""
SIZES = (1, 3, 1000)
"""Sizes of the variables that `measure_sums` checks: a reduction may depend on the size."""


def create_group(
    tf: TensorFlow, strategy: str, devices: Sequence[str], workload: Workload, seed: int
) -> Group:
    """Create the group of replicas of a workload on these devices, before its first step."""
    if strategy in (INDEPENDENT, REFERENCE):
        return IndependentGroup(tf, devices, workload, seed)
    if strategy == SERVER:
        return ParameterServerGroup(tf, len(devices), workload, seed)
    return SynchronousGroup(tf, create_strategy(tf, strategy, devices), devices, workload, seed)


def create_strategy(tf: TensorFlow, strategy: str, devices: Sequence[str]) -> Strategy:
    """Create TensorFlow's strategy of one machine for a synchronous strategy.

    Raises KeyError for any other strategy.
    """
    names, distribute = list(devices), tf.distribute
    if strategy == CENTRAL:
        return distribute.experimental.CentralStorageStrategy(names, parameter_device="CPU:0")
    exchanges: dict[str, Callable[[], Any]] = {
        RING: lambda: _create_ring_all_reduce(tf, names),
        ONE_DEVICE: lambda: distribute.ReductionToOneDevice("CPU:0"),
        HIERARCHICAL: distribute.HierarchicalCopyAllReduce,
        NCCL: distribute.NcclAllReduce,
    }
    return distribute.MirroredStrategy(names, exchanges[strategy]())


def _create_ring_all_reduce(tf: TensorFlow, devices: Sequence[str]) -> Any:
    """Create the ring all-reduce, which MirroredStrategy chooses by default only for CPUs.

    For GPUs it would choose NCCL.
    """
    ops = importlib.import_module("tensorflow.python.distribute.cross_device_ops")
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return ops.CollectiveAllReduce(devices, len(devices), options)


class Group(ABC):
    """Replicas of one model. A step is one batch on each replica, and the update."""

    model: Model

    @abstractmethod
    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        """Place the batches on the devices that compute them.

        `picks` has, for each round, the number of each replica's batch.
        """

    @abstractmethod
    def step(self) -> float:
        """Run one step; return the mean loss of all replicas' examples before the update."""

    @abstractmethod
    def retrace(self) -> None:
        """Trace the step again, for a model whose layers have changed."""

    @abstractmethod
    def measure_sums(self) -> list[float]:
        """Return the sums that a variable receives when replica i sends the gradient i + 1.

        The update is SGD with rate 1. Returns the distinct values over all elements, variables and
        replicas, sorted.
        """

    def compute_expected_sums(self) -> list[float]:
        """Return the only correct sum of n replicas, n (n + 1) / 2."""
        return [sum(range(1, self.replicas + 1)) * 1.0]

    @property
    @abstractmethod
    def replicas(self) -> int: ...

    @abstractmethod
    def list_variable_devices(self) -> list[str]:
        """Return the names of the devices that hold trainable variables."""

    def time_steps(self, steps: int) -> list[float]:
        """Run `steps` steps and return the seconds of each, including the wait for its end."""
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - began)
        return seconds


class SynchronousGroup(Group):
    """Synchronous replicas under one of TensorFlow's strategies."""

    def __init__(
        self,
        tf: TensorFlow,
        strategy: Strategy,
        devices: Sequence[str],
        workload: Workload,
        seed: int,
    ) -> None:
        self._tf = tf
        self._strategy = strategy
        self._devices = devices
        self._batches: Iterator[Batch] = iter(())
        with strategy.scope(), tf.variable_creator_scope(_create_variable_creator(tf, strategy)):
            self.model, _ = build_model(tf.keras, workload, seed)
            self.model.optimizer.build(self.model.trainable_variables)
        self.retrace()

    @property
    def replicas(self) -> int:
        return len(self._devices)

    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        rounds = []
        for numbers in picks:
            placed = _place_batches(self._tf, self._devices, examples, numbers)
            rounds.append(
                self._strategy.experimental_distribute_values_from_function(
                    lambda context, placed=placed: placed[context.replica_id_in_sync_group]
                )
            )
        self._batches = itertools.cycle(rounds)

    def retrace(self) -> None:
        replica_step_function, strategy = create_replica_step(self._tf, self.model), self._strategy

        @self._tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def step(batch: Batch) -> Any:
            return strategy.experimental_local_results(
                strategy.run(replica_step_function, args=(batch,))
            )

        self._step = step

    def step(self) -> float:
        return _average_losses(self._step(next(self._batches)))

    def measure_sums(self) -> list[float]:
        tf, strategy = self._tf, self._strategy
        with strategy.scope():
            variables, update = _create_counters(tf)

        def send_gradient() -> None:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            update(tf.cast(number + 1, tf.float32))

        @tf.function  # type: ignore[untyped-decorator]
        def run_replicas() -> None:
            strategy.run(send_gradient)

        run_replicas()
        return list_received_gradients(
            itertools.chain(*map(strategy.experimental_local_results, variables))
        )

    def list_variable_devices(self) -> list[str]:
        variables = list_variables(self._tf, self.model)
        local = map(self._strategy.experimental_local_results, variables)
        return _list_devices(self._tf, itertools.chain(*local))


class IndependentGroup(Group):
    """A model per device; the models exchange nothing."""

    def __init__(
        self, tf: TensorFlow, devices: Sequence[str], workload: Workload, seed: int
    ) -> None:
        self._tf = tf
        self._devices = devices
        self._batches: Iterator[Batch] = iter(())
        self._models = [self._create_model(device, workload, seed) for device in devices]
        self.model = self._models[0]
        self.retrace()

    def _create_model(self, device: str, workload: Workload, seed: int) -> Model:
        with self._tf.device(device):
            model, _ = build_model(self._tf.keras, workload, seed)
            model.optimizer.build(model.trainable_variables)
        return model

    @property
    def replicas(self) -> int:
        return len(self._devices)

    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        """Place the batches; a single device computes all batches of a round as one."""
        is_single = len(self._devices) == 1
        self._batches = itertools.cycle(
            [
                _place_batches(
                    self._tf, self._devices, examples, [numbers] if is_single else numbers
                )
                for numbers in picks
            ]
        )

    def retrace(self) -> None:
        tf = self._tf
        replica_steps = [create_replica_step(tf, model) for model in self._models]

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def step(batches: Sequence[Batch]) -> list[Any]:
            losses = []
            for device, run_replica, batch in zip(
                self._devices, replica_steps, batches, strict=True
            ):
                with tf.device(device):
                    losses.append(run_replica(batch))
            return losses

        self._step = step

    def step(self) -> float:
        return _average_losses(self._step(next(self._batches)))

    def measure_sums(self) -> list[float]:
        counters: list[Variable] = []
        for number, device in enumerate(self._devices, start=1):
            with self._tf.device(device):
                variables, update = _create_counters(self._tf)
                update(self._tf.constant(float(number)))
                counters += variables
        return list_received_gradients(counters)

    def compute_expected_sums(self) -> list[float]:
        """Return the gradient of each replica: replicas must not exchange gradients."""
        return [float(number) for number in range(1, self.replicas + 1)]

    def list_variable_devices(self) -> list[str]:
        variables = (list_variables(self._tf, model) for model in self._models)
        return _list_devices(self._tf, itertools.chain(*variables))


class ParameterServerGroup(Group):
    """Workers and one parameter server, each a server in this process.

    Every worker fetches the parameters and sends its updates independently of the others. `step`
    waits for all workers, `time_steps` does not.
    """

    def __init__(self, tf: TensorFlow, workers: int, workload: Workload, seed: int) -> None:
        self._tf = tf
        self._workers = workers
        self._servers, resolver = _start_cluster(tf, workers)
        self._strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._batches: Any = None
        with self._strategy.scope():
            self.model, _ = build_model(tf.keras, workload, seed)
            self.model.optimizer.build(self.model.trainable_variables)
        self.retrace()

    @property
    def replicas(self) -> int:
        return self._workers

    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        """Give each worker all batches, which it cycles through.

        Otherwise each batch would have to be sent to it.
        """
        numbers = list(itertools.chain.from_iterable(picks))
        batches = tuple(array[numbers] for array in examples)
        per_worker = self._coordinator.create_per_worker_dataset(
            lambda: create_dataset(self._tf, batches)
        )
        self._batches = iter(per_worker)

    def retrace(self) -> None:
        tf, strategy = self._tf, self._strategy
        replica_step_function = create_replica_step(tf, self.model)
        iterations = unwrap_variable(tf, self.model.optimizer.iterations)

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def step(batches: Any) -> tuple[Any, Any]:
            loss = strategy.run(replica_step_function, args=(next(batches),))
            with tf.control_dependencies([loss, iterations.read_value()]):
                return loss, tf.timestamp()

        self._step = step

    def step(self) -> float:
        return _average_losses(loss for loss, _ in self._run_steps(1))

    def _run_steps(self, steps: int) -> list[tuple[float, float]]:
        """Run `steps` steps of each worker; return the loss and the end time of each."""
        results = [
            self._coordinator.schedule(self._step, args=(self._batches,))
            for _ in range(steps * self._workers)
        ]
        self._coordinator.join()
        return [tuple(map(float, result.fetch())) for result in results]  # type: ignore[misc]

    def time_steps(self, steps: int) -> list[float]:
        """Return the seconds of each round.

        A round is as many batches as there are workers, whichever workers compute them.
        """
        began = time.time()
        finished = sorted(finish for _, finish in self._run_steps(steps))
        ends = finished[self._workers - 1 :: self._workers]
        return [end - start for start, end in itertools.pairwise([began, *ends])]

    def measure_sums(self) -> list[float]:
        tf = self._tf
        with self._strategy.scope():
            variables, update = _create_counters(tf)
        traced = tf.function(lambda gradient: self._strategy.run(update, args=(gradient,)))
        for number in range(1, self._workers + 1):
            self._coordinator.schedule(traced, args=(tf.constant(float(number)),))
        self._coordinator.join()
        return list_received_gradients(variables)

    def list_variable_devices(self) -> list[str]:
        return _list_devices(self._tf, list_variables(self._tf, self.model))


def list_variables(tf: TensorFlow, model: Model) -> list[Variable]:
    """Return the model's trainable variables as variables of TensorFlow."""
    return [unwrap_variable(tf, variable) for variable in model.trainable_variables]


def unwrap_variable(tf: TensorFlow, keras_variable: Any) -> Variable:
    """Return TensorFlow's variable, which Keras 3 wraps in its own."""
    return keras_variable if isinstance(keras_variable, tf.Variable) else keras_variable.value


def _create_variable_creator(tf: TensorFlow, strategy: Strategy) -> Callable[..., Variable]:
    """Return a creator of variables for tf.variable_creator_scope.

    CentralStorageStrategy has one copy of each variable. It refuses updates by replicas if the
    variable has no aggregation, such as the state of Keras 3's SeedGenerator, from which every
    replica's Dropout draws. With the creator, only the first replica's update counts for these.
    """
    central = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)

    def create(creator: Callable[..., Variable], **options: Any) -> Variable:
        silent = options.get("aggregation") in (None, tf.VariableAggregation.NONE)
        if central and silent and not options.get("trainable"):
            options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return creator(**options)

    return create


def create_replica_step(tf: TensorFlow, model: Model) -> Callable[[Batch], Any]:
    """Return one replica's step: its loss, the mean over its examples, and its update.

    Gradients are those of the mean over all synchronous replicas, so that their sum is the
    gradient of the global batch.
    """
    losses = resolve_example_loss(tf.keras, model.loss)

    def step(batch: Batch) -> Any:
        inputs, targets = batch
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.reduce_mean(losses(align_targets(tf, targets, outputs), outputs))
            share = loss / tf.distribute.get_strategy().num_replicas_in_sync
        gradients = tape.gradient(share, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def resolve_example_loss(keras: Any, loss: Any) -> Callable[[Any, Any], Any]:
    """Return the function from targets and outputs to a loss per example.

    Under a strategy Keras requires custom training loops to reduce their losses themselves.
    """
    loss_function = keras.losses.get(loss)
    call: Callable[[Any, Any], Any] = getattr(loss_function, "call", loss_function)
    return call


def align_targets(tf: TensorFlow, targets: Any, outputs: Any) -> Any:
    """Add a column axis to targets of one number per example if the outputs have one.

    `Model.compute_loss` does the same.
    """
    flat = targets.shape.rank == 1 and outputs.shape.rank == 2  # noqa: PLR2004
    return tf.expand_dims(targets, -1) if flat else targets


def list_received_gradients(variables: Iterable[Variable]) -> list[float]:
    """Return the distinct sums of gradients that were subtracted from variables of zeros."""
    values = itertools.chain.from_iterable(variable.numpy().tolist() for variable in variables)
    return sorted({-value for value in values})


def _create_counters(tf: TensorFlow) -> tuple[list[Variable], Callable[[Any], None]]:
    """Create variables of zeros, and the function that sends them a gradient."""
    variables = [tf.Variable(tf.zeros(size)) for size in SIZES]
    optimizer = tf.keras.optimizers.SGD(1.0)
    optimizer.build(variables)

    def update(gradient: Any) -> None:
        optimizer.apply_gradients(
            [(gradient * tf.ones_like(variable), variable) for variable in variables]
        )

    return variables, update


def _place_batches(
    tf: TensorFlow,
    devices: Sequence[str],
    examples: Examples,
    numbers: Sequence[int | Sequence[int]],
) -> list[Batch]:
    """Return a batch per device, placed on it.

    Several batches for one device are concatenated.
    """
    placed = []
    for device, number in zip(devices, numbers, strict=True):
        indices = [number] if isinstance(number, int) else list(number)
        with tf.device(device):
            tensors = (
                tf.constant(array[indices].reshape(-1, *array.shape[2:])) for array in examples
            )
            placed.append(tuple(map(tf.identity, tensors)))
    return placed


def _average_losses(losses: Iterable[Any]) -> float:
    values = [float(loss) for loss in losses]
    return sum(values) / len(values)


def _list_devices(tf: TensorFlow, variables: Iterable[Variable]) -> list[str]:
    """Return short names of the variables' devices; those of another task begin with its job."""
    return sorted(
        {_format_device(tf.DeviceSpec.from_string(variable.device)) for variable in variables}
    )


def _format_device(spec: Any) -> str:
    job = "" if spec.job in (None, "localhost") else f"{spec.job}:{spec.task} "
    return f"{job}{spec.device_type}:{spec.device_index}"


def _start_cluster(tf: TensorFlow, workers: int) -> tuple[list[Any], Any]:
    """Start the servers in this process; return them and their cluster resolver.

    They have one thread more than there are workers, because a worker that waits for the parameter
    server blocks a thread.
    """
    ports = iter(_find_free_ports(workers + 1))
    jobs = {"worker": workers, "ps": 1}
    spec = tf.train.ClusterSpec(
        {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
    )
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=workers + 1)
    servers = [
        tf.distribute.Server(
            spec, job_name=job, task_index=task, protocol="grpc", config=config, start=True
        )
        for job, count in jobs.items()
        for task in range(count)
    ]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    return servers, resolver


def _find_free_ports(count: int) -> list[int]:
    """Return `count` distinct free ports; all are held until the last is known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
