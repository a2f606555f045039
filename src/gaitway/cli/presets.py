"""The presets that come with gaitway and those of the user: files `experiment/NAME.yaml` below a folder each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gaitway.core.config import ConfigError

CONF_FOLDER = Path(__file__).parent / "conf"


def list_experiments(config_dir: str | Path | None = None, conf_folder: Path = CONF_FOLDER) -> dict[str, str]:
    """The presets by name, each with the first comment of its file."""
    return presets_in(preset_folders(conf_folder, config_dir))


def preset_folders(conf_folder: Path, config_dir: str | Path | None) -> list[Path]:
    """Where presets are looked for: ours, and the folder that `--config-dir` names."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(f"--config-dir {config_dir} is not a folder; it should hold experiment/NAME.yaml")
    return [conf_folder.absolute(), *([Path(config_dir).absolute()] if config_dir is not None else [])]


def presets_in(folders: Sequence[Path], group: str = "experiment") -> dict[str, str]:
    """Name -> first comment, of all files of a group; a name that is taken twice is refused."""
    found: dict[str, str] = {}
    for root in (folder / group for folder in folders):
        for path in sorted(root.rglob("*.yaml")):
            name = path.relative_to(root).with_suffix("").as_posix()
            if name in found:
                raise ConfigError(f"{path} has the name of a preset that comes with gaitway; rename it", group)
            comments = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
            found[name] = next((text for text in comments if text and not text.startswith("@")), "")
    return found
