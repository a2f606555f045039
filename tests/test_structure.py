"""The folders of src/gaitway keep their order, and no modules form a cycle of imports.

An import inside a function counts; one under `if TYPE_CHECKING` does not, because it never runs.
"""

import ast
import graphlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
ORDER = (
    "core",
    "processes",
    "functional",
    "nn",
    "envs",
    "frames",
    "data",
    "agents",
    "algorithms",
    "rewards",
    "skills",
    "runners",
    "export",
    "analysis",
    "cli",
)
"""A module imports from its own folder and from those before it."""
TRAINING = ("algorithms", "rewards", "skills", "runners")
"""What analysis leaves alone though it comes later: it reads run folders only."""

Imports = dict[str, set[str]]


def test_folders_import_only_from_those_before_them():
    assert upward_imports(imports(SOURCE)) == []


def test_no_modules_form_a_cycle():
    assert " -> ".join(cycle(imports(SOURCE))) == ""


def test_every_folder_is_read():
    folders = {path.name for path in (SOURCE / "gaitway").iterdir() if (path / "__init__.py").exists()}
    assert {folder(name) for name in imports(SOURCE)} == folders | {""}


# broken twins


def tree(tmp_path: Path, files: dict[str, str]) -> Imports:
    """The imports of a synthetic gaitway: file -> text."""
    for name, text in files.items():
        path = tmp_path / "gaitway" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return imports(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "from gaitway.runners.runner import Runner",
        "from gaitway.runners import runner",
        "import gaitway.runners.runner as loop",
        "from ..runners.runner import Runner",
        "from .. import runners",
        "def learn():\n    from gaitway.runners.runner import Runner",
        "try:\n    import gaitway.runners.runner\nexcept ImportError:\n    pass",
        "if TYPE_CHECKING:\n    import torch\nelse:\n    import gaitway.runners.runner",
    ],
)
def test_an_upward_import_is_found(tmp_path, text):
    graph = tree(tmp_path, {"algorithms/ppo.py": text, "runners/runner.py": "", "runners/__init__.py": ""})
    (found,) = upward_imports(graph)
    assert found.startswith("gaitway.algorithms.ppo imports gaitway.runners")
    assert found.endswith("runners comes after algorithms")


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_an_import_for_type_checkers_alone_is_free(tmp_path, condition):
    text = f"if {condition}:\n    from gaitway.runners.runner import Runner"
    graph = tree(tmp_path, {"algorithms/ppo.py": text, "runners/runner.py": "import gaitway.algorithms.ppo"})
    assert graph["gaitway.algorithms.ppo"] == set()
    assert upward_imports(graph) == cycle(graph) == []


def test_downward_imports_and_those_of_subfolders_are_free(tmp_path):
    graph = tree(
        tmp_path,
        {
            "core/workspace.py": "import torch",
            "envs/registry.py": "from gaitway.envs.toys import pole\nfrom gaitway.core.workspace import Workspace",
            "envs/toys/pole.py": "from gaitway.envs.vec_env import VecEnv",
            "envs/vec_env.py": "from gaitway.version import __version__",
            "version.py": "__version__ = '1'",
            "__main__.py": "from gaitway.cli.main import main",
            "cli/main.py": "from gaitway.analysis.runs import Run",
            "analysis/runs.py": "from gaitway.core.workspace import Workspace",
        },
    )
    assert upward_imports(graph) == cycle(graph) == []


def test_analysis_that_trains_is_found(tmp_path):
    (found,) = upward_imports(tree(tmp_path, {"analysis/runs.py": "from gaitway.runners.runner import Runner"}))
    assert found == "gaitway.analysis.runs imports gaitway.runners.runner: analysis imports nothing that trains"


def test_the_whole_package_from_inside_is_found(tmp_path):
    (found,) = upward_imports(tree(tmp_path, {"core/agent.py": "from gaitway import Workspace"}))
    assert found == "gaitway.core.agent imports gaitway: import the module that the name lives in"


def test_a_folder_that_has_no_place_in_the_order_is_found(tmp_path):
    (found,) = upward_imports(tree(tmp_path, {"utils/tools.py": "import gaitway.core.agent"}))
    assert found == "gaitway.utils.tools: give the folder 'utils' its place in ORDER"


@pytest.mark.parametrize("indent", ["", "def late():\n    "])
def test_a_cycle_is_found(tmp_path, indent):
    graph = tree(
        tmp_path,
        {
            "envs/registry.py": "import gaitway.envs.toys.pole",
            "envs/toys/pole.py": "from gaitway.envs import vec_env",
            "envs/vec_env.py": f"{indent}from gaitway.envs.registry import make_env",
            "envs/check.py": "import gaitway.envs.vec_env",
        },
    )
    found = cycle(graph)
    assert found[0] == found[-1]
    assert set(found) == {"gaitway.envs.registry", "gaitway.envs.toys.pole", "gaitway.envs.vec_env"}
    assert all(later in graph[module] for module, later in pairwise(found))
    assert upward_imports(graph) == []  # the order of folders alone would not have seen it


def imports(source: Path) -> Imports:
    """Module -> the modules of gaitway that it imports, of all files below `source`."""
    paths = {_module(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
    return {name: set(_imported(name, path, paths)) - {name} for name, path in paths.items()}


def upward_imports(graph: Imports) -> list[str]:
    """Imports that the order of the folders forbids, a sentence each."""
    found = []
    for module, imported in graph.items():
        here = folder(module)
        if here and here not in ORDER:
            found.append(f"{module}: give the folder {here!r} its place in ORDER")
            continue
        for name in sorted(imported) if here else []:
            there = folder(name)
            if name == "gaitway":
                found.append(f"{module} imports {name}: import the module that the name lives in")
            elif here == "analysis" and there in TRAINING:
                found.append(f"{module} imports {name}: analysis imports nothing that trains")
            elif there in ORDER and ORDER.index(there) > ORDER.index(here):
                found.append(f"{module} imports {name}: {there} comes after {here}")
    return found


def cycle(graph: Imports) -> list[str]:
    """Modules of which each imports the next, the last being the first; empty if there are none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def folder(module: str) -> str:
    """`gaitway.envs.toys.pole` -> `envs`; empty for `gaitway` itself and the files beside the folders."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] not in ("__main__", "version") else ""


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in _running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "gaitway")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: None if path.stem == "__init__" else -1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            if base.split(".")[0] == "gaitway":
                for name in (f"{base}.{alias.name}" for alias in node.names):
                    yield name if name in known else base


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `node`, without what only type checkers read."""
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING":
        children = iter(node.orelse)
    for child in children:
        yield child
        yield from _running(child)
