"""Ports, names, interfaces, and what the environment says of them."""

from gpu_plan.executor.doctor.finding import Finding
from gpu_plan.executor.doctor.machine.check import Check, found, problem, unknown
from gpu_plan.executor.doctor.machine.facts import MachineFacts
from gpu_plan.executor.doctor.machine.need import Need

_SOCKET_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SLOW = {
    "NCCL_P2P_DISABLE": "GPUs talk through the host instead of NVLink or PCIe",
    "NCCL_SHM_DISABLE": "GPUs of one machine talk through sockets",
    "NCCL_IB_DISABLE": "machines talk over TCP instead of InfiniBand",
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for: several times slower",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL checks every collective with another one",
    "TORCH_SHOW_CPP_STACKTRACES": "",
}


def ports(facts: MachineFacts, need: Need) -> Check:
    """Ranks meet on a port of the first machine."""
    if facts.busy_ports is None:
        return unknown("ports", "sockets cannot be made here")
    findings = list[Finding]()
    if facts.loopback is False:
        what = "no socket can be bound on 127.0.0.1"
        fix = "bring the loopback interface up, or allow sockets in this container"
        findings.append(problem("ports", "error", what, "ranks of this machine cannot meet", fix, place="127.0.0.1"))
    for port in facts.busy_ports:
        what = f"port {port} is in use"
        why = "a launcher that is not told another port fails there (29500 is its default)"
        fix = "end what listens there, or give --main_process_port 0"
        findings.append(problem("ports", "note", what, why, fix, place=f"port {port}"))
    free = [str(port) for port in facts.asked_ports if port not in facts.busy_ports]
    return found("ports", f"free: {', '.join(free) or 'none of those asked for'}", *findings)


def host_name(facts: MachineFacts, need: Need) -> Check:
    """gloo looks its own machine up by name."""
    if facts.host_resolves is None:
        return unknown("host-name", "the machine's name cannot be looked up")
    if not facts.host_resolves:
        what = "this machine's own name leads to no address"
        why = "gloo and the rendezvous look it up: they fail or wait for a minute"
        fix = "add the name to /etc/hosts, or set GLOO_SOCKET_IFNAME"
        severe = need.nodes > 1
        return found("host-name", what, problem("host-name", "error" if severe else "warning", what, why, fix))
    return found("host-name", "leads to an address")


def interfaces(facts: MachineFacts, need: Need) -> Check:
    """A variable that names an interface which is not there stops NCCL and gloo."""
    if facts.interfaces is None:
        return unknown("interfaces", "network interfaces cannot be listed")
    findings = list[Finding]()
    for name in _SOCKET_VARIABLES:
        given = facts.environment.get(name)
        if given is None or given.startswith("^"):
            continue
        wanted = [part.lstrip("=").partition(":")[0] for part in given.split(",") if part.strip()]
        if not any(have.startswith(part) for part in wanted for have in facts.interfaces):
            what = f"{name}={given}, and there is no such interface (there are {', '.join(facts.interfaces)})"
            why = "the process group cannot be made"
            findings.append(
                problem("interfaces", "error", what, why, f"unset {name}, or name one that is up", place=name)
            )
    if need.nodes > 1 and not [name for name in facts.interfaces if name != "lo"]:
        what = "only the loopback interface is up"
        findings.append(problem("interfaces", "error", what, "other machines cannot be reached", "bring a network up"))
    return found("interfaces", ", ".join(facts.interfaces) or "none", *findings)


def leftovers(facts: MachineFacts, need: Need) -> Check:
    """Variables of an earlier launch, of debugging, of a proxy."""
    environment = facts.environment
    findings = list[Finding]()
    ranks = [name for name in _RANK_VARIABLES if name in environment]
    if ranks:
        what = f"{', '.join(ranks)} set in this shell"
        why = "a process started by hand takes itself for one rank of a job and waits for the others"
        findings.append(problem("leftovers", "error", what, why, f"unset {' '.join(ranks)}", place="environment"))
    meeting = [name for name in _MEETING if name in environment]
    if meeting:
        what = f"{', '.join(meeting)} set in this shell"
        why = "ranks may try to meet at an address of an earlier job"
        findings.append(problem("leftovers", "warning", what, why, f"unset {' '.join(meeting)}", place="environment"))
    applied = [name for name in environment if name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"))]
    if applied:
        what = f"{', '.join(sorted(applied))} set in this shell"
        why = "Accelerate takes it before what the launch file says: another strategy or precision may run"
        findings.append(
            problem("leftovers", "warning", what, why, f"unset {' '.join(sorted(applied))}", place="environment")
        )
    for name, effect in _SLOW.items():
        value = environment.get(name, "0")
        on = value.upper() == "DETAIL" if name == "TORCH_DISTRIBUTED_DEBUG" else value not in {"0", ""}
        if effect and on:
            findings.append(problem("leftovers", "warning", f"{name}={value}", effect, f"unset {name}", place=name))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip(" ,-1") and visible.strip() in {"", "-1"} and not need.on_cpu:
        what = f"CUDA_VISIBLE_DEVICES={visible!r}"
        findings.append(
            problem("leftovers", "warning", what, "no GPU is visible", "unset it", place="CUDA_VISIBLE_DEVICES")
        )
    proxies = [name for name in _PROXIES if name in environment]
    spared = environment.get("no_proxy", "") + environment.get("NO_PROXY", "")
    if proxies and not any(word in spared for word in ("localhost", "127.0.0.1", "*")):
        what = f"{', '.join(proxies)} set, and no_proxy does not spare this machine"
        why = "trackers and servers on this machine are asked through the proxy"
        findings.append(
            problem("leftovers", "note", what, why, "export no_proxy=localhost,127.0.0.1", place="environment")
        )
    return found("leftovers", "none" if not findings else f"{len(findings)}", *findings)
