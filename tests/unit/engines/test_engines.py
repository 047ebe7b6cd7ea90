"""Engines without one: settings, submit files, states, facts, bad input."""

import shlex
import subprocess
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.doctor.machine import findings_of
from gpu_plan.executor.engines.engine import Settings, Shape
from gpu_plan.executor.engines.kinds.slurm import ENGINE, parse_state
from gpu_plan.executor.engines.preflight.collect import judge
from gpu_plan.executor.engines.preflight.node import Said
from gpu_plan.executor.engines.preflight.node import main as look_at_node
from gpu_plan.executor.engines.registry import ENGINES, engine_of_setting, find
from gpu_plan.executor.engines.settings import read_settings
from gpu_plan.executor.records.run import Attempt, RunRecord
from gpu_plan.executor.supervise.decide import decide
from gpu_plan.executor.supervise.ledger import taken_up
from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.hardware.engines.nodes import Node, cluster_from
from gpu_plan.planner.hardware.engines.slurm import parse_line
from gpu_plan.planner.plan.files import save
from tests.support.launch_plans import saved

SHAPE = Shape(name="train", nodes=2, ranks_per_node=8, gpu="H100")


def test_engines_are_found_by_name():
    for name in ENGINES:
        assert find(name, "--to").name == name
    assert find("kubernetes", "--to").name == "kubeflow"
    with pytest.raises(UsageError, match="Did you mean slurm"):
        find("slrum", "--to")
    assert engine_of_setting("slurm.time=1") == "slurm"
    assert engine_of_setting("zero.overlap_comm=true") is None


def test_the_command_line_wins_over_the_configuration():
    table = {
        "account": "lab",
        "partition": "cpu",
        "setup": ["module load x", "y"],
        "env": {"A": "1"},
        "exclusive": True,
    }
    found = read_settings(ENGINE, ["slurm.partition=gpu", "slurm.env.B=2 3"], {"time": "10"}, table, "plan.toml")
    assert found.values == {"account": "lab", "partition": "gpu", "exclusive": "true", "time": "10"}
    assert (found.setup, found.environment) == (("module load x", "y"), {"A": "1", "B": "2 3"})
    assert read_settings(ENGINE, ["slurm.setup=z"], {}, table).setup == ("z",)


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        (["slurm.partitoin=x"], {}, "Did you mean partition"),
        (["slurm.partition"], {}, "write slurm.partition=VALUE"),
        (["slurm.partition=a", "slurm.partition=b"], {}, "given 2 times"),
        (["slurm.partition=a"], {"partition": "b"}, "say the same"),
        (["slurm.exclusive=yes"], {}, "true or false"),
        (["slurm.account=a\n#SBATCH --uid=0"], {}, "line break"),
        (["slurm.account= "], {}, "is empty"),
        (["slurm.env.A-B=1"], {}, "not the name of a variable"),
    ],
)
def test_what_makes_no_sense_is_one_line(words, options, said):
    with pytest.raises(UsageError, match=said):
        read_settings(ENGINE, words, options)
    with pytest.raises(InputError, match=r"plan.toml: \[engines.slurm\]"):
        read_settings(ENGINE, (), {}, {"partitoin": "x"}, "plan.toml")
    with pytest.raises(InputError, match="must be a string"):
        read_settings(ENGINE, (), {}, {"time": {"a": [1]}}, "plan.toml")


def test_directives_are_quoted_or_refused():
    settings = Settings(values={"comment": "it's two words", "partition": "gpu"})
    text = ENGINE.exported(SHAPE, settings, {})["job.sbatch"]
    assert '#SBATCH --comment="it\'s two words"\n' in text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert (
        "#SBATCH --gres=gpu:h100:8" in ENGINE.exported(SHAPE, Settings(values={"gres": "gpu:h100:8"}), {})["job.sbatch"]
    )
    for value in ('a"b', "a\\b", "a #b"):
        with pytest.raises(UsageError, match="no #SBATCH line can hold"):
            ENGINE.exported(SHAPE, Settings(values={"comment": value}), {})


