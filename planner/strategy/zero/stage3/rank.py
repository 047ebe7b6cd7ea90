"""ZeRO-3 on one rank: partitioned weights, gathered around the modules that use them.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 (_setup_for_real_optimizer,
_create_fp32_partitions, initialize_optimizer_states, __add_grad_to_ipg_bucket, __reduce_and_partition_ipg_grads,
partition_grads, step), runtime/comm/coalesced_collectives.py: reduce_scatter_coalesced, and
parameter_offload.py: setup_zero_stage3_hooks. Every rank holds partitions of the same, padded size, so rank 0 is
as bad as any. The model is taken to be built under deepspeed.zero.Init, as accelerate and transformers do.
"""

from collections.abc import Iterator, Sequence

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.memory.optimizer.steps import LocalTensor, place_state, place_step
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan, nbytes, place_buffers, place_workspaces
from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero import common
from gpu_plan.planner.strategy.zero.stage3.hooks.acts import Acts, Held
from gpu_plan.planner.strategy.zero.stage3.hooks.script import Script
from gpu_plan.planner.strategy.zero.stage3.hooks.walk import Walked, script_of, walking
from gpu_plan.planner.strategy.zero.stage3.host import optimizer_host_bytes, weights_host_bytes
from gpu_plan.planner.strategy.zero.stage3.nvme import Nvme, nvme_layout, nvme_notes
from gpu_plan.planner.strategy.zero.stage3.partition import partition
from gpu_plan.planner.strategy.zero.stage3.swap import SwapPool
from gpu_plan.planner.strategy.zero.stage3.traffic import Traffic, collectives
from gpu_plan.planner.trace.events import Category

_QLORA = (
    "QLoRA needs bnb_4bit_quant_storage in the type of the computation; every rank loads the whole model first, and"
    " bitsandbytes' graph names each gathered 4-bit weight until the outputs are dropped: at the peak little is saved",
    "under checkpointing about one layer's packed weights are not counted",
)


