"""The gallery shows every environment of the benchmark's robots, in pictures that are light and up to date."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.robots.registry import ROBOTS
from gaitway.envs.tasks import NATIVE_TASKS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "gallery.md").read_text()
FILES = sorted((DOCS / "gallery").iterdir())
MAX_STILL, MAX_CLIP, MAX_ALL = 25_000, 300_000, 2_500_000

needs_gl = pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gallery", DOCS / "make_gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def pixels(name: str) -> np.ndarray:
    return np.asarray(Image.open(DOCS / "gallery" / name), dtype=np.float64)


def test_every_environment_has_a_picture_and_the_page_shows_it(script) -> None:
    robots = {
        name
        for name, task in NATIVE_TASKS.items()
        if name.partition("/")[0] in ROBOTS and not task.module.startswith("legged")
    }
    assert set(script.names()) == {name for name in robots if not name.endswith("-fixed")}
    for name in script.names():
        file = f"{name.replace('/', '_')}.jpg"
        assert f"![{name}](gallery/{file})" in PAGE
        picture = pixels(file)
        assert picture.shape == (240, 320, 3)
        assert picture.std() > 10  # neither black nor empty


def test_legged_robots_have_pictures_too(script) -> None:
    assert {name for name in script.LEGGED if NATIVE_TASKS[name].module.startswith("legged")} == set(script.LEGGED)
    for name in script.LEGGED:
        file = f"{name.replace('/', '_')}.jpg"
        assert f"![{name}](gallery/{file})" in PAGE
        assert pixels(file).std() > 10


def test_what_is_there_is_shown_and_what_is_shown_is_there(script) -> None:
    linked = set(re.findall(r"\(gallery/([^)]+)\)", PAGE))
    assert linked == {file.name for file in FILES}
    # players are plain HTML, relative to the page's own folder in the site
    played = set(re.findall(r'<video src="([^"]+)"', PAGE))
    assert played == {name for name in linked if name.endswith(".mp4")}
    assert {f"{name}.mp4" for name in script.CLIPS} <= played


def test_files_are_light() -> None:
    sizes = {file.name: file.stat().st_size for file in FILES}
    assert not {name for name, size in sizes.items() if size > (MAX_CLIP if name.endswith(".mp4") else MAX_STILL)}
    assert sum(sizes.values()) < MAX_ALL


@needs_gl
def test_the_script_makes_the_pictures_that_are_there(script) -> None:
    for name in ("walker/hurdles", "humanoidpc/stairs", "cube/butterflies"):
        made = script.still(name).astype(np.float64)
        assert np.abs(made - pixels(f"{name.replace('/', '_')}.jpg")).mean() < 4
        assert np.abs(made - pixels("halfcheetah_limbo.jpg")).mean() > 8
