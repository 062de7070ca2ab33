"""Resources and engines: cores, memory and devices; work in this process, in several, or on a cluster."""

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

__all__ = ["check_engine", "cores", "fabric", "is_first", "memory_allowed", "run"]

Task = TypeVar("Task")
Result = TypeVar("Result")

DEVICES = ("auto", "cpu", "cuda", "mps", "gpu")
PRECISIONS = ("32-true", "64-true", "bf16-mixed")
POOLS = 3  # pools of workers that may break before the work is given up


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def memory_allowed() -> int:
    """Return the bytes that arrays may occupy: half of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def is_first() -> bool:
    """Return whether this is the first (or only) process of a distributed run."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


def check_engine(device: str, devices: int, precision: str) -> None:
    """Check the settings of `fabric`, before anything is computed.

    Raises:
        UserError: if one is unknown, or this machine does not have the device.
    """
    for setting, value, allowed in (("device", device, DEVICES), ("precision", precision, PRECISIONS)):
        if value not in allowed:
            raise UserError(f"{setting} {value!r} is unknown; {nearest(value, allowed)}")
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise UserError(f"devices = {devices!r}: expected a whole number of at least 1")
    if device not in ("auto", "cpu"):
        from torch import backends, cuda

        present = {"cuda": cuda.is_available(), "mps": backends.mps.is_available()}
        if not present.get(device, any(present.values())):
            raise UserError(f"this machine has no device {device!r} that torch can use; choose auto or cpu")


def fabric(device: str = "auto", devices: int = 1, precision: str = "32-true") -> Any:
    """Launch the device, precision and processes of a training run.

    Args:
        device: one of DEVICES; "auto" takes a GPU if there is one.
        devices: number of processes to start on this machine; ignored under torchrun, which has started them, possibly on
            several machines.
        precision: one of PRECISIONS.

    Returns:
        A `lightning_fabric.Fabric`.

    Raises:
        UserError: if an argument is unknown, or this machine does not have the device.
    """
    check_engine(device, devices, precision)
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    local = int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    nodes = int(os.environ.get("WORLD_SIZE", local)) // local
    try:
        engine = Fabric(
            accelerator=device,
            devices=local,
            num_nodes=nodes,
            strategy="ddp" if local * nodes > 1 else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise UserError(f"this machine cannot train on {local} × {device!r}: {error}") from None
    engine.launch()
    return engine


def run(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 1, scheduler: str | None = None
) -> Generator[tuple[Task, Result]]:
    """Compute function(task) for every task, with one thread each.

    Args:
        function: of one task.
        tasks: to compute.
        workers: one computes in this process; more are separate processes, and one that dies is replaced.
        scheduler: address of a Dask scheduler, ``tcp://…``, to compute on a cluster instead.

    Yields:
        (task, function(task)), in the order of completion.
    """
    single = partial(_one_thread, function)
    if scheduler is not None:
        yield from _on_cluster(single, tasks, scheduler)
    elif workers > 1 and len(tasks) > 1:
        yield from _in_processes(single, list(tasks), min(workers, len(tasks)))
    else:
        for task in tasks:
            yield task, single(task)


def _one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    with threadpool_limits(1):
        return function(task)


def _in_processes(
    function: Callable[[Task], Result], pending: list[Task], workers: int, attempts: int = POOLS
) -> Generator[tuple[Task, Result]]:
    try:
        pickle.dumps(function)  # a pool that meets the error itself hangs
    except Exception as error:
        raise UserError(
            f"this work cannot be sent to other processes ({error}); use one worker, or define equation and noise at the "
            "top level of a module, not as a lambda or inside a function"
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
            attempts -= 1
            if attempts == 0:
                raise UserError(
                    f"workers died repeatedly with {len(pending)} blocks left: there is too little memory (use fewer workers), "
                    'or the script lacks the usual `if __name__ == "__main__":`'
                ) from None
        finally:
            if not finished:  # interrupted: no need to wait for workers, since blocks are written completely or not at all
                for process in list((pool._processes or {}).values()):
                    process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and exit when the parent has ended for whatever reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _on_cluster(function: Callable[[Task], Result], tasks: Sequence[Task], scheduler: str) -> Generator[tuple[Task, Result]]:
    try:
        from distributed import Client
        from distributed import as_completed as completed
    except ImportError:
        raise UserError(
            "a scheduler was named, but Dask is not installed; install it with pip install 'pdno[cluster]'"
        ) from None
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client:
        futures = {client.submit(function, task, pure=False): task for task in tasks}
        for future in completed(futures):
            yield futures[future], future.result()