def test_the_submit_file_of_a_run_is_shell_that_parses(tmp_path):
    folder = tmp_path / "a b'c"
    settings = Settings(
        values={"srun": "--x 'y z'", "signal": "60"}, setup=("module load a",), environment={"A": "1 $2"}
    )
    text = ENGINE.job_file(SHAPE, settings, folder=folder, lead=["py thon", "-m", "x"], python_path="/p q")
    assert "#SBATCH --signal=B:USR1@60\n" in text
    assert "export A='1 $2'\n" in text
    assert text.index("module load a") < text.index("exec ")
    assert "exec 'py thon' -m x\n" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert f"run={shlex.quote(str(folder))}" in text
    with pytest.raises(UsageError, match="from 1 to 65535"):
        ENGINE.job_file(SHAPE, Settings(values={"signal": "0"}), folder=folder, lead=["p"], python_path="/p")


@pytest.mark.parametrize(
    ("text", "where", "words", "code"),
    [
        ("JobId=1 JobState=PENDING Reason=Resources ExitCode=0:0", "queued", "PENDING (Resources)", None),
        ("JobId=1 JobState=RUNNING Reason=None NodeList=n[0-1] ExitCode=0:0", "running", "RUNNING on n[0-1]", None),
        ("JobId=1 JobState=COMPLETING Reason=None ExitCode=0:0", "running", "COMPLETING", None),
        ("JobId=1 JobState=COMPLETED Reason=None ExitCode=0:0", "ended", "COMPLETED", 0),
        ("JobId=1 JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0", "ended", "FAILED (NonZeroExitCode)", 3),
        ("JobId=1 JobState=CANCELLED Reason=None ExitCode=0:15", "ended", "CANCELLED", 143),
        ("JobId=1 JobState=REQUEUE_HOLD Reason=None ExitCode=0:0", "queued", "REQUEUE_HOLD", None),
        ("nonsense", "unknown", "", None),
    ],
)
def test_states_of_scontrol(text, where, words, code):
    state = parse_state(text)
    assert (state.where, state.words, state.exit_code) == (where, words, code)


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("h0|gpu:h100:8(S:0-1)|16000|ib,ndr|idle", ("h100", 8)),
        ("h0|gpu:a100:4(S:0),shard:a100:16|16000|(null)|mixed", ("a100", 4)),
        ("h0|gpu:nvidia_h100_80gb_hbm3:8|16000+|(null)|alloc", ("nvidia_h100_80gb_hbm3", 8)),
        ("h0|gpu:8|1|h100|idle~", ("", 8)),
        ("n0|(null)|16000|(null)|idle", (None, 0)),
        ("h0|gpu:h100:8|16000|ib|down*", None),
        ("h0|gpu:h100:8|16000|ib|drained", None),
        ("sinfo: error", None),
    ],
)
def test_lines_of_sinfo(line, node):
    found = parse_line(line)
    assert (None if found is None else (found.gpu, found.gpus)) == node


def test_nodes_as_a_cluster():
    h100 = Node(name="h0", gpu="h100", gpus=8, ram_bytes=2**40)
    a100 = Node(name="a0", gpu="a100", gpus=4)
    assert cluster_from([h100, h100], "slurm:g").spec == "2x8xH100"
    assert cluster_from([h100, a100], "slurm:g", name="H100").spec == "8xH100"
    assert cluster_from([Node(name="x", gpu="", gpus=8, features=("ib", "h100"))], "slurm:g").gpu.short == "H100"
    assert cluster_from([Node(name="n", ram_bytes=2**34)], "slurm:c").host_ram_bytes == 2**34
    for nodes, words, more in (
        ([], "no node of it is up", {}),
        ([h100, a100], "name one kind, such as slurm:g:a100", {}),
        ([h100], "no node has v100; they have 8xh100", {"name": "v100"}),
        ([h100], "2 nodes are asked for, and 1 are up", {"count": 2}),
        ([Node(name="x", gpu="quux", gpus=2)], "which is no GPU that is known", {}),
        ([Node(name="x", gpu="", gpus=2)], "does not say which GPUs", {}),
    ):
        with pytest.raises(InputError, match=words):
            cluster_from(nodes, "slurm:g", **more)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(saved("ddp", "2x1xcpu", micro=2, steps=1, precision="fp32"), "plan.json", force=True)
    (tmp_path / "train.py").write_text("import helper, pack.inner\n")
    (tmp_path / "helper.py").write_text("import deeper\n")
    (tmp_path / "deeper.py").write_text("")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "pack").mkdir()
    for name in ("__init__", "inner", "aside"):
        (tmp_path / "pack" / f"{name}.py").write_text("")
    return tmp_path


