"""Devices that train one model together: how their gradients meet, under each strategy.

This file runs inside each arm's own environment: the standard library, NumPy and TensorFlow only,
and TensorFlow comes in as an argument. The names are ours; tf_cnn_benchmarks calls them

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

from tfbench.inside.worker import dataset, started

if TYPE_CHECKING:  # (it imports NumPy, which must come after the affinity)
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
"""No strategy: the global batch as one, on one device."""
SIZES = (1, 3, 1000)
"""Elements of the variables that `sums` looks at: a reduction may treat each variable its way."""


def group(
    tf: TensorFlow, strategy: str, devices: Sequence[str], workload: Workload, seed: int
) -> Group:
    """The workload at its first step on these devices."""
    if strategy in (INDEPENDENT, REFERENCE):
        return Apart(tf, devices, workload, seed)
    if strategy == SERVER:
        return Served(tf, len(devices), workload, seed)
    return Together(tf, distribution(tf, strategy, devices), devices, workload, seed)


def distribution(tf: TensorFlow, strategy: str, devices: Sequence[str]) -> Strategy:
    """TensorFlow's own strategy of one machine, for the synchronous ones. Raises KeyError."""
    names, own = list(devices), tf.distribute
    if strategy == CENTRAL:
        return own.experimental.CentralStorageStrategy(names, parameter_device="CPU:0")
    exchanges: dict[str, Callable[[], Any]] = {
        RING: lambda: _ring(tf, names),
        ONE_DEVICE: lambda: own.ReductionToOneDevice("CPU:0"),
        HIERARCHICAL: own.HierarchicalCopyAllReduce,
        NCCL: own.NcclAllReduce,
    }
    return own.MirroredStrategy(names, exchanges[strategy]())


def _ring(tf: TensorFlow, devices: Sequence[str]) -> Any:  # noqa: ANN401
    """MirroredStrategy's own choice for CPUs; for GPUs it would be NCCL, so it is asked for."""
    ops = importlib.import_module("tensorflow.python.distribute.cross_device_ops")
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return ops.CollectiveAllReduce(devices, len(devices), options)


class Group(ABC):
    """Replicas of one model. A step is one batch on each of them, and its update."""

    model: Model

    @abstractmethod
    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        """Lay the batches ready where they are computed: by round, each replica's number."""

    @abstractmethod
    def step(self) -> float:
        """The loss, a mean over all replicas' examples, before the update."""

    @abstractmethod
    def retrace(self) -> None:
        """Trace the step anew, for a model whose layers have changed."""

    @abstractmethod
    def sums(self) -> list[float]:
        """What arrives at a variable to which replica i sends the gradient i + 1, by SGD with rate
        1: all different values, in order, over elements, variables and replicas."""

    def expected_sums(self) -> list[float]:
        """n (n + 1) / 2, and nothing else."""
        return [sum(range(1, self.replicas + 1)) * 1.0]

    @property
    @abstractmethod
    def replicas(self) -> int: ...

    @abstractmethod
    def variables_on(self) -> list[str]:
        """The devices that hold trainable variables."""

    def times(self, steps: int) -> list[float]:
        """Seconds of each step with its end awaited."""
        taken = []
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            taken.append(time.perf_counter() - began)
        return taken


class Together(Group):
    """In step with each other, under a strategy of TensorFlow."""

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
        with strategy.scope(), tf.variable_creator_scope(_aggregated(tf, strategy)):
            self.model, _ = started(tf.keras, workload, seed)
            self.model.optimizer.build(self.model.trainable_variables)
        self.retrace()

    @property
    def replicas(self) -> int:
        return len(self._devices)

    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        rounds = []
        for numbers in picks:
            placed = _placed(self._tf, self._devices, examples, numbers)
            rounds.append(
                self._strategy.experimental_distribute_values_from_function(
                    lambda context, placed=placed: placed[context.replica_id_in_sync_group]
                )
            )
        self._batches = itertools.cycle(rounds)

    def retrace(self) -> None:
        own, strategy = replica_step(self._tf, self.model), self._strategy

        @self._tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def step(batch: Batch) -> Any:  # noqa: ANN401
            return strategy.experimental_local_results(strategy.run(own, args=(batch,)))

        self._step = step

    def step(self) -> float:
        return _mean(self._step(next(self._batches)))

    def sums(self) -> list[float]:
        tf, strategy = self._tf, self._strategy
        with strategy.scope():
            variables, update = _counters(tf)

        def own() -> None:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            update(tf.cast(number + 1, tf.float32))

        @tf.function  # type: ignore[untyped-decorator]
        def all_of_them() -> None:
            strategy.run(own)

        all_of_them()
        return arrived(itertools.chain(*map(strategy.experimental_local_results, variables)))

    def variables_on(self) -> list[str]:
        own = variables_of(self._tf, self.model)
        local = map(self._strategy.experimental_local_results, own)
        return _places(self._tf, itertools.chain(*local))


