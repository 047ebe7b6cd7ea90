"""Words of what is wanted, as values; and the cluster that they settle."""

from collections.abc import Mapping
from dataclasses import replace

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.gpu import Price
from gpu_plan.planner.options.values import choice
from gpu_plan.planner.options.wishes.amounts import count, dollars, span, times
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import GIB, parse_bytes
from gpu_plan.planner.workload.prefer import Prefer


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is wanted."""

    prefer: Prefer = Prefer.BALANCE
    host_ram_bytes: int | None = None
    host_nvme_bytes: int | None = None
    """Of the disks of a node."""
    price: float | None = None
    """Dollars for one device and hour."""
    tokens: int | None = None
    """Of the whole job."""
    budget: float | None = None
    """Dollars for the whole job."""
    deadline_seconds: float | None = None


def read_wishes(words: Mapping[str, str]) -> Wishes:
    """UsageError in one line for what makes no sense."""
    price = words.get("price")
    wishes = Wishes(
        prefer=choice(Prefer, words.get("prefer"), "--prefer") or Prefer.BALANCE,
        host_ram_bytes=_size(words.get("host-ram"), "--host-ram", "RAM", "256GiB"),
        host_nvme_bytes=_size(words.get("host-nvme"), "--host-nvme", "a disk", "1TB"),
        price=None if price is None else dollars(price, "--price"),
        tokens=_tokens(words),
        budget=None if "budget" not in words else dollars(words["budget"], "--budget"),
        deadline_seconds=None if "deadline" not in words else span(words["deadline"], "--deadline"),
    )
    if (wishes.budget is not None or wishes.deadline_seconds is not None) and wishes.tokens is None:
        raise UsageError("--budget and --deadline are about a whole job: add --tokens, or --epochs --dataset-tokens")
    return wishes


def settled(cluster: Cluster, wishes: Wishes) -> Cluster:
    """The cluster with the RAM, the disk and the price that were given. UsageError where a CPU's RAM is given."""
    if wishes.host_ram_bytes is not None:
        if cluster.gpu.is_cpu:
            raise UsageError("--host-ram is about nodes with GPUs: the RAM of --gpus cpu is this machine's")
        cluster = replace(cluster, host_ram_bytes=wishes.host_ram_bytes)
    if wishes.host_nvme_bytes is not None:
        cluster = replace(cluster, nvme_bytes=wishes.host_nvme_bytes)
    if wishes.price is not None:
        given = Price(usd_per_hour=wishes.price, provider="--price", date="given", source="--price")
        cluster = replace(cluster, price=given)
    return cluster


def _size(text: str | None, option: str, what: str, example: str) -> int | None:
    """Bytes of something of a node, half a GiB at least."""
    if text is None:
        return None
    try:
        size = parse_bytes(text)
    except InputError:
        size = 0
    if size < GIB // 2:
        meant = f"{text.strip()}GiB" if text.strip().isdigit() else example
        raise UsageError(f"{option} {text[:40]!r} is not a size of {what}: write it like {meant[:20]}")
    return size


def _tokens(words: Mapping[str, str]) -> int | None:
    """Of the whole job, given at once or as passes over a data set."""
    whole, passes, each = words.get("tokens"), words.get("epochs"), words.get("dataset-tokens")
    if whole is not None and (passes is not None or each is not None):
        raise UsageError("--tokens and --epochs x --dataset-tokens say the same: keep one")
    if whole is not None:
        return count(whole, "--tokens")
    if passes is not None and each is None:
        raise UsageError("--epochs needs --dataset-tokens: how many tokens one pass reads")
    if each is None:
        return None
    return round(count(each, "--dataset-tokens") * (1.0 if passes is None else times(passes, "--epochs")))