def test_the_folder_holds_the_script_and_what_it_imports(project, capsys):
    (project / "plan.toml").write_text('[engines.slurm]\naccount = "lab"\n')
    assert main(["export", "plan.json", "--to", "slurm", "--time", "10", "-o", "launch"]) == 0
    names = {path.relative_to("launch").as_posix() for path in Path("launch").rglob("*") if path.is_file()}
    code = {"train.py", "helper.py", "deeper.py", "pack/__init__.py", "pack/inner.py", "pack/aside.py"}
    assert names == {"README.md", "command.sh", "job.sbatch", *(f"code/{name}" for name in code)}
    text = Path("launch/job.sbatch").read_text()
    assert "#SBATCH --account=lab\n" in text
    assert "#SBATCH --time=10\n" in text
    assert "gpus" not in text
    assert len(Path("launch/README.md").read_text().splitlines()) <= 12
    assert capsys.readouterr().out == f"sbatch {Path('launch').absolute()}/job.sbatch\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "plan.json", "--to", "slrum"], "Did you mean"),
        (["export", "plan.json", "--to", "slurm", "--set", "slurm.tiem=1"], "Did you mean time"),
        (["export", "plan.json", "--to", "slurm", "--set", "zero.overlap_comm=true"], "part of the plan"),
        (["export", "plan.json", "--to", "torchrun", "--partition", "x"], "for an engine that gives the nodes"),
        (["--plan", "plan.json", "--execute", "train.py", "--partition", "x"], "add --on slurm"),
        (["--plan", "plan.json", "--execute", "train.py", "--on", "slurm", "--hosts", "a,b"], "leave it out"),
        (["--plan", "plan.json", "--execute", "train.py", "--on", "slrum"], "Did you mean slurm"),
        (["gpt2", "--gpus", "cpu", "--on", "slurm"], "add --execute SCRIPT"),
        (["gpt2", "--gpus", "cpu", "--set", "slurm.time=1"], "add --execute SCRIPT --on slurm"),
    ],
)
def test_bad_words_leave_nothing(project, words, said, capsys):
    before = sorted(project.rglob("*"))
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert sorted(project.rglob("*")) == before