class Apart(Group):
    """Each device has a model of its own, and none hears of the others."""

    def __init__(
        self, tf: TensorFlow, devices: Sequence[str], workload: Workload, seed: int
    ) -> None:
        self._tf = tf
        self._devices = devices
        self._batches: Iterator[Batch] = iter(())
        self._models = [self._on(device, workload, seed) for device in devices]
        self.model = self._models[0]
        self.retrace()

    def _on(self, device: str, workload: Workload, seed: int) -> Model:
        with self._tf.device(device):
            model, _ = started(self._tf.keras, workload, seed)
            model.optimizer.build(model.trainable_variables)
        return model

    @property
    def replicas(self) -> int:
        return len(self._devices)

    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        """One device computes all batches of a round as one."""
        alone = len(self._devices) == 1
        self._batches = itertools.cycle(
            [
                _placed(self._tf, self._devices, examples, [numbers] if alone else numbers)
                for numbers in picks
            ]
        )

    def retrace(self) -> None:
        tf = self._tf
        own = [replica_step(tf, model) for model in self._models]

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def step(batches: Sequence[Batch]) -> list[Any]:
            losses = []
            for device, take, batch in zip(self._devices, own, batches, strict=True):
                with tf.device(device):
                    losses.append(take(batch))
            return losses

        self._step = step

    def step(self) -> float:
        return _mean(self._step(next(self._batches)))

    def sums(self) -> list[float]:
        found: list[Variable] = []
        for number, device in enumerate(self._devices, start=1):
            with self._tf.device(device):
                variables, update = _counters(self._tf)
                update(self._tf.constant(float(number)))
                found += variables
        return arrived(found)

    def expected_sums(self) -> list[float]:
        """Each its own: that nothing is exchanged is what is looked at."""
        return [float(number) for number in range(1, self.replicas + 1)]

    def variables_on(self) -> list[str]:
        every = (variables_of(self._tf, model) for model in self._models)
        return _places(self._tf, itertools.chain(*every))


class Served(Group):
    """Workers and one parameter server, each a server of this process: every worker fetches the
    parameters, and sends its update when it has one, whatever the others do. `step` waits for all
    workers, `times` does not.
    """

    def __init__(self, tf: TensorFlow, workers: int, workload: Workload, seed: int) -> None:
        self._tf = tf
        self._workers = workers
        self._servers, resolver = _cluster(tf, workers)
        self._strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._batches: Any = None
        with self._strategy.scope():
            self.model, _ = started(tf.keras, workload, seed)
            self.model.optimizer.build(self.model.trainable_variables)
        self.retrace()

    @property
    def replicas(self) -> int:
        return self._workers

    def feed(self, examples: Examples, picks: Sequence[Sequence[int]]) -> None:
        """Each worker goes round all the batches, as they would otherwise have to be sent to it."""
        numbers = list(itertools.chain.from_iterable(picks))
        own = tuple(each[numbers] for each in examples)
        every = self._coordinator.create_per_worker_dataset(lambda: dataset(self._tf, own))
        self._batches = iter(every)

    def retrace(self) -> None:
        tf, strategy = self._tf, self._strategy
        own = replica_step(tf, self.model)
        iterations = variable_of(tf, self.model.optimizer.iterations)

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
        def step(batches: Any) -> tuple[Any, Any]:  # noqa: ANN401
            loss = strategy.run(own, args=(next(batches),))
            with tf.control_dependencies([loss, iterations.read_value()]):
                return loss, tf.timestamp()

        self._step = step

    def step(self) -> float:
        return _mean(loss for loss, _ in self._taken(1))

    def _taken(self, steps: int) -> list[tuple[float, float]]:
        """The losses of so many steps of each worker, and when they were there."""
        done = [
            self._coordinator.schedule(self._step, args=(self._batches,))
            for _ in range(steps * self._workers)
        ]
        self._coordinator.join()
        return [tuple(map(float, each.fetch())) for each in done]  # type: ignore[misc]

    def times(self, steps: int) -> list[float]:
        """Seconds in which as many batches as there are workers were done, whoever did them."""
        began = time.time()
        done = sorted(at for _, at in self._taken(steps))
        ends = done[self._workers - 1 :: self._workers]
        return [end - start for start, end in itertools.pairwise([began, *ends])]

    def sums(self) -> list[float]:
        tf = self._tf
        with self._strategy.scope():
            variables, update = _counters(tf)
        traced = tf.function(lambda gradient: self._strategy.run(update, args=(gradient,)))
        for number in range(1, self._workers + 1):
            self._coordinator.schedule(traced, args=(tf.constant(float(number)),))
        self._coordinator.join()
        return arrived(variables)

    def variables_on(self) -> list[str]:
        return _places(self._tf, variables_of(self._tf, self.model))


