"""Which scripts are captured without transformers: those of which every import is known to do without."""

from pathlib import Path

import pytest

from gpu_plan.planner.capture.lean import does_without_transformers

LEAN = {
    "torch alone": "import torch\nfrom torch.nn import functional as F\n",
    "the standard library": "import os, json\nfrom collections.abc import Iterator\n",
    "data parallel": "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n",
    "accelerate": "import numpy as np\nfrom accelerate import Accelerator\n",
    "a neighbour": "import model\n",
    "a neighbour's names": "from model import Net\n",
    "a neighbour's module": "from parts import layers\nimport parts.layers\n",
}
NOT_LEAN = {
    "transformers": "import transformers\n",
    "a part of it": "from transformers.optimization import Adafactor\n",
    "in a function": "def build():\n    from transformers import AutoModel\n",
    "a library on it": "import torch\nfrom trl import SFTTrainer\n",
    "its own sharding": "from torch.distributed.fsdp import FullyShardedDataParallel\n",
    "a neighbour that needs it": "from parts import hub\n",
    "the neighbour of a neighbour": "import chain\n",
    "a package's own first file": "import needing.other\n",
    "what nobody finds": "import mystery\n",
    "a relative import": "from . import sibling\n",
    "no Python": "def broken(:\n",
    "no text": "\0",
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    files = {
        "model.py": "import torch\nclass Net(torch.nn.Module): ...\n",
        "parts/__init__.py": "",
        "parts/layers.py": "import math\nimport model\n",
        "parts/hub.py": "from transformers import AutoConfig\n",
        "chain.py": "import parts.hub\n",
        "needing/__init__.py": "import peft\n",
        "needing/other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "train.py"


@pytest.mark.parametrize("text", LEAN.values(), ids=LEAN)
def test_what_does_without(script: Path, text: str) -> None:
    script.write_text(text)
    assert does_without_transformers(script)


@pytest.mark.parametrize("text", NOT_LEAN.values(), ids=NOT_LEAN)
def test_what_may_need_it(script: Path, text: str) -> None:
    script.write_text(text)
    assert not does_without_transformers(script)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    assert not does_without_transformers(tmp_path / "train.py")


def test_modules_that_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import two\n")
    (tmp_path / "two.py").write_text("import one\n")
    assert does_without_transformers(tmp_path / "one.py")


def test_more_neighbours_than_are_read(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"part{number}.py").write_text(f"import part{number + 1}\n")
    (tmp_path / "part120.py").write_text("")
    assert not does_without_transformers(tmp_path / "part0.py")
    assert does_without_transformers(tmp_path / "part60.py")
