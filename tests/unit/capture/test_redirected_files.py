"""What a script writes is seen by it as if it were written, and the folder is as it was."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, pathlib, shutil, sys, tempfile
from gpu_plan.planner.capture.unwritten.redirect import Redirect
Redirect(sys.argv[1]).install()
os.makedirs("out/deep", exist_ok=True)
os.makedirs("out/deep", exist_ok=True)
assert os.path.isdir("out/deep") and sorted(os.listdir("out")) == ["deep"]
with open("out/deep/log.txt", "w") as file:
    file.write("one\\n")
with open("out/deep/log.txt", "a") as file:
    file.write("two\\n")
assert pathlib.Path("out/deep/log.txt").read_text() == "one\\ntwo\\n"
with open("kept.txt", "a") as file:
    file.write(" more")
assert open("kept.txt").read() == "as it was more"
with open("kept.txt", "r+") as file:
    file.write("AS")
assert open("kept.txt").read() == "AS it was more"
os.remove("gone.txt")
assert not os.path.exists("gone.txt") and "gone.txt" not in os.listdir(".")
assert "kept.txt" in os.listdir(".") and "out" in os.listdir(".")
for wrong in (lambda: open("gone.txt"), lambda: os.stat("gone.txt"), lambda: os.remove("gone.txt")):
    try:
        wrong()
    except FileNotFoundError:
        continue
    raise AssertionError("it is gone")
try:
    os.mkdir("data")
except FileExistsError:
    pass
else:
    raise AssertionError("it is there")
os.rename("moved.txt", "elsewhere.txt")
assert open("elsewhere.txt").read() == "to move" and not os.path.exists("moved.txt")
shutil.rmtree("data")
assert not os.path.exists("data") and not os.path.exists("data/rows.txt")
os.makedirs("data")
assert os.listdir("data") == []
pathlib.Path("data/new.txt").write_text("new")
assert [entry.name for entry in os.scandir("data")] == ["new.txt"]
found = sorted(path.name for path in pathlib.Path(".").glob("**/*.txt"))
assert found == ["elsewhere.txt", "kept.txt", "log.txt", "new.txt"], found
shutil.copy("kept.txt", "out/copy.txt")
assert open("out/copy.txt").read() == "AS it was more"
descriptor = os.open("out/raw", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.write(descriptor, b"raw")
os.close(descriptor)
assert open("out/raw", "rb").read() == b"raw"
with tempfile.TemporaryDirectory(dir="out") as folder:
    pathlib.Path(folder, "x").write_text("x")
assert sorted(os.listdir("out")) == ["copy.txt", "deep", "raw"]
shutil.move("out", "results")
assert sorted(os.listdir("results")) == ["copy.txt", "deep", "raw"] and not os.path.exists("out")
print("done")
"""


def test_a_script_sees_what_it_wrote(tmp_path: Path) -> None:
    project, scratch = tmp_path / "project", tmp_path / "scratch"
    (project / "data").mkdir(parents=True)
    scratch.mkdir()
    (project / "kept.txt").write_text("as it was")
    (project / "gone.txt").write_text("here")
    (project / "moved.txt").write_text("to move")
    (project / "data" / "rows.txt").write_text("rows")
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(scratch)],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
