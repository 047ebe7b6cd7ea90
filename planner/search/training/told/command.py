"""The command that runs a plan with what is installed today: `accelerate launch` and its own options."""

import json
import shlex

from gpu_plan.planner.context.rules import ROTATION
from gpu_plan.planner.context.split import ROTATIONS
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.allocator.words import allocator_variable
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.notes.checkpointing import ON_HOST, checkpoint_every
from gpu_plan.planner.search.training.notes.liger import liger_words
from gpu_plan.planner.strategy.fsdp2.units import blocks_around_embeddings
from gpu_plan.planner.strategy.traits import Engine, Offload
from gpu_plan.planner.strategy.zero.stage3.nvme import SWAP_DEFAULTS
from gpu_plan.planner.workload.training import NVME_PATH, Checkpointing, Workload

DATA_LOADER_SETTINGS = frozenset(
    {"data.split_batches", "data.dispatch_batches", "data.even_batches", "data.seedable_sampler"}
)


def launch_command(judgement: StepJudgement, workload: Workload, cluster: Cluster, captured: str | None = None) -> str:
    """Shell command, quoted; the script's own arguments follow it where the stack defines them.

    A captured script has its batch already; any other is called train.py, and told what the stack lets it be told.

    One that starts its ranks itself is run as it is, once on each node. Where no options of the launcher say what is
    planned, the saved plan is executed instead.
    """
    script, workload = captured or "train.py", judgement.family.own(workload)
    variable = allocator_variable(dict(workload.settings))
    allocates = f"PYTORCH_ALLOC_CONF={variable} " if variable else ""
    if dict(workload.script).get("starts_ranks"):
        return f"{allocates}python {shlex.quote(script)}"
    if _beyond_options(judgement, workload, cluster):
        return f"plan --plan plan.json --execute {shlex.quote(script)}"
    words = ["accelerate", "launch", "--num_processes", str(cluster.world_size)]
    if cluster.nodes > 1:
        words += ["--num_machines", str(cluster.nodes), "--machine_rank", "$NODE_RANK"]
        words += ["--main_process_ip", "$HEAD_NODE", "--main_process_port", "29500"]
    words += ["--mixed_precision", workload.precision.traits.launcher]
    words += _float8_words(judgement, workload)
    words += _compilation_words(workload)
    words += _strategy_words(judgement, workload, cluster)
    traits = judgement.family.strategy.traits
    steps = judgement.batch.accumulation_steps
    if workload.stack.traits.is_trainer:
        words += [script, *(_trainer_words(judgement, workload) if captured is None else ())]
    else:
        if steps > 1 and traits.uses_deepspeed:
            words += ["--gradient_accumulation_steps", str(steps)]
        words.append(script)
    # On a CPU `--cpu` starts a single process whatever is asked: the environment variable keeps all of them.
    start = "ACCELERATE_USE_CPU=true " if cluster.gpu.is_cpu else ""
    if steps > 1 and not workload.stack.traits.is_trainer and not traits.uses_deepspeed:
        # The launcher hands its own option for it to DeepSpeed alone (utils/launch.py: prepare_multi_gpu_env).
        start += f"ACCELERATE_GRADIENT_ACCUMULATION_STEPS={steps} "
    return start + allocates + " ".join(word if word.startswith("$") else shlex.quote(word) for word in words)


def _beyond_options(judgement: StepJudgement, workload: Workload, cluster: Cluster) -> bool:
    """Whether files or the runner are needed: for DeepSpeed's and the DataLoader's settings, for sharded CPU ranks, for
    a model that ranks compute together, which no option of a launcher spreads."""
    traits = judgement.family.strategy.traits
    if traits.spreads:
        return True
    if judgement.family.context_parallel > 1 and traits.uses_deepspeed:
        return True  # the launcher takes such words beside FSDP2 alone, files beside DeepSpeed too
    settings = dict(workload.settings)
    own = settings.keys() - {"zero.nvme_path"} if judgement.family.offload is Offload.NVME else settings.keys()
    sized = traits.uses_deepspeed and any(key.startswith("zero.") for key in own)
    # What was chosen for the run, such as the number of swap buffers, has no option of the launcher.
    sized = sized or any(value != SWAP_DEFAULTS.get(key) for key, value in judgement.plan.chosen)
    loaded = any(key in settings for key in DATA_LOADER_SETTINGS)
    return sized or loaded or (cluster.gpu.is_cpu and not traits.cpu_ranks)


def _float8_words(judgement: StepJudgement, workload: Workload) -> list[str]:
    if not workload.precision.is_float8:
        return []
    te = workload.setting("fp8.backend", "torchao") == "te"
    words = ["--fp8_backend", "te" if te else "ao"]
    if judgement.family.strategy.traits.engine is Engine.FSDP2 and not te:
        words += ["--fp8_enable_fsdp_float8_all_gather", workload.setting("fp8.all_gather", "true")]
        # On by default, and refused beside torchao (accelerator.py: Accelerator.__init__).
        words += ["--fsdp_cpu_ram_efficient_loading", "false"]
    return words


