"""Requests to a model, from one client and from several."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tfbench.inside.server import Server, resize_batches

CLIENTS = 3


def test_requests_go_through_the_batches_in_turns() -> None:
    batches: list[int] = []
    server = Server(batches.append, [1, 2, 3], clients=1)
    assert server.send_requests(5) >= 0
    assert batches == [1, 2, 3, 1, 2]
    assert sum(server.answered.values()) == 5


def test_several_clients_have_as_many_requests_under_way() -> None:
    """The barrier lets none through before all have asked."""
    together = threading.Barrier(CLIENTS, timeout=30)
    server = Server(lambda _: together.wait(), [0], clients=CLIENTS)
    server.send_requests(2 * CLIENTS)
    assert sum(server.answered.values()) == 2 * CLIENTS


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_clients_share_requests_that_do_not_divide_evenly(count: int) -> None:
    server = Server(lambda _: None, [0], clients=CLIENTS)
    server.send_requests(count)
    assert sum(server.answered.values()) == count


def test_a_request_that_fails_fails_the_sample() -> None:
    def ask(_batch: object) -> None:
        raise RuntimeError("no memory")

    for clients in (1, CLIENTS):
        with pytest.raises(RuntimeError, match="no memory"):
            Server(ask, [0], clients).send_requests(CLIENTS)


def test_forgotten_requests_are_not_counted() -> None:
    server = Server(lambda _: None, [0], clients=1)
    server.send_requests(3)
    server.reset_counts()
    server.send_requests(2)
    assert sum(server.answered.values()) == 2


def test_examples_are_cut_into_batches_of_another_size() -> None:
    arrays = np.arange(24).reshape(2, 6, 2)
    cut = resize_batches(arrays, 4, most=8)
    assert cut.shape == (3, 4, 2)
    assert (cut.reshape(-1, 2) == arrays.reshape(-1, 2)).all()
    assert resize_batches(arrays, 1, most=8).shape == (8, 1, 2)


def test_too_few_examples_come_again() -> None:
    cut = resize_batches(np.arange(3).reshape(1, 3), 7, most=8)
    assert cut.tolist() == [[0, 1, 2, 0, 1, 2, 0]]
