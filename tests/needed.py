"""What a machine may lack, and the mark of tests that need it."""

import importlib.metadata
import shutil

import pytest
import torch


def missing() -> str:
    """Say what ns-3 needs and is not there."""
    try:
        importlib.metadata.distribution("ns3")
    except importlib.metadata.PackageNotFoundError:
        return "ns-3 is not installed"
    return "" if shutil.which("g++") else "there is no g++"


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
needs_ns3 = pytest.mark.skipif(bool(missing()), reason=missing() or "ns-3 is there")
