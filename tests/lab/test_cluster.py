"""Runs on a Ray cluster of several nodes, simulated on one machine: one node is lost, and no record is."""

from __future__ import annotations

import os
import threading
import time

import pytest
from tests.lab.test_engine import SPEC, _workers_on, epochs_of

from heldin.lab.engine import run_all
from heldin.lab.run import run
from heldin.lab.store import Store

NUM_NODES = 3  # with the head
NUM_ATTEMPTS = 5
STORE_BYTES = 80 * 2**20  # of objects on each node, the smallest that Ray accepts is 75 MB


@pytest.fixture
def cluster(monkeypatch):
    """A head and two further nodes, with one processor each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_agent_register_timeout_ms", "600000")  # a busy machine starts them slowly
    options = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    started = None
    for _ in range(NUM_ATTEMPTS):
        started = Cluster()
        try:
            nodes = [started.add_node(**options) for _ in range(NUM_NODES)]
            break
        except Exception as error:  # Ray has no class for it
            started.shutdown()
            started = None
            if "timed out during startup" not in str(error):
                raise
    if started is None:
        pytest.skip("Ray gives a node 30 seconds to start, which this machine does not reach")
    yield started, nodes[1:]
    started.shutdown()


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def remove_a_busy_node(cluster, nodes, store, specs, busy):
    """Wait until several nodes are busy, then remove one of `nodes`."""
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in nodes}
    for _ in range(6000):
        time.sleep(0.1)
        found = {
            parent_of(pid)
            for spec in specs
            if store.folder(spec).num_epochs > 0
            for pid in _workers_on(store.folder(spec).path / "lock")
        }
        if len(found) > 1 and found & set(raylets):
            busy.extend(found)
            cluster.remove_node(raylets[(found & set(raylets)).pop()], allow_graceful=False)
            return


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds the workers in /proc")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_node_that_is_removed_loses_no_record(cluster, tmp_path):
    cluster, nodes = cluster
    specs = [SPEC.with_(epochs=100, seed=seed, signals=("gradient_disparity",)) for seed in range(4)]
    busy: list[int] = []  # the nodes, by the process of their scheduler
    remover = threading.Thread(target=remove_a_busy_node, args=(cluster, nodes, Store(tmp_path), specs, busy))
    remover.start()
    records = run_all(specs, Store(tmp_path), jobs=NUM_NODES, engine="ray", address=cluster.address)
    remover.join()
    assert len(busy) > 1
    assert [record.spec for record in records] == specs
    assert all(record.done for record in records)
    starts = [line for spec in specs for line in Store(tmp_path).folder(spec).timings() if "begun" in line]
    assert len(starts) > len(specs)  # those of the removed node began again
    for spec in specs:
        run(spec, Store(tmp_path / "alone"))
        assert epochs_of(tmp_path, spec) == epochs_of(tmp_path / "alone", spec)