def _compilation_words(workload: Workload) -> list[str]:
    given = dict(workload.settings)
    if "compile.backend" not in given:
        return []
    words = ["--dynamo_backend", given["compile.backend"]]
    if "compile.mode" in given:
        words += ["--dynamo_mode", given["compile.mode"]]
    return [*words, *(["--dynamo_use_regional_compilation"] if given.get("compile.regional") == "true" else [])]


def _strategy_words(judgement: StepJudgement, workload: Workload, cluster: Cluster) -> list[str]:
    traits = judgement.family.strategy.traits
    words = list(traits.flags)
    # The launcher's flag checkpoints every wrapped layer in full; other ways are the script's, and a note says how.
    every = checkpoint_every(judgement.family.checkpointing, workload)
    full = judgement.family.checkpointing is Checkpointing.FULL and every == 1
    if traits.uses_deepspeed:
        return [*words, *_offload_words(judgement.family.offload, workload), *_clipping_words(workload)]
    if not traits.wraps_blocks:
        return words
    if traits.engine is Engine.FSDP2:
        words += ["--fsdp_reshard_after_forward", workload.setting("fsdp.reshard_after_forward", "true")]
    words += _wrap_words(judgement)
    if judgement.family.offload is Offload.ALL:
        words += ["--fsdp_offload_params", "true"]
    if full and not workload.stack.traits.is_trainer:
        words += ["--fsdp_activation_checkpointing", "true"]
        if workload.setting(ON_HOST, "false") == "true":
            words += ["--fsdp_activation_checkpointing_offload", "true"]
    replicas = (judgement.family.replicas or workload.dp_replicate or cluster.nodes) if traits.replicates else 1
    context = judgement.family.context_parallel
    if replicas > 1 or context > 1:
        words += ["--use_parallelism_config", "--parallelism_config_dp_replicate_size", str(replicas)]
        words += ["--parallelism_config_dp_shard_size", str(cluster.world_size // replicas // context)]
    if context > 1:
        words += ["--parallelism_config_cp_size", str(context)]
        words += ["--parallelism_config_cp_comm_strategy", workload.setting(ROTATION, ROTATIONS[0])]
    return words


def _clipping_words(workload: Workload) -> list[str]:
    """Without them DeepSpeed clips to 1.0, and with 0 as well: Accelerate leaves a 0 out (utils/dataclasses.py:
    DeepSpeedPlugin), and DeepSpeed's own default is 1.0. The Trainer says itself what it clips to."""
    if workload.stack.traits.is_trainer:
        return []
    return ["--gradient_clipping", str(workload.max_grad_norm or "inf")]


def _offload_words(offload: Offload, workload: Workload) -> list[str]:
    if offload is Offload.NONE:
        return []
    if offload is Offload.NVME:
        path = workload.setting("zero.nvme_path", NVME_PATH)
        words = ["--offload_optimizer_device", "nvme", "--offload_optimizer_nvme_path", path]
        return [*words, "--offload_param_device", "nvme", "--offload_param_nvme_path", path]
    words = ["--offload_optimizer_device", "cpu"]
    return [*words, "--offload_param_device", "cpu"] if offload is Offload.ALL else words


def wrapped_classes(judgement: StepJudgement) -> tuple[str, ...]:
    """The classes whose instances the plan counts as FSDP's units: accelerate does not find them in every model."""
    if not judgement.family.strategy.traits.wraps_blocks:
        return ()
    trace = judgement.plan.stream.trace
    left_out = set(blocks_around_embeddings(trace))
    named = zip(trace.layout.blocks, trace.layout.block_classes, strict=True)
    return tuple(dict.fromkeys(kind for block, kind in named if block not in left_out))


def _wrap_words(judgement: StepJudgement) -> list[str]:
    classes = wrapped_classes(judgement)
    return ["--fsdp_transformer_layer_cls_to_wrap", ",".join(classes)] if classes else []


def _trainer_words(judgement: StepJudgement, workload: Workload) -> list[str]:
    words = [
        "--per_device_train_batch_size",
        str(judgement.batch.micro_batch),
        "--gradient_accumulation_steps",
        str(judgement.batch.accumulation_steps),
    ]
    if workload.precision.is_mixed:
        words.append(f"--{workload.precision.traits.launcher}")
    words += liger_words(workload)
    given = dict(workload.settings)
    if "eval.batch" in given:
        words += ["--per_device_eval_batch_size", given["eval.batch"]]
    if "eval.accumulation_steps" in given:
        words += ["--eval_accumulation_steps", given["eval.accumulation_steps"]]
    if judgement.family.checkpointing is Checkpointing.FULL:
        words.append("--gradient_checkpointing")
        every = checkpoint_every(judgement.family.checkpointing, workload)
        asked: dict[str, object] = {"every_n_layers": every} if every > 1 else {}
        if given.get("checkpoint.reentrant") == "true":
            asked["use_reentrant"] = True
        if asked:
            words += ["--gradient_checkpointing_kwargs", json.dumps(asked)]
    return words
