"""Where work is done: in this process, in several, or on a cluster. The only file that knows the engines."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from ..errors import UserError, nearest

__all__ = ["cores", "fabric", "is_first", "run"]

Task = TypeVar("Task")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_first() -> bool:
    """Whether this is the first (or only) process of a distributed run."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


PRECISIONS = ("32-true", "64-true", "bf16-mixed")
DEVICES = ("auto", "cpu", "cuda", "mps", "gpu")


def fabric(device: str = "auto", devices: int = 1, precision: str = "32-true") -> Any:
    """Device, precision and processes of a training run (lightning-fabric), launched.

    `devices` > 1 starts as many processes on this machine. Under torchrun, which may span several machines, there are as
    many as it started.
    """
    for what, value, known in (("device", device, DEVICES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise UserError(f"{what} {value!r} is unknown; {nearest(value, known)}")
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise UserError(f"devices = {devices!r}: expected a whole number of at least 1")
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    local = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = int(os.environ.get("WORLD_SIZE", local)) // local
    try:
        made = Fabric(
            accelerator=device,
            devices=local,
            num_nodes=nodes,
            strategy="ddp" if local * nodes > 1 else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise UserError(f"this machine cannot train on {local} × {device!r}: {error}") from None
    made.launch()
    return made


def run(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 1, scheduler: str | None = None
) -> Generator[tuple[Task, Result]]:
    """(task, function(task)) for every task, as they are done.

    One worker works in this process; more are processes of their own, and one that dies is replaced; with `scheduler`
    (the address of a Dask scheduler, ``tcp://…``) the cluster works. Each task has one thread, whoever does it.
    """
    alone = partial(_one_thread, function)
    if scheduler is not None:
        yield from _on_cluster(alone, tasks, scheduler)
    elif workers > 1 and len(tasks) > 1:
        yield from _in_processes(alone, list(tasks), min(workers, len(tasks)))
    else:
        for task in tasks:
            yield task, alone(task)


def _one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    with threadpool_limits(1):
        return function(task)


def _in_processes(
    function: Callable[[Task], Result], pending: list[Task], workers: int, deaths: int = 3
) -> Generator[tuple[Task, Result]]:
    try:
        pickle.dumps(function)  # a pool that finds out by itself hangs
    except Exception as error:
        raise UserError(
            f"this work cannot be sent to other processes ({error}); take one worker, or define equation and noise at the "
            "top of a module, not as a lambda or inside a function"
        ) from None
    # Spawned, not forked: a fork would copy locks held by other threads, and open files.
    while pending:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker)
        finished = False
        try:
            futures = {pool.submit(function, task): task for task in pending}
            for future in as_completed(futures):
                result = future.result()
                pending.remove(futures[future])
                yield futures[future], result
            finished = True
        except BrokenProcessPool:
            deaths -= 1
            if deaths == 0:
                raise UserError(
                    f"workers ended again and again with {len(pending)} blocks to go: for want of memory (take fewer workers), "
                    'or in a script without the usual `if __name__ == "__main__":`'
                ) from None
        finally:
            if not finished:  # interrupted: what workers are at need not be waited for, blocks are written whole or not at all
                for process in list((pool._processes or {}).values()):
                    process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end when the parent has ended, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _on_cluster(function: Callable[[Task], Result], tasks: Sequence[Task], scheduler: str) -> Generator[tuple[Task, Result]]:
    try:
        from distributed import Client
        from distributed import as_completed as completed
    except ImportError:
        raise UserError("a scheduler was named, but Dask is not installed; pip install 'pdno[cluster]'") from None
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client:
        futures = {client.submit(function, task, pure=False): task for task in tasks}
        for future in completed(futures):
            yield futures[future], future.result()
