"""Kinds of obstacles on a track: numbers of theirs, and how hard a level makes them.

An obstacle has an `extent`, how far it reaches along the track (m), and a `critical` number, which decides whether a
robot can pass: the width of a gap between walls, a clearance, a height, an angle.

| id | kind | what there is | extent | critical |
|---|---|---|---|---|
| 0 | `walk` | nothing | 0 | 0 |
| 1 | `tilt` | two walls | their depth | width between them |
| 2 | `crawl` | a bar across | its depth | clearance under it |
| 3 | `jump` | a step up; what follows stays up | nominal | height |
| 4 | `leap` | a gap | its length | depth of the pit |
| 5 | `hurdle` | a box across | its depth | height |
| 6 | `down` | a step down | nominal | height, negative |
| 8 | `slope` | a ramp up or down | its length | angle (rad), negative downwards |
| 9, 10 | `stairs_up`, `stairs_down` | five steps | a tread | rise of a step, negative downwards |

7 stands for a tilted ramp in the numbering of parkour, and is not used.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = 10
"""Terrain has the levels 0 (easy) to 9 (hard)."""
TREAD, TREADS = 0.3, 5
"""Length (m) of a step and how many a block of stairs has."""
STEEP = ("hurdle", "slope", "stairs_up", "stairs_down")
"""Kinds that a one-hot of five has no place for."""
VIRTUAL = ("walk", "tilt", "crawl", "jump", "leap", "hurdle")
"""Kinds that may touch nothing: robots can be where they would be."""
SHORT_WIDTH, FULL_WIDTH = 5, 11


@dataclass(frozen=True)
class Obstacle:
    """A kind of obstacle; what is hard about it goes from `easy` at level 0 to `hard` at level 9."""

    id: int
    easy: float = 0.0
    hard: float = 0.0
    extent: tuple[float, float] = (0.0, 0.0)
    """Between these (m); of a leap it is what is hard, and follows from the level."""
    lite: tuple[float, float] | None = None
    """`easy` and `hard` of tracks that simple gaits can pass."""
    both_signs: bool = False
    """Up or down, as drawn."""


OBSTACLES: dict[str, Obstacle] = {
    "walk": Obstacle(0, lite=(0.0, 0.0)),
    "tilt": Obstacle(1, 0.40, 0.26, (0.4, 1.0)),
    "crawl": Obstacle(2, 0.40, 0.24, (0.1, 0.6), lite=(0.34, 0.28)),
    "jump": Obstacle(3, 0.05, 0.40, (0.1, 0.3), lite=(0.02, 0.08)),
    "leap": Obstacle(4, 0.05, 0.60, lite=(0.04, 0.15)),
    "hurdle": Obstacle(5, 0.05, 0.35, (0.05, 0.2), lite=(0.02, 0.08)),
    "down": Obstacle(6, -0.05, -0.40, (0.3, 0.3), lite=(-0.02, -0.08)),
    "slope": Obstacle(8, 0.1, 0.4, (1.0, 1.6), lite=(0.05, 0.2), both_signs=True),
    "stairs_up": Obstacle(9, 0.04, 0.15, (TREAD, TREAD), lite=(0.02, 0.06)),
    "stairs_down": Obstacle(10, -0.04, -0.15, (TREAD, TREAD), lite=(-0.02, -0.06)),
}
ID = {name: each.id for name, each in OBSTACLES.items()}
WALK, TILT, CRAWL, JUMP, LEAP, HURDLE, DOWN, SLOPE, STAIRS_UP, STAIRS_DOWN = ID.values()
