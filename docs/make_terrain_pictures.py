"""Make the pictures of terrain of the gallery: `python docs/make_terrain_pictures.py`, or some: `... pup12/field_jump`.

Robots stand before an obstacle of their track, or on the platform of their tile, at level 6 of 9.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from gaitway.envs.legged.presets import PRESETS
from gaitway.envs.legged.terrain.tile_shapes import TILES
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.pictures.scene import Camera
from gaitway.envs.tasks.legged.making import make_legged

GALLERY = Path(__file__).with_name("gallery")
SIZE, JPEG_QUALITY, LEVEL = (320, 240), 85, 6
ROUGH = "pup12/velocity_rough"
TRACKS = [id for id in PRESETS if id.startswith("pup12/field")]
NAMES = [*TRACKS, *(f"{ROUGH}/{tile}" for tile in TILES)]


def still(name: str) -> np.ndarray:
    """A picture of an id, of `pup12/velocity_rough/<tile>` for tiles."""
    options: dict[str, Any] = {"randomise": {"enabled": False}, "terrain": {"level": LEVEL}}
    if name in TRACKS:
        id = name
        options["start"] = {"ahead": 1.4, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "joints": 0.0, "velocity": 0.0}
    else:
        id, _, tile = name.rpartition("/")
        options |= {"start": {"xy": 0.0, "yaw": 0.0}, "commands": {"stand": 1.0}}
        options["terrain"]["tiles"] = [tile]
    env = MujocoBatchEnv(make_legged(id, options), 1, num_threads=1)
    for _ in range(15):
        env.step(torch.zeros(1, 12))
    with Camera(env, quality="shadows") as camera:
        picture = camera(*SIZE)
    env.close()
    return picture


def file_of(name: str) -> str:
    return f"{name.replace('/', '_')}.jpg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    for name in parser.parse_args().names:
        Image.fromarray(still(name)).save(GALLERY / file_of(name), quality=JPEG_QUALITY)
        print(GALLERY / file_of(name))


if __name__ == "__main__":
    main()
