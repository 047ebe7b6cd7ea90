"""Every class of transformers that says how it is split over ranks, small, asked for as a user asks: what ends in
anything but a plan or one line.

    .venv/bin/python -m benchmarks.sweeps.spread_classes [--only WORD,...]

writes benchmarks/results/spread_classes.json and .md after each class (twenty minutes); what was not asked this time
stays as it was, and `--only refused` asks those that one device refused.
A class is built from a small configuration written by hand where there is one, else from its configuration's own
defaults: narrow, of as few layers as its kinds take, then of its own widths. One that cannot be so built or traced on
one device says nothing of ranks, and stands apart.
"""

import argparse
import contextlib
import io
import json
import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.places import RESULTS
from tests.support.ranks.own_defaults import OWN

Row = dict[str, Any]
WAYS = ("--tp", "--ep")
COMMON = ("--gpus", "2xH100", "--pin", "--micro-batch", "2", "--json", "--no-cache", "--quiet")
LENGTHS = ("512", "4096")
"""A short sequence; one that holds the tokens of an image of the class's own size."""
MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
"""Where a class that can be trained is looked for, the likeliest first."""

NARROW: tuple[tuple[str, int], ...] = (
    (r"(hidden_size|d_model|dim|n_embd|embed_dim|ple_hidden_size|hidden_size_per_layer_input)", 64),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size|mlp_hidden_size)(_mlp)?", 128),
    (r"(moe|expert|shared_expert|shared).*_(intermediate|ffn_hidden)_size", 64),
    (r"(num_hidden_layers|n_layer|num_layers|encoder_layers|decoder_layers|depth|num_decoder_layers)", 2),
    (r".*(num_(key_value|kv)_heads)", 2),
    (r".*(num_attention_heads|num_heads|n_head|encoder_attention_heads|decoder_attention_heads)", 4),
    (r"(swa_|global_|v_|value_)?head_dim", 16),
    (r"(qk_nope_head_dim|qk_rope_head_dim|v_head_dim|index_head_dim)", 16),
    (r"(q_lora_rank|kv_lora_rank|o_lora_rank|index_n_heads|linear_num_key_heads|linear_num_value_heads)", 8),
    (r"(vocab_size|vocab_size_per_layer_input|text_vocab_size)", 512),
    (r"(num_experts|num_local_experts|n_routed_experts|moe_num_experts)", 8),
    (r"(num_experts_per_tok|moe_topk|moe_k|top_k_experts|num_experts_per_token|top_k)", 2),
    (r"(n_group|topk_group|num_expert_group)", 1),
    (r"(max_position_embeddings|n_positions|max_seq_len)", 1024),
    (r"(first_k_dense_replace|num_dense_layers|first_dense_layers)", 1),
    (r"(mamba_n_heads|mamba_num_heads)", 8),
    (r"(mamba_d_head|mamba_head_dim)", 16),
    (r"(mamba_d_state|ssm_state_size)", 16),
    (r"(sliding_window|attention_chunk_size)", 32),
)
"""Names of configuration values, and what they become where they are numbers larger than that."""
_LISTS = r"(layer_types|layers_block_type|mlp_layer_types|no_rope_layers|mlp_only_layers|layer_type_list)"


def kinds(transformers_models: Path) -> dict[str, tuple[bool, bool]]:
    """Folders of models whose configurations say how they are split: by tensor parallel, by expert parallel."""
    found = {}
    for path in sorted(transformers_models.glob("*/configuration_*.py")):
        text = path.read_text(encoding="utf-8")
        has = tuple(bool(re.search(rf"base_model_{kind}_plan\b[^=\n]*= *(?!None)\S", text)) for kind in ("tp", "ep"))
        if any(has):
            found[path.parent.name] = (has[0], has[1])
    return found


def class_of(model_type: str) -> str | None:
    """The likeliest class to be trained of a model type."""
    from transformers.models.auto import modeling_auto

    for mapping in MAPPINGS:
        name = getattr(modeling_auto, mapping, {}).get(model_type)
        if name is not None:
            return str(name if isinstance(name, str) else name[0])
    return None


