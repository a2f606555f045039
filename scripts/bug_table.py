"""Write docs/blackboard_bugs.md: which test covers each row of the table of bugs that the blackboard must not have.

python scripts/bug_table.py            # after adding, renaming or removing a test called test_bug_NN_...
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "blackboard_bugs.md"
ROWS = 84
AREAS = (
    (1, 17, "Workspace, shared memory, transitions"), (18, 32, "Agents, seeds, containers, small agents"),
    (33, 36, "Final observations, data agents"), (37, 42, "Processes and populations"),
    (43, 52, "Environment agents, normalisation, video"), (53, 58, "Returns, losses, parameters"),
    (59, 63, "Distributions"), (64, 67, "Replay"), (68, 75, "Logs and statistics"), (76, 80, "Pictures"),
    (81, 84, "Exploration, user code, packaging, time"),
)  # fmt: skip
HEAD = """# What the original got wrong

The blackboard follows SaLinA and BBRL. Running those brought up 84 things that are wrong, surprising or missing; each
has a number, and at least one test here that bears it and fails where the bug is put back. The table is made by
`python scripts/bug_table.py`, and a test keeps it complete.
"""


def tests_by_row() -> dict[int, list[tuple[str, str]]]:
    """Row -> (test file, what its name says), in the order of the files."""
    found: dict[int, list[tuple[str, str]]] = {row: [] for row in range(1, ROWS + 1)}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for row, words in re.findall(r"def test_bug_(\d\d)_(\w+)\(", path.read_text()):
            found[int(row)].append((path.relative_to(ROOT / "tests").as_posix(), words.replace("_", " ")))
    return found


def page() -> str:
    rows = tests_by_row()
    parts = [HEAD]
    for first, last, area in AREAS:
        parts.append(f"\n## {area}\n\n| row | what holds here | test in `tests/` |\n|---|---|---|\n")
        for row in range(first, last + 1):
            what = "; ".join(dict.fromkeys(words for _, words in rows[row]))
            files = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in rows[row]))
            parts.append(f"| {row} | {what} | {files} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    missing = [row for row, tests in tests_by_row().items() if not tests]
    print(f"{PAGE.relative_to(ROOT)} written; rows without a test: {missing or 'none'}")
