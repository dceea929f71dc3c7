"""A clone: what git tracks in it, what Python says in one that is not compiled, and what its
workflow publishes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import srsly

import spacy_costner

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
LINK = "120000"  # the mode of a symbolic link in git's index
FOLDERS = "data|home|mnt|opt|root|scratch|srv|Users|work"
OF_A_MACHINE = re.compile(rf"(?<![\w.~$)}}>/-])/(?:{FOLDERS})/[\w.-]+|\b[A-Z]:\\\\?Users\b")


def git(root: Path, *arguments: str) -> str:
    """What git says in a folder."""
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, encoding="utf8"
    ).stdout


def is_clone(root: Path) -> bool:
    """Whether git tracks this folder, and not one above it."""
    try:
        return Path(git(root, "rev-parse", "--show-toplevel").strip()) == root.resolve()
    except (OSError, subprocess.CalledProcessError):
        return False


def find_machine_paths(root: Path) -> list[str]:
    """The tracked files that are links, and the lines that name a folder of one machine."""
    problems = []
    for entry in git(root, "ls-files", "--stage", "-z").split("\0")[:-1]:
        mode, name = entry[: len(LINK)], entry.split("\t")[1]
        path = root / name
        if mode == LINK:
            problems.append(f"{name} is a link")
            continue
        if not path.is_file():  # removed, and not committed yet
            continue
        text = path.read_bytes().decode("utf8", errors="ignore")
        for match in OF_A_MACHINE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{name}, line {line}: {match[0]}")
    return problems


@pytest.mark.skipif(not is_clone(ROOT), reason="not a git checkout")
def test_no_tracked_file_is_a_link_or_names_a_folder_of_one_machine() -> None:
    assert find_machine_paths(ROOT) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_links_and_folders_of_one_machine_are_seen(tmp_path: Path) -> None:
    # Joined here, or else this file would name a folder of a machine itself.
    home = Path("/", "home", "ana").as_posix()
    work = Path("/", "work", "corpora").as_posix()
    (tmp_path / "run.sh").write_text(f"# Tokens\ncat {home}/train.conll\n")
    (tmp_path / "train.cfg").write_text(f'# The corpus\n[paths]\ntrain = "{work}"\n')
    # These are no folders of one machine, so paths.md isn't among the problems.
    (tmp_path / "paths.md").write_text("https://a.org/data/x, </home/>, $HOME/data/x, or/and\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    target = git(tmp_path, "hash-object", "-w", "run.sh").strip()
    git(tmp_path, "update-index", "--add", "--cacheinfo", f"{LINK},{target},assets")
    assert find_machine_paths(tmp_path) == [
        "assets is a link",
        f"run.sh, line 2: {home}",
        f"train.cfg, line 3: {work}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["-m", "spacy", "costner"], ["-c", "import spacy_costner"]])
def test_source_that_is_not_compiled_says_so(tmp_path: Path, arguments: list[str]) -> None:
    """In a clone it comes before the installed package: Python imports from where it starts."""
    source = Path(spacy_costner.__file__).parent
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(source, tmp_path / "spacy_costner", ignore=ignored)
    run = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, encoding="utf8"
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        f"ImportError: {tmp_path / 'spacy_costner'} is the source, not compiled for this Python: "
        f"leave {tmp_path}, or run `make` there"
    )


def read_workflow(name: str) -> dict[str, Any]:
    """A workflow of GitHub; outside of the clone the test is skipped."""
    if not WORKFLOWS.exists():
        pytest.skip("outside of the clone there are no workflows")
    return srsly.yaml_loads((WORKFLOWS / f"{name}.yml").read_text(encoding="utf8"))


@pytest.mark.parametrize(
    "name, unpinned",
    [("wheels", []), ("tests", []), ("docs", ["actions/upload-pages-artifact@v4"])],
)
def test_actions_of_workflows_are_pinned_by_commit(name: str, unpinned: list[str]) -> None:
    actions = []
    for job in read_workflow(name)["jobs"].values():
        actions += [step["uses"] for step in job["steps"] if "uses" in step]
    assert actions
    assert [action for action in actions if not re.search("@[0-9a-f]{40}$", action)] == unpinned


@pytest.mark.parametrize("tag, is_right", [("v1.2.0", True), ("v1.2", False), ("v1.2.1", False)])
def test_the_workflow_publishes_only_what_the_tag_says(
    tmp_path: Path, tag: str, is_right: bool
) -> None:
    """The step of the job that makes the source distribution, of the version 1.2.0 here."""
    job = read_workflow("wheels")["jobs"]["sdist"]
    (step,) = [step for step in job["steps"] if step.get("name") == "The tag is the version"]
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "spacy_costner-1.2.0.tar.gz").touch()
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    run = subprocess.run(
        [bash, "-e", "-c", step["run"]],
        cwd=tmp_path,
        env={**os.environ, "GITHUB_REF_NAME": tag},
        capture_output=True,
        encoding="utf8",
    )
    assert (run.returncode == 0) == is_right
    assert is_right or "got dist/spacy_costner-1.2.0.tar.gz" in run.stdout
