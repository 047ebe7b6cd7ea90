"""An environment in which everything is installed but this package: where an export must run."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

_SCRIPTS = {
    "accelerate": "from accelerate.commands.accelerate_cli import main",
    "torchrun": "from torch.distributed.run import main",
    "deepspeed": "from deepspeed.launcher.runner import main",
}


def bare_environment(folder: Path) -> dict[str, str]:
    """Makes it in `folder`; gives the variables to run in it. Nothing of this one's PYTHONPATH stays."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=1500)
    packages = next((folder / "lib").glob("python3*")) / "site-packages"
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        ours = entry.name.startswith(("gpu_plan", "gpu-plan", "__editable__")) or entry.suffix == ".pth"
        if not ours and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry.resolve())
    python = folder / "bin" / "python"
    for name, line in _SCRIPTS.items():
        script = folder / "bin" / name
        script.write_text(f"#!{python}\nimport sys\n{line}\nsys.exit(main())\n")
        script.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPU_PLAN"))}
    variables["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run([str(python), "-c", "import gpu_plan"], capture_output=True, env=variables, timeout=1500)
    assert found.returncode != 0, "this package can be imported there, so nothing would be shown"
    return variables
