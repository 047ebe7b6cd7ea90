"""What one way to run a generation takes and gives."""

from dataclasses import dataclass, field

from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.plan.inference import Placement
from gpu_plan.planner.search.generation.times import PassTimes
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.strategy.generation.layout import Layout
from gpu_plan.planner.trace.events import IntArray

_OFFLOADING = 100
"""More than that of any layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationJudgement(Judgement):
    """What one candidate takes and gives."""

    layout: Layout
    context: int
    batch: int
    """Samples of one replica."""
    prompt: int
    """Tokens of the prompt of one sample; of an encoder-decoder, of the encoder's input."""
    run: RankStream
    """What the device allocates and frees while it loads, prefills and decodes."""
    weight_bytes: int
    kv_cache_bytes: int
    new_tokens: int
    times: PassTimes
    placement: Placement | None = None
    cpu_bytes: int = 0
    """RAM for weights that are offloaded."""
    disk_bytes: int = 0
    rests_on: tuple[str, ...] = ()
    """Notes on how it runs."""
    blocks: IntArray | None = field(default=None, compare=False, repr=False)
    """Bytes that the allocator charges for each storage of the stream; None where it was not simulated."""

    @property
    def title(self) -> str:
        return self.layout.title

    @property
    def moving_parts(self) -> int:
        return self.layout.moving_parts + (_OFFLOADING if self.offloads else 0)

    @property
    def offloads(self) -> bool:
        return bool(self.cpu_bytes or self.disk_bytes)

    @property
    def kept_host_bytes(self) -> int:
        return self.cpu_bytes

    @property
    def seconds(self) -> tuple[float, ...]:
        one = 1 / self.samples_per_second
        corners = self._corners
        return (one, *(seconds / self.samples for seconds in corners))

    @property
    def _corners(self) -> tuple[float, ...]:
        prefill, decode = self.times.prefill.corners, self.times.decode.corners
        if prefill is None or decode is None:
            return ()
        return tuple(first + (self.new_tokens - 1) * each for first, each in zip(prefill(), decode(), strict=True))

    @property
    def stream(self) -> RankStream:
        return self.run

    @property
    def replayed(self) -> int:
        return 1  # a generation's trace holds its own batch

    @property
    def notes(self) -> tuple[str, ...]:
        return self.rests_on

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds_per_sample

    @property
    def peak_words(self) -> str:
        return f" in {self.profile.phase_of_peak}"

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens of all replicas."""
        return self.samples * self.prompt / self.times.prefill.step_seconds

    @property
    def decode_tokens_per_second(self) -> float:
        """New tokens of all replicas, at full context."""
        return self.samples / self.times.decode.step_seconds

    @property
    def seconds_per_sample(self) -> float:
        """Of one batch from prompt to last token; every decode step is counted as the one at full context."""
        return self.times.prefill.step_seconds + (self.new_tokens - 1) * self.times.decode.step_seconds

    @property
    def samples(self) -> int:
        """Of all replicas together."""
        return self.batch * self.layout.data_parallel

    def phase_peak(self, phase: Phase) -> int:
        """Most allocated in a phase."""
        return self.profile.phase_peaks.get(phase, 0)