def types_of(folder: str) -> list[str]:
    """Model types whose configuration stands in a folder: text alone first, then the shortest name."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

    found = [name for name in CONFIG_MAPPING_NAMES if model_type_to_module_name(name) == folder]
    return sorted(found, key=lambda name: (class_of(name) is None, not name.endswith("_text"), len(name)))


def configs_of(model_type: str) -> list[dict[str, Any]]:
    """Its own defaults, narrow; the same with keys for every head; the same with what it leaves open filled; last its
    own widths with few layers."""
    from transformers import AutoConfig

    given = AutoConfig.for_model(model_type).to_dict()
    own = {"model_type": model_type, "architectures": [class_of(model_type)]}
    plain = narrow(given)
    ungrouped = _everywhere(plain, {"num_key_value_heads": 4})
    filled = {**narrow(_filled(given)), **({"rope_theta": 10_000.0} if given.get("rope_theta") is None else {})}
    tried = (plain, ungrouped, filled, _everywhere(filled, {"num_key_value_heads": 4}), shallow(given), given)
    return [{**one, **own} for one in tried]


def shallow(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with few layers, and lists that have one entry a layer as long as those; widths stay."""
    deep = values.get("num_hidden_layers")
    kinds = [len(set(map(str, v))) for k, v in values.items() if re.fullmatch(_LISTS, k) and v]
    layers = max([2, *kinds])
    made: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key not in ("id2label", "label2id", "per_layer_config"):
            made[key] = shallow(value)
        elif isinstance(value, list) and deep and len(value) == deep and deep > layers:
            different = list(dict.fromkeys(value)) if re.fullmatch(_LISTS, key) else value
            made[key] = (different * layers)[:layers]
        elif key == "num_hidden_layers" and isinstance(value, int):
            made[key] = min(value, layers)
        elif key in _EARLY and isinstance(value, int):
            made[key] = min(value, 1)
        elif key not in ("id2label", "label2id", "per_layer_config"):
            made[key] = value
    return made


_EARLY = ("first_k_dense_replace", "num_dense_layers", "first_dense_layers", "num_nextn_predict_layers")
_OPEN = {
    "head_dim": 16, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "intermediate_size": 128, "num_local_experts": 8, "n_shared_experts": 1,
    "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16, "kv_lora_rank": 8,
}  # fmt: skip


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _filled(value) if isinstance(value, dict) else _OPEN.get(key) if value is None else value
        for key, value in values.items()
    }


def _everywhere(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _everywhere(value, others) if isinstance(value, dict) else others.get(key, value)
        for key, value in values.items()
    }


