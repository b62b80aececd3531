"""Models for all tests of this folder. The tests are skipped if no engine is installed."""

from pathlib import Path

import pytest

from .models import write_models
from .processes import require_engines
from .recurrent import write_recurrent_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models."""
    require_engines()
    root = tmp_path_factory.mktemp("models")
    write_models(root)
    write_recurrent_models(root)
    return root
