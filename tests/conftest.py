"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

from .experiment import Experiment, make_experiment

settings.register_profile("chain", max_examples=60, deadline=None)
settings.load_profile("chain")


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return make_experiment(tmp_path)
