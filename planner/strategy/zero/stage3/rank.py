"""ZeRO-3 on one rank: partitioned weights, gathered around the modules that use them.

Mirrors deepspeed/runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3 (_setup_for_real_optimizer,
_create_fp32_partitions, initialize_optimizer_states, __add_grad_to_ipg_bucket, __reduce_and_partition_ipg_grads,
partition_grads, step), runtime/comm/coalesced_collectives.py: reduce_scatter_coalesced, and
parameter_offload.py: setup_zero_stage3_hooks. Every rank holds partitions of the same, padded size, so rank 0 is
as bad as any. The model is taken to be built under deepspeed.zero.Init, as accelerate and transformers do.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.memory.optimizer.steps import LocalTensor, place_state, place_step
from gpu_plan.planner.memory.schedule import DEFAULT_STREAM
from gpu_plan.planner.memory.stream import Handle, Pass, Point, StreamBuilder, marks
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import RankContext, RankPlan, nbytes, place_buffers, place_workspaces
from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.strategy.zero import common
from gpu_plan.planner.strategy.zero.stage3.gather import GATHERED, PERSISTENT, Coordinator, Limits
from gpu_plan.planner.strategy.zero.stage3.host import optimizer_host_bytes, weights_host_bytes
from gpu_plan.planner.strategy.zero.stage3.leaves import leaf_parameters
from gpu_plan.planner.strategy.zero.stage3.nvme import Nvme, nvme_layout, nvme_notes
from gpu_plan.planner.strategy.zero.stage3.partition import holders, partition
from gpu_plan.planner.strategy.zero.stage3.queues import Queues
from gpu_plan.planner.strategy.zero.stage3.swap import SwapPool
from gpu_plan.planner.strategy.zero.stage3.told import Asked, Recorded, Recorder, Repeated, scripts
from gpu_plan.planner.strategy.zero.stage3.traffic import Traffic, collectives, gathering, reducing
from gpu_plan.planner.strategy.zero.stage3.views import (
    lookup_modules,
    module_events,
    packed_in_graph,
    recorded_exits,
    viewed_parameters,
)
from gpu_plan.planner.trace.events import Category, Kind, Mark

_NORM_CHUNK = 250_000_000
"""Elements per step of _constant_buffered_norm2."""
_QLORA = (
    "QLoRA needs bnb_4bit_quant_storage in the type of the computation; every rank loads the whole model first, and"
    " bitsandbytes' graph names each gathered 4-bit weight until the outputs are dropped: at the peak little is saved",
    "under checkpointing about one layer's packed weights are not counted",
)


class _Placed:
    """The coordinator's buffers, placed in a stream."""

    def __init__(self, builder: StreamBuilder, dtype: str, queues: Queues, ranks: int, *, from_host: bool) -> None:
        self._builder, self._dtype, self._queues, self._from_host = builder, dtype, queues, from_host
        self._ranks = ranks
        self._handles: list[Handle | None] = []
        self._recorded: set[int] = set()
        """Tickets of what the computing stream is recorded on when it is freed: parameters of the gathering stream."""

    def take(self, at: Point, elements: int, label: str) -> int:
        """What stays from a step on is gathered there, by the computing stream."""
        size, ticket = nbytes(elements, self._dtype), len(self._handles)
        pool = DEFAULT_STREAM if label == PERSISTENT else self._queues.gather_pool
        if label == GATHERED:
            self._recorded.add(ticket)
        self._handles.append(self._builder.alloc(at, size, Category.COMMUNICATION, label, cuda_stream=pool))
        return ticket

    def fetch(self, at: Point, elements: int) -> int:
        if self._from_host:
            return self.take(at, elements, "weight partition from host")
        self._handles.append(None)
        return len(self._handles) - 1

    def give(self, at: Point, ticket: int) -> None:
        handle = self._handles[ticket]
        if handle is not None:
            waits = self._queues.free_gathered() if ticket in self._recorded else None
            self._builder.free(at, handle, waits)

    def gather(self, at: Point, elements: int, parameters: int) -> None:
        del at
        self._queues.gather(nbytes(elements, self._dtype), gathering(parameters, self._ranks))

    def limit(self, at: Point) -> None:
        self._queues.limit(self._builder.moment(at))

    def use(self, at: Point, landed: int) -> None:
        del at
        self._queues.use(landed)


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
        self.queues = Queues(overlaps=self.config.overlap)
        self.coordinator = self._asked()
        self.lookups = lookup_modules(context.trace)
        self.leaves = leaf_parameters(context.trace)
        self.delayed = frozenset(index for indices in self.leaves.values() for index in indices)
        self.recorded = recorded_exits(context.trace)
        self.last_entered = int(np.flatnonzero(context.trace.kind == Kind.BACKWARD_ENTER)[-1:].sum())
        self.bucket: list[int] = []
        self.bucket_elements = 0
        self.reduced: Counter[tuple[int, int]] = Counter()
        self.rests: list[Handle] = []
        self.kernels = np.cumsum(context.trace.kind == Kind.OPERATOR)
        """Kernels launched up to each event of a pass."""

    def _nvme(self) -> Nvme:
        return nvme_layout(self.context, self.config, self.parts, self.dtype)

    def _asked(self) -> Asked:
        """Who says what is gathered: where another rank asked the same, as it was told."""
        context, parts = self.context, self.parts
        ranks = context.world_size
        storage = _Placed(self.builder, self.dtype, self.queues, ranks, from_host=self.weights_on_host)
        limits = Limits(
            prefetch=self.config.prefetch,
            max_live=self.config.max_live,
            max_reuse=self.config.max_reuse,
            world_size=context.world_size,
        )
        self.script = (
            parts.numel,
            parts.persistent,
            limits,
            len(self.builder.passes),
            context.stack.traits.is_trainer,
            context.world_size == 1 and self.weights_on_host,
        )
        known = scripts(context.trace).get(self.script) if self.nvme is None else None
        if known is not None:
            return Repeated(known, storage)
        recorder = Recorder(storage)
        coordinator: Coordinator[Point] = Coordinator(
            numel=parts.numel,
            owned=holders(context.trace),
            persistent=parts.persistent,
            limits=limits,
            storage=recorder,
            on_host=self.weights_on_host,
            pool=self.pool,
            viewed=viewed_parameters(context.trace),
            in_graph=packed_in_graph(context.trace),
        )
        return coordinator if self.nvme is not None else Recorded(coordinator, recorder)

    def plan(self) -> RankPlan:
        self._load()
        place_workspaces(self.builder, self.context.capability)
        for in_pass in self.builder.passes:
            self._run(in_pass)
            if in_pass.last and self.parts.trainable:
                self._step(in_pass.iteration)
        if isinstance(self.coordinator, Recorded):
            scripts(self.context.trace)[self.script] = self.coordinator.script()
        return RankPlan(
            stream=self.builder.build(self.queues.streams),
            host_bytes=self._host_bytes(),
            nvme_bytes=self.nvme.disk_bytes if self.nvme is not None else 0,
            chosen=self._chosen(),
            collectives=self._collectives(),
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
        weights = nbytes(parts.owned, self.dtype)
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
            builder.alloc(builder.at_load(), weights, Category.GRADIENTS, "gradient partitions")
        if self.context.world_size > 1 or self.weights_on_host:
            whole = nbytes(max(parts.numel[index] for index in parts.trainable), self.dtype)
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

    # -- forward and backward --------------------------------------------------------------------------------

    def _run(self, in_pass: Pass) -> None:
        trace, builder, coordinator = self.context.trace, self.builder, self.coordinator
        start = builder.at_mark(in_pass, Mark.FORWARD)
        self.queues.begin(builder.moment(start))
        coordinator.begin(start)
        self.reduced.clear()
        # The hook that releases after backward hangs on a module's inputs: it never runs where none has a gradient,
        # as token ids have none, and in what runs backward last.
        last_entered = self.last_entered
        backward_begins = marks(trace)[Mark.BACKWARD]
        root_entered, bound = False, self._lets_go(in_pass)
        places = module_events(trace)
        kinds, subjects = trace.kind[places].tolist(), trace.subject[places].tolist()
        before = builder.passes.index(in_pass) * int(self.kernels[-1]) if len(self.kernels) else 0
        launches = (before + self.kernels[places]).tolist()
        gradient, enter, leave, backward = int(Kind.GRADIENT), int(Kind.ENTER), int(Kind.EXIT), int(Kind.BACKWARD_ENTER)
        for position, kind, subject, launched in zip(places.tolist(), kinds, subjects, launches, strict=True):
            if position > bound:
                coordinator.drop_graphs(builder.at_mark(in_pass, Mark.OUTPUTS_BOUND), but=1)
                bound = trace.num_events
            if kind == backward and not root_entered:
                # Backward of the outputs enters the root first, of which traces, as of nothing to be gathered, say no
                # more.
                coordinator.fetch(builder.after(in_pass, position), 0, backward=True)
                root_entered = True
            at = builder.after(in_pass, position)
            self.queues.launched(launched, builder.moment(at))
            if kind == gradient and position != builder.gradient_event(subject):
                continue  # A loss that caches gradients runs several backward passes: the last one completes it.
            if kind == gradient:
                coordinator.forget_view(at, subject)
                if subject not in self.delayed:
                    self._arrive(at, in_pass, subject)
            elif kind == enter:
                coordinator.fetch(at, subject, backward=False)
            elif kind == leave:
                coordinator.release(
                    at,
                    subject,
                    backward=False,
                    recorded=position in self.recorded,
                    recomputed=position > backward_begins,
                )
            elif kind == backward:
                coordinator.fetch(at, subject, backward=True)
            elif subject in self.leaves:
                for parameter in self.leaves[subject]:
                    self._arrive(at, in_pass, parameter)
                coordinator.release(at, subject, backward=True)
            elif position < last_entered and subject not in self.lookups:
                coordinator.release(at, subject, backward=True)
        end = builder.at_mark(in_pass, Mark.BACKWARD_END)
        self._reduce(end, in_pass)
        self.queues.end_backward(builder.moment(end))
        coordinator.finish_backward(end)
        if self.context.stack.traits.is_trainer:
            coordinator.drop_graphs(end, but=0)

    def _lets_go(self, in_pass: Pass) -> int:
        """Event after which the pass before is forgotten; the Trainer forgets it when backward has ended."""
        trace = self.context.trace
        return trace.num_events if self.context.stack.traits.is_trainer else marks(trace)[Mark.OUTPUTS_BOUND]

    def _arrive(self, at: Point, in_pass: Pass, parameter: int) -> None:
        if not self.context.trace.parameters[parameter].trainable:
            return
        numel = self.parts.numel[parameter]
        if self.bucket and self.bucket_elements + numel > self.config.reduce_bucket:
            self._reduce(at, in_pass)
        if numel <= self.config.reduce_bucket:
            self.builder.free_gradient(at, in_pass, parameter, self.queues.copy_gradient())
        else:
            self.queues.hold_gradient()
        self.bucket.append(parameter)
        self.bucket_elements += numel

    def _reduce(self, at: Point, in_pass: Pass) -> None:
        """Partitions are interleaved into a new buffer, unless one evenly divided gradient is reduced in place."""
        if not self.bucket:
            return
        builder, world = self.builder, self.context.world_size
        elements = sum(self.parts.share[index] for index in self.bucket) * world
        self.queues.reduce(builder.moment(at), nbytes(elements, self.dtype), reducing(len(self.bucket), world))
        self.reduced[elements, len(self.bucket)] += 1
        copy = None
        if len(self.bucket) > 1 or elements != self.bucket_elements:
            size = nbytes(elements, self.dtype)
            label, pool = "reduce-scatter input", self.queues.reduce_pool
            copy = builder.alloc(at, size, Category.COMMUNICATION, label, cuda_stream=pool)
        files: list[Handle] = []
        for parameter in self.bucket:
            if self.offload:
                files += self._to_host(at, parameter, in_pass.last)
            if self.parts.numel[parameter] > self.config.reduce_bucket:
                builder.free_gradient(at, in_pass, parameter, self.queues.free_reduced())
        for handle in files:
            builder.free(at, handle)
        if copy is not None:
            builder.free(at, copy)
        self.bucket, self.bucket_elements = [], 0

    def _to_host(self, at: Point, parameter: int, boundary: bool) -> list[Handle]:
        """partition_grads and _offload_grad_partition_at_boundary: there and back, norm, fp32 copy.

        Returns fp32 partitions that wait for the whole bucket: those of a group that swaps go to NVMe together
        (_swap_out_offload_fp32_gradients). One of which a piece gets no file stays on the device until the step
        (swap_tensor/optimizer_utils.py: _swap_out_gradients keeps the piece, a view of it).
        """
        builder, share, pool = self.builder, self.parts.share[parameter], self.queues.reduce_pool
        size = nbytes(share, self.dtype)
        back = builder.alloc(at, size, Category.GRADIENTS, "gradient partition back from host", cuda_stream=pool)
        file = self.nvme.gradients[parameter] if self.nvme is not None and boundary else None
        kept: Handle | None = None
        if boundary:
            norm = nbytes(min(share, _NORM_CHUNK), common.NORM)
            builder.transient(at, norm, Category.TEMPORARY, "gradient norm in fp64", cuda_stream=pool)
            size = nbytes(share, common.MASTER)
            wide = self.dtype != common.MASTER
            if file is not None:
                label = "fp32 gradient on its way to NVMe"
                kept = builder.alloc(at, size, Category.GRADIENTS, label, cuda_stream=pool) if wide else back
            elif wide:
                builder.transient(at, size, Category.TEMPORARY, "gradient in fp32 on its way to host", cuda_stream=pool)
        if kept is not back:
            builder.free(at, back)
        if kept is None or file is None:
            return []
        if file.stays:
            self.rests.append(kept)
            return []
        return [kept]

    # -- step ----------------------------------------------------------------------------------------------

    def _step(self, iteration: int) -> None:
        builder, parts = self.builder, self.parts
        self.coordinator.begin_step(builder.at_step(iteration))
        if not self.offload:
            norm = nbytes(max(parts.share[index] for index in parts.trainable), common.NORM)
            builder.transient(builder.at_step(iteration), norm, Category.TEMPORARY, "gradient norm in fp64")
            for number, group in enumerate(parts.sub_groups):
                self._step_sub_group(iteration, number, group)
        for handle in self.rests:
            builder.free(builder.at_step(iteration), handle)
        self.rests.clear()
        self.coordinator.end_step(builder.at_step(iteration))

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

    def _collectives(self) -> tuple[Collective, ...]:
        return collectives(
            Traffic(
                parts=self.parts,
                config=self.config,
                dtype=self.dtype,
                world_size=self.context.world_size,
                gathers=self.coordinator.gathers,
                reduced=self.reduced,
                offload=self.offload,
                weights_on_host=self.weights_on_host,
                nvme=self.nvme,
            )
        )
