"""Ctrl-C during an experiment leaves no thread behind that still uses the store."""

import threading
from pathlib import Path

import pytest

from outlast.tools.chaos.experiment import Experiment
from outlast.tools.chaos.options import Options
from outlast.tools.chaos.view import View
from outlast.tools.chaos.work import Demo


class InterruptingView(View):
    """Raise KeyboardInterrupt as soon as the load generator submits."""

    def show(self, fleet, load, faults) -> None:
        if load.acknowledged:
            raise KeyboardInterrupt


def test_load_generator_has_stopped_when_an_interrupted_experiment_ends(tmp_path: Path):
    before = threading.active_count()
    experiment = Experiment(Options(seed=1, workers=1), Demo(1), tmp_path, InterruptingView())
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert "chaos desk" not in {thread.name for thread in threading.enumerate()}
    assert threading.active_count() == before
