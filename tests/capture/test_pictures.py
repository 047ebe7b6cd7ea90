"""Pictures of training scripts where torchvision is not installed: its transforms stood in for, and nothing else."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest, PlannedDevice
from gpu_plan.planner.capture.standin import vision
from gpu_plan.planner.capture.standin.told import Told

GPU = PlannedDevice(name="NVIDIA A100", total_bytes=40 * 10**9, capability_major=8, sm_count=108)
SCRIPT = """
import torch
from datasets import load_dataset
from torch import nn
from torchvision import transforms

change = transforms.Compose([
    transforms.Resize(32, interpolation=transforms.InterpolationMode.BILINEAR), transforms.RandomCrop(16),
    transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize([0.5], [0.5]),
])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = Frozen().requires_grad_(False)

class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, 3, 4)

    def encode(self, pictures):
        return self.encoder(pictures)

frozen = Frozen().requires_grad_(False).cuda()
model = nn.Sequential(nn.Flatten(), nn.Linear(8 * 4 * 4, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = load_dataset("nobody/pictures", split="train")
data = data.with_transform(lambda rows: {"pixels": [change(one.convert("RGB")) for one in rows["image"]]})
for batch in torch.utils.data.DataLoader(data, batch_size=2):
    with torch.no_grad():
        encoded = frozen.encode(batch["pixels"].cuda())
    model(encoded).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def captured(script: Path, *, standin: bool) -> object:
    request = CaptureRequest(
        script=str(script), working_directory=str(script.parent), device=GPU, seconds=600.0, standin=standin
    )
    return capture(request)[0].facts


@pytest.mark.slow
def test_a_script_of_pictures_and_the_decoder_that_nothing_runs(script: Path) -> None:
    facts = captured(script, standin=True)
    assert facts is not None
    assert facts.batch == {"input 0": "[2, 8, 4, 4] float32"}  # type: ignore[attr-defined]
    frozen = 8 * 3 * 16 + 8 + 3 * 8 * 16 + 3
    assert facts.spec["num_parameters"] == 8 * 16 * 4 + 4 + frozen  # type: ignore[attr-defined]
    assert any("torchvision is not installed" in line for line in facts.standins)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_without_stand_ins_the_offer_is_one_line(script: Path) -> None:
    with pytest.raises(CaptureError, match=r"transforms alone can be stood in for.*--data standin"):
        captured(script, standin=False)


def test_transforms_give_pictures_their_shapes() -> None:
    picture = Image.new("RGB", (60, 40))
    assert vision.Resize(20)(picture).size == (30, 20)
    assert vision.Resize((10, 12))(picture).size == (12, 10)
    assert vision.CenterCrop(8)(picture).size == (8, 8)
    made = vision.Normalize([0.5], [0.5])(vision.ToTensor()(picture))
    assert (tuple(made.shape), made.dtype, float(made[0, 0, 0])) == ((3, 40, 60), torch.float32, -1.0)
    assert tuple(vision.RandomCrop(16)(made).shape) == (3, 16, 16)
    assert vision.RandomCrop.get_params(picture, (40, 60)) == (0, 0, 40, 60)
    assert vision.ConvertImageDtype(torch.float32)(vision.PILToTensor()(picture)).dtype is torch.float32


def test_nobody_else_is_told_that_torchvision_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(importlib.util, "find_spec", importlib.util.find_spec)
    told = Told()
    vision.stand_in_for_transforms(told)
    assert importlib.util.find_spec("torchvision") is None
    from torchvision import transforms  # type: ignore[import-not-found]

    assert transforms.Compose is vision.Compose
    assert importlib.util.find_spec("torchvision") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torchvision.ops")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    assert told.lines


def test_what_timm_imports_is_there_for_timm_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, text in (
        ("timm", "from torchvision.datasets import MNIST\nfrom torchvision.ops.misc import FrozenBatchNorm2d\n"),
        ("other", "from torchvision.datasets import MNIST\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(importlib.util, "find_spec", importlib.util.find_spec)
    told = Told()
    vision.stand_in_for_transforms(told)
    with pytest.raises(ModuleNotFoundError):
        __import__("other")
    own = __import__("timm")
    norm = own.FrozenBatchNorm2d(3)
    norm.running_mean.fill_(1.0)
    norm.weight.fill_(2.0)
    norm.running_var.fill_(4.0)
    pictures = torch.full((1, 3, 2, 2), 5.0)
    # (5 - 1) / 2 * 2, but for epsilon.
    assert torch.allclose(norm(pictures), torch.full((1, 3, 2, 2), 4.0), atol=1e-4)
    assert not list(norm.parameters())
    with pytest.raises(ImportError, match="its data set MNIST has no stand-in"):
        own.MNIST("here")
    assert any("FrozenBatchNorm2d, which timm imports" in line for line in told.lines)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "timm", "other")]:
        del sys.modules[name]