def test_an_engine_that_is_not_there_is_one_line(project, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    (project / "train.py").write_text("from accelerate import Accelerator\nAccelerator().prepare(1)\n")
    assert main(["--plan", "plan.json", "--execute", "train.py", "--on", "slurm", "--", "--x"]) in (2, 3)
    assert main(["gpt2", "--gpus", "slurm:gpu", "--pin"]) == 3
    assert "sinfo is not on PATH" in capsys.readouterr().err
    assert not (project / "runs").exists()


def record(*attempts: Attempt, status="running") -> RunRecord:
    return RunRecord(
        run_id="r", status=status, script="s", script_arguments=(), working_directory="/", world_size=2, started=1.0,
        updated=9.0, supervisor_pid=1, attempts=attempts,
    )  # fmt: skip


def test_a_run_that_is_taken_up_has_one_history():
    again = taken_up(record(Attempt(number=1, command=(), started=1.0)))
    assert (again.status, again.ended, again.attempts[0].ended, again.attempts[0].cause) == (
        "preparing", None, 9.0, "requeued",
    )  # fmt: skip


def test_a_lost_node_is_not_retried_on_the_same_nodes():
    lost = Attempt(number=1, command=(), started=1.0, ended=2.0, cause="node_lost", last_step=4)
    assert decide([lost], 125, 3, ranks_ran=True).action == "stop"
    requeued = Attempt(number=1, command=(), started=1.0, ended=2.0, cause="requeued")
    crashed = Attempt(number=2, command=(), started=3.0, ended=4.0, cause="signal", last_step=5)
    assert decide([requeued, crashed], 137, 1, ranks_ran=True).reason == "restart 1 of 1"


def test_ray_s_driver_is_python_that_compiles():
    settings = Settings(values={"max-failures": "2"}, setup=("module load 'a'",), environment={"A": "b'c\"d"})
    text = find("ray", "--to").exported(SHAPE, settings, {})["job.py"]
    compile(text, "job.py", "exec")
    assert "resources_per_worker={'CPU': 8, 'GPU': 8}" in text
    assert "max_failures=2" in text
    with pytest.raises(UsageError, match="a whole number"):
        find("ray", "--to").exported(SHAPE, Settings(values={"max-failures": "-1"}), {})


def test_kubeflow_s_files_are_mounted_by_their_paths():
    import yaml

    engine = find("kubernetes", "--to")
    files, job = yaml.safe_load_all(engine.exported(SHAPE, Settings(), {"a": "x", "code/b.py": "y"})["trainjob.yaml"])
    (patch,) = job["spec"]["runtimePatches"]
    pod = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    mounted = {item["path"]: files["data"][item["key"]] for item in pod["volumes"][0]["configMap"]["items"]}
    assert mounted == {"a": "x", "code/b.py": "y"}
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "8"}
    with pytest.raises(UsageError, match="a ConfigMap holds"):
        engine.exported(SHAPE, Settings(), {"a": "x" * 1_000_001})


def test_skypilot_s_task():
    import yaml

    settings = Settings(values={"use-spot": "true", "disk-size": "200"}, setup=("a", "b"), environment={"A": "1"})
    task = yaml.safe_load(find("skypilot", "--to").exported(SHAPE, settings, {})["task.yaml"])
    assert task["resources"] == {"accelerators": "H100:8", "use_spot": True, "disk_size": 200}
    assert (task["num_nodes"], task["setup"], task["envs"]) == (2, "a\nb\n", {"A": "1"})
    assert subprocess.run(["sh", "-n"], input=task["run"], text=True, check=False).returncode == 0


@pytest.mark.parametrize("engine", ["ray", "kubeflow", "skypilot"])
def test_options_of_another_engine_are_refused(engine, project, capsys):
    assert main(["export", "plan.json", "--to", engine, "--partition", "x"]) == 2
    assert "--partition is no setting of" in capsys.readouterr().err
    assert not Path("launch").exists()


def said(node: int, **more) -> Said:
    values = {"host": f"n{node}", "checks": (), "versions": {"torch": "2.13"}, "plan": "ab", "reduce_seconds": 0.5}
    return Said(node=node, **{**values, **more})


def test_nodes_are_judged_together():
    assert not findings_of(judge([said(0), said(1)], 2))
    for nodes, count, what in (
        ([said(0)], 2, "node 1 of 2 left no word: plan: x is not on n1"),
        ([said(0), said(1, versions={"torch": "2.12"})], 2, "torch: 2.13 on n0, 2.12 on n1"),
        ([said(0), said(1, plan="cd")], 2, "nodes read different plans"),
        ([said(0), said(1, reduce_seconds=None, reduce_problem="refused")], 2, "n1: refused"),
    ):
        (finding,) = findings_of(judge(nodes, count, "plan: x is not on n1"))
        assert (finding.severity, finding.what) == ("error", what)
    (finding,) = findings_of(judge([said(0), said(1, versions={"torch": "2.13", "peft": "1"})], 2))
    assert finding.severity == "warning"


def test_a_node_without_the_folder_says_so(tmp_path, capsys):
    assert look_at_node(tmp_path / "absent", "slurm", 2) == 4
    assert "it is not shared" in capsys.readouterr().err
