"""One process start of a measurement: ``python -m gpu_validation.child KIND …``; see :mod:`gpu_validation.starts`.

Writes one file a finished piece into the raw folder and skips pieces that are there. Ends with status 2 and a message
when the input or the device is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_validation.starts import INTERRUPTED
from sim.console import print_input_error
from sim.errors import InputError
from sim.files import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["calibrate", "validate", "races"])
    parser.add_argument("--raw", type=Path, required=True)
    parser.add_argument("--start", type=int, required=True)
    parser.add_argument("--backend", choices=["torch", "cpu"], required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--algorithm", default="dflash")
    parser.add_argument("--semantics", default="cuda")
    parser.add_argument(
        "--deadline", type=float, required=True, help="process clock at which to stop, epoch s"
    )
    given = parser.parse_args()
    try:
        Start(given, Ending()).run()
    except InputError as error:
        print_input_error(error)
        sys.exit(2)


class Ending:
    """Ends the process when it is told to, or when its parent is gone and nobody would read what it measures.

    At once and without unwinding: pieces are whole on disk or not there, the device's memory goes with the process,
    and an exception raised between two instructions of somebody's destructor would be printed and forgotten. Only a
    piece that is being written is finished first.
    """

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._writing = self._told = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        if not self._writing:
            os._exit(INTERRUPTED)

    @property
    def orphaned(self) -> bool:
        return os.getppid() != self._parent

    def write(self, path: Path, text: str) -> None:
        self._writing = True
        write_atomically(path, text)
        self._writing = False
        if self._told:
            os._exit(INTERRUPTED)


def end_with_parent() -> None:
    """Asks the system, where it is Linux, for a signal when the parent dies, whatever it dies of; elsewhere
    :attr:`Ending.orphaned` finds out after the current piece."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGTERM), 0, 0, 0)


class Start:
    def __init__(self, given: argparse.Namespace, ending: Ending):
        import torch

        from gpu_validation import settings
        from gpu_validation.device import open_backend
        from gpu_validation.device.guard import check_idle
        from gpu_validation.device.probe import describe
        from gpu_validation.observe.host_state import HostState

        # Inference only; a collector that runs when it likes would be a host section of its own.
        torch.set_grad_enabled(False)
        torch.set_num_threads(1)
        self.given, self.ending = given, ending
        self.load = settings.load_of(given.backend)
        self.races = settings.races_of(given.backend)
        self.backend = open_backend(given.backend)
        check_idle(self.backend)
        self.device = describe(self.backend)
        self.host = HostState()

    def run(self) -> None:
        given = self.given
        if given.kind == "races":
            self._races()
            return
        if given.kind == "calibrate":
            self._piece("primitives", self._primitives)
        for model in given.models.split(","):
            if given.kind == "calibrate":
                self._piece(model, partial(self._calibrate, model))
            else:
                self._validate(model)
            gc.unfreeze()
            gc.enable()
            self.backend.release()

    def _piece(self, name: str, make: Any) -> None:
        """Make and store one piece unless it is there or time is up."""
        path = self.given.raw / f"{self.given.kind}-{self.given.start}-{name}.json"
        if path.is_file() or self._over():
            return
        began = time.time()
        content = make()
        content["start"] = self.given.start
        content["seconds"] = round(time.time() - began, 2)
        content["device"] = self.device
        content["date"] = time.strftime("%Y-%m-%d", time.gmtime())
        self.ending.write(path, json.dumps(content, allow_nan=False))
        self._say(f"{path.name}: {content['seconds']} s")

    def _over(self) -> bool:
        return time.time() > self.given.deadline or self.ending.orphaned

    def _say(self, text: str) -> None:
        print(f"start {self.given.start}: {text}", flush=True)

    def _primitives(self) -> dict[str, Any]:
        from gpu_validation.calibrate.primitives import primitives

        samples, state, _ = self.host.steadily(lambda: primitives(self.backend))
        return {"samples": samples, "host_us": state}

    def _races(self) -> None:
        from gpu_validation.device.stand_in import StandIn, prefer
        from gpu_validation.validate.races import Races, race_runs

        if not self.backend.real:
            # Everything in program order races nowhere: let preparation run ahead as far as the events allow.
            self.backend = StandIn(prefer("schedule", "plan", "d2h", "copy", "forward"))
        self.load = self.races.calibration
        self._piece("primitives", self._primitives)
        built = self._build(self.races.model)
        self._piece("calibration", partial(self._calibrated, built))
        races = Races(built, self.races)
        for run in race_runs(self.races):
            self._piece(run.name, partial(races.measure, run, self.host, self._say))

    def _build(self, model: str) -> Any:
        from gpu_validation.device.guard import check_memory
        from gpu_validation.runtime.build import Built
        from gpu_validation.runtime.shapes import shape_named
        from gpu_validation.spec import BLOCKS, worker_named

        shape = shape_named(model)
        block = self.load.block or BLOCKS[worker_named(self.given.algorithm).kind]
        check_memory(self.backend, shape, self.load.sizes, block)
        began = time.time()
        built = Built(self.backend, shape, self.given.algorithm, self.load.sizes, block)
        self._say(f"{model} built in {time.time() - began:.1f} s")
        gc.collect()
        gc.freeze()
        gc.disable()
        return built

    def _calibrate(self, model: str) -> dict[str, Any]:
        return self._calibrated(self._build(model))

    def _calibrated(self, built: Any) -> dict[str, Any]:
        from gpu_validation.calibrate.measure import measure_model

        return measure_model(built, self.load, self.host, self._say)

    def _validate(self, model: str) -> None:
        from gpu_validation.validate.measure import measure_block

        built = None
        for concurrency in self.load.validated[model]:
            path = self.given.raw / f"validate-{self.given.start}-{model}-c{concurrency}.json"
            if path.is_file() or self._over():
                continue
            if built is None:
                built = self._build(model)
            self._piece(
                f"{model}-c{concurrency}",
                partial(
                    measure_block,
                    built,
                    concurrency,
                    self.load,
                    self.given.semantics,
                    self.given.start,
                    self.host,
                    self._say,
                ),
            )


if __name__ == "__main__":
    end_with_parent()
    main()