class Stage3:
    """One rank; `buffers` is how many swap buffers parameters on NVMe pass through."""

    def __init__(self, context: RankContext, buffers: int = 0) -> None:
        self.context = context
        self.offload = context.offload is not Offload.NONE
        self.config = common.zero_config(context, 3)
        self.dtype = common.model_dtype(context.precision)
        self.builder = StreamBuilder(context.trace, context.accumulation_steps)
        self.parts = partition(context, self.config)
        self.nvme = self._nvme() if context.offload is Offload.NVME else None
        self.buffers = buffers if self.nvme is not None and self.nvme.buffer_elements else 0
        self.weights_on_host = context.offload is Offload.ALL or (
            self.nvme is not None and context.setting("zero.offload_param", "nvme") != "none"
        )
        self.pool = (
            SwapPool(swapped=self.nvme.swapped, buffers=self.buffers) if self.nvme and self.nvme.swapped else None
        )

    def _nvme(self) -> Nvme:
        return nvme_layout(self.context, self.config, self.parts, self.dtype)

    def _walked(self) -> Walked:
        return Walked(
            context=self.context,
            config=self.config,
            parts=self.parts,
            dtype=self.dtype,
            builder=self.builder,
            weights_on_host=self.weights_on_host,
            pool=self.pool,
        )

    def _held(self) -> Held:
        return Held(
            parts=self.parts,
            dtype=self.dtype,
            ranks=self.context.world_size,
            overlaps=self.config.overlap,
            offload=self.offload,
            weights_on_host=self.weights_on_host,
            nvme=self.nvme,
        )

    def walking(self) -> Iterator[None]:
        """The way of its hooks along the step, before anybody asks. Raises SwapError as `plan`."""
        return walking(self._walked())

    def plan(self) -> RankPlan:
        self._load()
        place_workspaces(self.builder, self.context.capability)
        script = script_of(self._walked())
        acts = Acts(script, self._held(), self.builder)
        for in_pass in self.builder.passes:
            acts.run(in_pass)
            if in_pass.last and self.parts.trainable:
                self._step(in_pass, acts)
        acts.settle()
        return RankPlan(
            stream=self.builder.build(script.streams),
            host_bytes=self._host_bytes(),
            nvme_bytes=self.nvme.disk_bytes if self.nvme is not None else 0,
            chosen=self._chosen(),
            collectives=self._collectives(script),
            optimizer_work=optimizer_work(
                self.context.optimizer,
                self.parts.owned,
                4,
                on_host=self.offload,
                clipping=self.context.clipping,
                flat=self.dtype != common.MASTER,
            ),
            notes=(
                *common.notes(self.context, self.config),
                *(_QLORA if self.context.peft.quantises else ()),
                *(() if self.nvme is None else nvme_notes(self.context, self.nvme, self.buffers)),
                "all ranks hold equal, padded partitions: rank 0 is shown",
            ),
        )

    # -- load ----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        builder, parts = self.builder, self.parts
        gradients, weights = nbytes(parts.owned, self.dtype), nbytes(parts.stored, self.dtype)
        loaded = self._whole_model() if self.context.peft.quantises else ()
        if not self.weights_on_host:
            self._place_frozen(loaded)
        else:
            builder.free_each(builder.at_load(), loaded)
        place_buffers(builder)
        if not parts.trainable:
            # deepspeed runtime/engine.py: _configure_zero_optimizer, without an optimizer: DeepSpeedZeRoOffload alone.
            return
        if not self.weights_on_host:
            builder.alloc(builder.at_load(), weights, Category.PARAMETERS, "weight partitions")
            for number, group in enumerate(parts.sub_groups if not self.offload else ()):
                self._master(number, nbytes(parts.sub_group_share(group), common.MASTER))
        if not self.offload:
            largest = max(parts.sub_group_share(group) for group in parts.sub_groups)
            size = nbytes(largest, common.MASTER)
            builder.transient(builder.at_load(), size, Category.GRADIENTS, "zero gradient at start")
        bucket = nbytes(self.config.reduce_bucket, self.dtype)
        builder.alloc(builder.at_load(), bucket, Category.COMMUNICATION, "ZeRO reduce bucket")
        if not self.offload:
            builder.alloc(builder.at_load(), gradients, Category.GRADIENTS, "gradient partitions")
        if self.context.world_size > 1 or self.weights_on_host:
            whole = nbytes(max(parts.numel[index] * parts.scaled(index) for index in parts.trainable), self.dtype)
            builder.transient(builder.at_load(), whole, Category.COMMUNICATION, "weight gathered to hook its gradient")

    def _place_frozen(self, whole: Sequence[Handle]) -> None:
        """Partitions of what is not trained, outside of the flat buffers; each takes the place of the whole."""
        builder = self.builder
        for index, parameter in enumerate(self.context.trace.parameters):
            if not parameter.trainable:
                size = nbytes(self.parts.share[index], self.dtype)
                builder.alloc(builder.at_load(), size, Category.PARAMETERS, "weight", parameter.name)
            if whole:
                builder.free(builder.at_load(), whole[index])

    def _whole_model(self) -> tuple[Handle, ...]:
        """A quantised model is loaded onto every rank's device, and partitioned by deepspeed.initialize alone.

        transformers modeling_utils.py: get_init_context has no zero.Init for it; peft utils/other.py:
        prepare_model_for_kbit_training has made fp32 of what is not quantised.
        """
        sizes = [
            nbytes(p.numel, common.MASTER if is_floating(p.dtype) else p.dtype) for p in self.context.trace.parameters
        ]
        at = self.builder.at_load()
        return self.builder.alloc_each(at, sizes, Category.PARAMETERS, "weight before it is partitioned")

    def _master(self, number: int, size: int) -> None:
        """fp32 partition of a sub-group: converted, then cloned; under offload both on the host.

        A copy to the host that changes the type does that there (pytorch aten/src/ATen/native/cuda/Copy.cu:
        copy_kernel_cuda).
        """
        builder = self.builder
        converted = builder.alloc(builder.at_load(), size, Category.PARAMETERS, "weights converted to fp32")
        builder.alloc(builder.at_load(), size, Category.PARAMETERS, f"fp32 weights, sub-group {number}")
        builder.free(builder.at_load(), converted)

    # -- step ----------------------------------------------------------------------------------------------

    def _step(self, in_pass: Pass, acts: Acts) -> None:
        builder, parts, iteration = self.builder, self.parts, in_pass.iteration
        acts.run(in_pass, builder.at_step(iteration))
        if not self.offload:
            norm = nbytes(max(parts.share[index] for index in parts.trainable), common.NORM)
            builder.transient(builder.at_step(iteration), norm, Category.TEMPORARY, "gradient norm in fp64")
            for number, group in enumerate(parts.sub_groups):
                self._step_sub_group(iteration, number, group)
        for handle in acts.rests():
            builder.free(builder.at_step(iteration), handle)
        acts.run(in_pass, builder.at_step(iteration))

    def _step_sub_group(self, iteration: int, number: int, group: tuple[int, ...]) -> None:
        builder, numel = self.builder, self.parts.sub_group_share(group)
        gradient = None
        if len(group) > 1:
            size = nbytes(numel, self.dtype)
            gradient = builder.alloc(builder.at_step(iteration), size, Category.GRADIENTS, "flat gradient partition")
        if self.dtype != common.MASTER:
            flat, size = gradient, nbytes(numel, common.MASTER)
            gradient = builder.alloc(builder.at_step(iteration), size, Category.GRADIENTS, "fp32 gradient partition")
            if flat is not None:
                builder.free(builder.at_step(iteration), flat)
        master = [LocalTensor(name=f"sub-group {number}", numel=numel, dtype=common.MASTER)]
        if iteration == 0:
            place_state(builder, self.context.optimizer, master)
        place_step(builder, iteration, self.context.optimizer, master)
        if gradient is not None:
            builder.free(builder.at_step(iteration), gradient)

    # -- the rest ------------------------------------------------------------------------------------------

    def _host_bytes(self) -> int:
        if not self.offload:
            return 0
        parts, pinned = self.parts, self.config.pin_memory
        if self.nvme is not None:
            return self.nvme.host_bytes + self.nvme.buffers_bytes(self.buffers, self.dtype)
        taken = optimizer_host_bytes(parts, self.dtype, pinned)
        if self.weights_on_host:
            taken += weights_host_bytes(parts, common.optimizer_groups(self.context), self.dtype, pinned)
        return taken

    def _chosen(self) -> tuple[tuple[str, str], ...]:
        """What the run needs to be told, for DeepSpeed's own values end it."""
        if self.nvme is None or not self.buffers:
            return ()
        return (
            ("zero.param_buffer_count", str(self.buffers)),
            ("zero.param_buffer_size", str(self.nvme.buffer_elements)),
        )

    def _collectives(self, script: Script) -> tuple[Collective, ...]:
        return collectives(
            Traffic(
                parts=self.parts,
                config=self.config,
                dtype=self.dtype,
                world_size=self.context.world_size,
                gathers=script.gathers,
                reduced=script.reduced,
                offload=self.offload,
                weights_on_host=self.weights_on_host,
                nvme=self.nvme,
            )
        )
