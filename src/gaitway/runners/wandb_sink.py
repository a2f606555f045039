"""Metrics and pictures for Weights & Biases, which is imported only when a run uses it.

It works offline and asks for no login unless told otherwise. Everything that is said about one environment step goes
out together as one commit, with the environment step as W&B's own.
"""

from __future__ import annotations

import html
import io
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gaitway.core.config import ConfigError, read_config
from gaitway.core.files import atomic_write_json
from gaitway.runners.media import Kind, figure_array, gif


class WandbSink:
    """One W&B run for a run folder: whoever logs into the folder again, as `gaitway resume` does, goes on with it.

    `options` are keyword arguments of `wandb.init` (`project`, `entity`, `group`, `job_type`, `tags`, `name`, `notes`,
    `mode`, ...) and `interval_s`, the seconds between two deliveries: what is said meanwhile is held back, and nothing
    is left out. `tags` may also be a text with commas.
    """

    takes: frozenset[Kind] = frozenset({"images", "figure", "text", "html", "video", "film"})

    def __init__(self, folder: Path, options: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        import wandb

        config = read_config(folder / "config.yaml") if (folder / "config.yaml").is_file() else {}
        settings = {"mode": "offline", "project": "gaitway", "name": folder.name, "dir": str(folder), "config": config}
        own = check_options(options)
        self.interval_s = own.pop("interval_s", 0.0)
        self.wandb = wandb
        # W&B's own copy of uncommitted changes knows no secrets; code.json says which commit it was
        os.environ.setdefault("WANDB_DISABLE_GIT", "true")
        os.environ.setdefault("WANDB_DISABLE_CODE", "true")
        self.run = wandb.init(**{**settings, "id": _identity(folder), "resume": "allow", **own})
        self._clock = clock
        self._delivered = clock()
        self._pending: dict[int, dict[str, Any]] = {}

    def write(self, step: int, metrics: Mapping[str, int | float]) -> None:
        self._say(step, metrics)

    def show(self, kind: Kind, name: str, value: Any, step: int, fps: float) -> None:
        self._say(step, {name: self._media(kind, value, fps)})

    def close(self, exit_code: int = 0) -> None:
        """Deliver what is held back and tell W&B how the program ended: 0 is well, all else is a failure."""
        try:
            self._deliver(last=None)
        finally:
            self.run.finish(exit_code=exit_code)

    def _say(self, step: int, values: Mapping[str, Any]) -> None:
        self._pending.setdefault(step, {}).update(values)
        if self._clock() - self._delivered >= self.interval_s:
            self._deliver(last=step)

    def _deliver(self, last: int | None) -> None:
        """Commit every step but `last`, about which there may be more to say: W&B takes nothing after a commit."""
        for step in [step for step in self._pending if step != last]:
            self.run.log(self._pending.pop(step), step=step, commit=True)
            self._delivered = self._clock()

    def _media(self, kind: Kind, value: Any, fps: float) -> Any:
        if kind == "images":
            return [self.wandb.Image(image) for image in value]
        if kind == "figure":
            return self.wandb.Image(figure_array(value))
        if kind == "text":
            return self.wandb.Html(f"<pre>{html.escape(value)}</pre>", data_is_not_path=True)
        if kind == "html":
            return self.wandb.Html(value, data_is_not_path=True)
        if kind == "film":
            return self.wandb.Video(str(value), format=Path(value).suffix.lstrip("."))
        # encoded here, because W&B wants moviepy for arrays
        return self.wandb.Video(io.BytesIO(gif(value, fps)), format="gif")


def _identity(folder: Path) -> str:
    """The id of the W&B run of a folder, drawn once and kept in `wandb.json`."""
    path = folder / "wandb.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["id"]
        if isinstance(found, str) and found.isalnum():
            return found
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or none that can be read: a new one
        pass
    drawn = secrets.token_hex(4)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, {"id": drawn})
    return drawn


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the form that is used, or a ConfigError that names the one that is wrong."""
    found = dict(options)
    if "tags" in found:
        tags = found["tags"] or []
        parts = tags.split(",") if isinstance(tags, str) else list(tags)
        found["tags"] = [str(tag).strip() for tag in parts if str(tag).strip()]
    if "interval_s" in found:
        interval = found["interval_s"]
        if isinstance(interval, bool) or not isinstance(interval, int | float) or not interval >= 0:
            raise ConfigError(
                f"logging.wandb.interval_s is {interval!r}; use seconds between deliveries, 0 for each step at once",
                "logging.wandb.interval_s",
            )
        found["interval_s"] = float(interval)
    for key in ("project", "entity", "group", "job_type", "name", "mode"):
        if key in found and not isinstance(found[key], str | None):
            raise ConfigError(f"logging.wandb.{key} is {found[key]!r}; use a text", f"logging.wandb.{key}")
    return found
