"""Folders of diffusers as MODEL: which are taken, and what is said of the others."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.source import diffused
from gpu_plan.planner.model.source.resolve import resolve

UNET = {"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0", "in_channels": 4}


def folder(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffused.importlib.util, "find_spec", lambda name: name)


def test_a_models_folder_and_its_file(tmp_path: Path) -> None:
    place = folder(tmp_path / "unet", UNET)
    for named in (place, place / "config.json"):
        source = resolve(str(named), diffused=True)
        assert (source.kind, source.config, source.path) == ("diffused", None, place / "config.json")


def test_of_a_pipeline_the_model_that_is_trained(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"vae": ["diffusers", "X"], "unet": ["diffusers", "Y"]}))
    folder(tmp_path / "unet", UNET)
    source = resolve(str(tmp_path), diffused=True)
    assert (source.path, source.notes) == (tmp_path / "unet" / "config.json", ("of the pipeline unet is trained",))


def test_what_is_said_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"of which UNet2DModel, .* are planned by their folders"):
        resolve(str(folder(tmp_path / "other", {**UNET, "_class_name": "UNet1DModel"})), diffused=True)
    place = folder(tmp_path / "unet", UNET)
    with pytest.raises(InputError, match="is a model of diffusers, not of transformers: plan the script"):
        resolve(str(place))
    (tmp_path / "model_index.json").write_text(json.dumps({"vae": ["diffusers", "X"]}))
    with pytest.raises(InputError, match="without unet or transformer"):
        resolve(str(tmp_path), diffused=True)
    (tmp_path / "model_index.json").write_text("[]")
    with pytest.raises(InputError, match="holds a JSON list"):
        resolve(str(tmp_path), diffused=True)
    monkeypatch.setattr(diffused.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="not installed here: pip install diffusers"):
        resolve(str(place), diffused=True)