def narrow(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with small numbers, tables within it too."""
    layers = next((len(set(map(str, v))) for k, v in values.items() if re.fullmatch(_LISTS, k) and v), 2)
    deep = values.get("num_hidden_layers")
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key in ("id2label", "label2id", "per_layer_config"):
            continue
        made[key] = _table(key, value) if isinstance(value, dict) else _small(key, value, max(layers, 2))
        if isinstance(value, list) and len(value) == deep:
            made[key] = value[: max(layers, 2)]
    for key, value in values.items():
        if re.fullmatch(_LISTS, key) and isinstance(value, list) and value:
            different = list(dict.fromkeys(value))
            made[key] = (different * max(layers, 2))[: max(layers, 2)] if key != "mlp_only_layers" else []
    return made


def _table(key: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What looks and hears stays as it is, but for the width at which it hands over."""
    if not re.search("vision|audio|image|video", key):
        return narrow(values)
    return {k: 64 if k in ("out_hidden_size", "text_hidden_size", "projection_dim") else v for k, v in values.items()}


def _small(key: str, value: Any, layers: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    for pattern, most in NARROW:
        if re.fullmatch(pattern, key):
            return min(value, layers if key.endswith(("layers", "n_layer", "depth")) else most)
    return min(value, 1) if key.endswith("_token_id") else value


def asked(folder: Path, length: str, words: tuple[str, ...]) -> Row:
    """One command line in a process of its own: exit code, and the line that was said or the plan in a word."""
    return _apart(lambda: _ran([str(folder), *COMMON, "--seq-len", length, *words]))


def _ran(words: list[str]) -> Row:
    from gpu_plan.cli import main

    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(words)
    lines = said.getvalue().strip().splitlines()
    if code in (0, 1):
        found = json.loads(out.getvalue())
        plan = (found["plans"] or found["rejected"])[0]
        return {"exit": code, "peak": plan["memory"]["peak_allocated_bytes"]}
    return {"exit": code, "said": "\n".join(lines)[-1500:], "lines": len(lines)}


def _apart(job: Callable[[], Row]) -> Row:
    """What a job gives in a child that has imported what this process has."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.close(read)
            try:
                row = job()
            except BaseException:
                row = {"exit": None, "said": traceback.format_exc()[-1500:], "lines": 99}
            with os.fdopen(write, "w") as stream:
                json.dump(row, stream)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return dict(json.loads(text)) if text else {"exit": None, "said": "the process died", "lines": 0}


def row_of(folder: str, plans: tuple[bool, bool]) -> Row:
    """What comes of one folder of models: of one device, and of each kind of split that it says."""
    made = _apart(lambda: _configs_or_why(folder))
    if "problem" in made:
        return {"model": folder, **made}
    last: Row = {}
    with tempfile.TemporaryDirectory(prefix="plan-spread-") as name:
        for config in made["configs"]:
            (Path(name) / "config.json").write_text(json.dumps(config))
            for length in LENGTHS:
                row: Row = {"model": folder, "class": config["architectures"][0]}
                row["single"] = asked(Path(name), length, ())
                if row["single"]["exit"] in (0, 1):
                    ways = [way for way, has in zip(WAYS, plans, strict=True) if has]
                    return row | {way: asked(Path(name), length, (way, "2")) for way in ways}
                if not last or "For" in row["class"]:
                    last = row
    return last


def _configs_or_why(folder: str) -> Row:
    """Configurations to be tried in turn: what was written by hand, then of each model type with a class to be
    trained."""
    problem, found = "no class to be trained", [one.config() for one in OWN.values() if one.model_type == folder]
    for kind in types_of(folder):
        if class_of(kind) is None:
            continue
        try:
            found += configs_of(kind)
        except Exception as trouble:
            problem = f"{type(trouble).__name__}: {str(trouble).splitlines()[0][:160]}"
    return {"configs": found} if found else {"problem": problem}


def verdict(answer: Row) -> str:
    """planned, refused in one line, or WRONG."""
    if answer["exit"] in (0, 1):
        return "planned"
    return "refused" if answer["exit"] == 2 and answer["lines"] == 1 else "WRONG"


def page(rows: list[Row]) -> str:
    """As Markdown."""
    counts = {way: [verdict(row[way]) for row in rows if way in row] for way in ("single", *WAYS)}
    told = "; ".join(
        f"{way}: {', '.join(f'{words.count(w)} {w}' for w in ('planned', 'refused', 'WRONG'))}"
        for way, words in counts.items()
    )
    lines = [
        "# Classes that say how they are split over ranks",
        "",
        f"Made by `python -m benchmarks.sweeps.spread_classes`: {len(rows)} folders of transformers whose configuration"
        f" has a plan, each small, on 2xH100. {told}.",
        "",
        "| model | class | one device | `--tp 2` | `--ep 2` |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        if "problem" in row:
            lines.append(f"| {row['model']} | not built: {_cell(row['problem'])} | | | |")
            continue
        cells = " | ".join(_told(row.get(way)) for way in ("single", *WAYS))
        lines.append(f"| {row['model']} | {row['class']} | {cells} |")
    return "\n".join(lines) + "\n"


def _told(answer: Row | None) -> str:
    if answer is None:
        return ""
    if "peak" in answer:
        return f"{answer['peak']:,}"
    return f"{verdict(answer)}: {_cell(answer['said'])}"


def _cell(text: str) -> str:
    last = (text.strip().splitlines() or [""])[-1]
    return re.sub(r"/\S*plan-spread-\w+/?\S*", "MODEL", last).replace("|", "\\|")[:300]


def _chosen(words: str, found: Mapping[str, Any]) -> Iterator[str]:
    wanted = [word for word in words.split(",") if word]
    return (name for name in found if not wanted or name in wanted)


def main() -> None:
    """Asks, and writes both files after each class."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps.spread_classes")
    parser.add_argument("--only", metavar="FOLDER,...", default="", help="these folders of transformers alone")
    given = parser.parse_args()
    import transformers
    from transformers.models.auto import modeling_auto  # noqa: F401  (so that no child imports it again)

    import gpu_plan.planner.trace.tracer  # noqa: F401

    found = kinds(Path(transformers.__file__).parent / "models")
    path = RESULTS / "spread_classes.json"
    rows = {row["model"]: row for row in (json.loads(path.read_text()) if path.exists() else [])}
    refused = [name for name, row in rows.items() if "problem" in row or verdict(row["single"]) != "planned"]
    for name in refused if given.only == "refused" else list(_chosen(given.only, found)):
        rows[name] = row_of(name, found[name])
        row = rows[name]
        said = {way: verdict(row[way]) for way in ("single", *WAYS) if way in row}
        print(name, row.get("class") or row["problem"], said, flush=True)
        ordered = [rows[key] for key in sorted(rows)]
        path.write_text(json.dumps(ordered, indent=1) + "\n")
        path.with_suffix(".md").write_text(page(ordered))


if __name__ == "__main__":
    main()