def variables_of(tf: TensorFlow, model: Model) -> list[Variable]:
    """TensorFlow's trainable variables."""
    return [variable_of(tf, each) for each in model.trainable_variables]


def variable_of(tf: TensorFlow, own: Any) -> Variable:  # noqa: ANN401
    """TensorFlow's variable, which Keras 3 has inside its own."""
    return own if isinstance(own, tf.Variable) else own.value


def _aggregated(tf: TensorFlow, strategy: Strategy) -> Callable[..., Variable]:
    """A creator of variables, for tf.variable_creator_scope.

    CentralStorageStrategy has one copy of each variable, and does not let replicas update one that
    does not say whose update counts. Such is the state of Keras 3's SeedGenerator, by which every
    replica's Dropout draws: there the first one's counts.
    """
    central = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)

    def create(creator: Callable[..., Variable], **options: Any) -> Variable:  # noqa: ANN401
        silent = options.get("aggregation") in (None, tf.VariableAggregation.NONE)
        if central and silent and not options.get("trainable"):
            options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return creator(**options)

    return create


def replica_step(tf: TensorFlow, model: Model) -> Callable[[Batch], Any]:
    """One replica's part: its loss, a mean over its own examples, and its update. Gradients are
    those of the mean over all replicas that are in step, so that they can be added up."""
    losses = per_example(tf.keras, model.loss)

    def step(batch: Batch) -> Any:  # noqa: ANN401
        inputs, targets = batch
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.reduce_mean(losses(ranked(tf, targets, outputs), outputs))
            share = loss / tf.distribute.get_strategy().num_replicas_in_sync
        gradients = tape.gradient(share, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def per_example(keras: Any, loss: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401
    """From targets and outputs to a loss per example: Keras adds them up in its own way under a
    strategy, and asks for ours."""
    found = keras.losses.get(loss)
    call: Callable[[Any, Any], Any] = getattr(found, "call", found)
    return call


def ranked(tf: TensorFlow, targets: Any, outputs: Any) -> Any:  # noqa: ANN401
    """A number per example stands in a column where outputs do, as `Model.compute_loss` has it."""
    flat = targets.shape.rank == 1 and outputs.shape.rank == 2  # noqa: PLR2004
    return tf.expand_dims(targets, -1) if flat else targets


def arrived(variables: Iterable[Variable]) -> list[float]:
    """All different values of what went from 0 down by the gradients."""
    values = itertools.chain.from_iterable(each.numpy().tolist() for each in variables)
    return sorted({-value for value in values})


def _counters(tf: TensorFlow) -> tuple[list[Variable], Callable[[Any], None]]:
    """Variables of zeros, and what sends them a gradient."""
    variables = [tf.Variable(tf.zeros(size)) for size in SIZES]
    optimizer = tf.keras.optimizers.SGD(1.0)
    optimizer.build(variables)

    def update(gradient: Any) -> None:  # noqa: ANN401
        optimizer.apply_gradients([(gradient * tf.ones_like(each), each) for each in variables])

    return variables, update


def _placed(
    tf: TensorFlow,
    devices: Sequence[str],
    examples: Examples,
    numbers: Sequence[int | Sequence[int]],
) -> list[Batch]:
    """A batch per device. Several numbers for one are one batch, one behind the other."""
    placed = []
    for device, number in zip(devices, numbers, strict=True):
        wanted = [number] if isinstance(number, int) else list(number)
        with tf.device(device):
            own = (tf.constant(each[wanted].reshape(-1, *each.shape[2:])) for each in examples)
            placed.append(tuple(map(tf.identity, own)))
    return placed


def _mean(losses: Iterable[Any]) -> float:
    values = [float(each) for each in losses]
    return sum(values) / len(values)


def _places(tf: TensorFlow, variables: Iterable[Variable]) -> list[str]:
    """Short names of the devices; those of another task with its job before them."""
    return sorted({_short(tf.DeviceSpec.from_string(each.device)) for each in variables})


def _short(spec: Any) -> str:  # noqa: ANN401
    job = "" if spec.job in (None, "localhost") else f"{spec.job}:{spec.task} "
    return f"{job}{spec.device_type}:{spec.device_index}"


def _cluster(tf: TensorFlow, workers: int) -> tuple[list[Any], Any]:
    """Servers of this process, and what finds them. They have a thread more than there are
    workers, as a worker that waits for the parameter server holds one."""
    ports = iter(_free_ports(workers + 1))
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


def _free_ports(count: int) -> list[int]:
    """Held together until all are known, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
