"""What tests on a real Ray cluster share; a module asks for it by `usefixtures`."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def first_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what a test does to the moment in which answers are waited for."""
    from coterie.engine.ray.cluster import Cluster

    monkeypatch.setattr(Cluster, "first", Cluster.first)


@pytest.fixture(scope="module")
def ended() -> Iterator[None]:
    """One cluster for all tests of a module, which ends with them."""
    from clustered import end_ray

    yield
    end_ray()
