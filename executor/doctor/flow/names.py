"""Dotted names of a script with its imports resolved, and what such names make."""

import ast
import re

from gpu_plan.planner.workload.optimizers.registry import optimizers

_OTHER_OPTIMIZERS = (
    r"Adagrad\w*", r"RMSprop\w*", "Prodigy", "LAMB", "Lamb", "SOAP", "Shampoo", "RAdam", "NAdam", r"Sophia\w*",
    r"\w+Optimizer", "SGDScheduleFree",
)  # fmt: skip
"""Class names of optimizers that scripts use and no plan knows."""
_OPTIMIZER = re.compile(
    r"^(?:Paged)?(?:Fused|CPU|Distributed|DeepSpeedCPU)?(?:"
    + "|".join([*(name for traits in optimizers().values() for name in traits.classes), *_OTHER_OPTIMIZERS])
    + ")$"
)
_OPTIMIZER_VARIABLES = re.compile(r"^(?:optimizer|optim)_(?:cls|class|cl)$")
_SCHEDULER = re.compile(r"^get_(?:\w*schedule\w*)$")
_MODEL_CLASS = re.compile(
    r"(?:^Auto(?:Peft)?Model\w*|Model|LMHeadModel|For[A-Z]\w+|UNet\w*|Transformer\d?D?\w*|AutoencoderKL\w*|ControlNet\w*)$"
)
_NOT_A_MODEL = re.compile(
    r"(?:Tokenizer\w*|Processor|Config|Extractor|Scheduler|Pipeline|Trainer|Arguments|Collator\w*|Output|Dataset|Loss)$"
)
_LOSS = re.compile(
    r"^(?:\w*Loss|cross_entropy|nll_loss|mse_loss|binary_cross_entropy\w*|l1_loss|smooth_l1_loss|kl_div)$"
)
_WRAPPERS = frozenset({"DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"})


def imports_of(tree: ast.Module) -> dict[str, str]:
    """Full dotted name by local name, for every import anywhere in the script."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                found[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".lstrip(".")
    return found


def dotted(node: ast.expr) -> str:
    """`a.b.c` of names and attributes; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def root(node: ast.expr) -> str:
    """The name at the bottom of attributes, calls and subscripts; empty where there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def last(name: str) -> str:
    return name.rpartition(".")[2]


def makes_model(name: str) -> bool:
    """Whether calling `name` makes a module: a class of transformers or torch.nn, or its loader."""
    head, _, tail = name.rpartition(".")
    if tail in {"from_pretrained", "from_config", "_from_config"}:
        cls = last(head)
        return bool(_MODEL_CLASS.search(cls)) and not _NOT_A_MODEL.search(cls)
    if name.startswith("torch.nn.") and not name.startswith(("torch.nn.functional", "torch.nn.utils", "torch.nn.init")):
        return tail[:1].isupper() and not _LOSS.match(tail) and tail not in {"Parameter", "DataParallel"}
    if name.startswith(("torchvision.models.", "timm.create_model")):
        return tail[:1].islower()
    return (
        bool(_MODEL_CLASS.search(tail))
        and not _NOT_A_MODEL.search(tail)
        and name.startswith(("transformers.", "diffusers."))
    )


def makes_optimizer(name: str) -> bool:
    tail = last(name)
    if name.startswith("torch.optim.lr_scheduler."):
        return False
    return bool(_OPTIMIZER.match(tail)) or bool(_OPTIMIZER_VARIABLES.match(tail))


def makes_scheduler(name: str) -> bool:
    tail = last(name)
    return (
        name.startswith("torch.optim.lr_scheduler.")
        or bool(_SCHEDULER.match(tail))
        or (tail.endswith("LR") and tail[:1].isupper())
        or tail in {"ReduceLROnPlateau", "CosineAnnealingWarmRestarts"}
    )


def makes_loss(name: str) -> bool:
    return bool(_LOSS.match(last(name)))


def wraps(name: str) -> bool:
    """Whether calling `name` wraps a module so that ranks share its work."""
    return last(name) in _WRAPPERS
