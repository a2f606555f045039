"""Text in pictures: lines at the left and at the right, in any colour, readable on any background.

Letters are bitmaps that are drawn once per size and then copied, with an edge around them: a line costs about a tenth
of a millisecond, and no window system is involved.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

Colour = str | tuple[int, int, int]
"""A name such as "lime" or "#ff8000", or red, green and blue from 0 to 255."""
Text = str | tuple[str, Colour]
"""One line, or one line in its own colour."""

LIME = "lime"
LETTER_SHARE = 8 / 72 * 200 / 480
"""Size of letters as a share of the picture's height: 8 points at 200 dots per inch in a picture of 480 pixels."""
LINE_SHARE = 0.05
"""Distance of two lines as a share of the picture's height."""
SMALLEST_LETTERS = 8
"""Pixels; below, letters cannot be told apart."""


def annotate(frame: np.ndarray, left: Sequence[Text], right: Sequence[Text] = (), colour: Colour = LIME) -> np.ndarray:
    """A copy of `frame` with text in it; see `draw_text`."""
    marked = frame.copy()
    draw_text(marked, left, right, colour)
    return marked


def draw_text(frame: np.ndarray, left: Sequence[Text] = (), right: Sequence[Text] = (), colour: Colour = LIME) -> None:
    """Write into `frame`, uint8 `[H, W, 3]`: lines from the upper left corner down, and right-aligned ones opposite.

    The size follows the height of the picture. Light letters get a black edge, dark ones a white edge. A line that is
    too long for the picture ends in dots.
    """
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ValueError(f"the frame is {frame.dtype} {list(frame.shape)}; text is drawn into uint8 [H, W, 3]")
    height, width, _ = frame.shape
    size = max(SMALLEST_LETTERS, round(height * LETTER_SHARE))
    pitch = max(round(height * LINE_SHARE), size + 1)
    margin = size // 2
    for lines, at_right in ((left, False), (right, True)):
        for number, line in enumerate(lines.splitlines() if isinstance(lines, str) else lines):
            text, own = (line, colour) if isinstance(line, str) else line
            fill, edge = _masks(text, size, width - 2 * margin)
            start = width - margin - fill.shape[1] if at_right else margin
            _blend(frame, margin + number * pitch, max(0, start), fill, edge, rgb(own))


def rgb(colour: Colour) -> tuple[int, int, int]:
    """Red, green and blue of a colour, 0 to 255."""
    from PIL import ImageColor

    if isinstance(colour, str):
        try:
            found = ImageColor.getrgb(colour)[:3]
        except ValueError as error:
            raise ValueError(
                f"{colour!r} is no colour; use a name such as 'lime', '#ff8000' or three numbers"
            ) from error
        return found[0], found[1], found[2]
    if len(colour) != 3 or not all(0 <= part <= 255 for part in colour):
        raise ValueError(f"the colour is {colour}; use red, green and blue from 0 to 255")
    return colour


def _blend(frame: np.ndarray, top: int, start: int, fill: np.ndarray, edge: np.ndarray, colour: tuple) -> None:
    """Lay the edge and then the letters over the picture; what sticks out is cut off."""
    region = frame[top : top + fill.shape[0], start : start + fill.shape[1]]
    rows, columns = region.shape[:2]
    luminance = (0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]) / 255.0
    around = 0.0 if luminance > 0.4 else 255.0
    weights = (edge[:rows, :columns, None], fill[:rows, :columns, None])
    mixed = region * (1.0 - weights[0]) + around * weights[0]
    mixed = mixed * (1.0 - weights[1]) + np.array(colour, np.float32) * weights[1]
    region[...] = np.rint(mixed)


def _masks(text: str, size: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Coverage by letters and by their edges, float32 `[h, w]`, 0 to 1, not wider than `room` if that is possible."""
    glyphs = [_glyph(letter, size) for letter in text if letter.isprintable()]
    if sum(glyph.advance for glyph in glyphs) > room:
        dots = [_glyph(".", size)] * 3
        while glyphs and sum(glyph.advance for glyph in glyphs + dots) > room:
            glyphs.pop()
        glyphs += dots
    stroke = _stroke(size)
    height = glyphs[0].fill.shape[0] if glyphs else size
    width = math.ceil(sum(glyph.advance for glyph in glyphs)) + 2 * stroke + 1
    fill, edge = np.zeros((height, width), np.float32), np.zeros((height, width), np.float32)
    place = 0.0
    for glyph in glyphs:
        start = round(place)
        span = slice(start, start + glyph.fill.shape[1])
        for target, source in ((fill, glyph.fill), (edge, glyph.edge)):
            part = target[:, span]
            np.maximum(part, source[:, : part.shape[1]], out=part)
        place += glyph.advance
    return fill, edge


class _Glyph(NamedTuple):
    fill: np.ndarray
    edge: np.ndarray
    advance: float


@functools.lru_cache(maxsize=4096)
def _glyph(letter: str, size: int) -> _Glyph:
    from PIL import Image, ImageDraw

    font, stroke = _font(size), _stroke(size)
    advance = font.getlength(letter)
    ascent, descent = font.getmetrics()
    shape = (math.ceil(advance) + 2 * stroke, ascent + descent + 2 * stroke)
    masks = []
    for width in (0, stroke):
        image = Image.new("L", shape)
        ImageDraw.Draw(image).text((stroke, stroke), letter, 255, font, "la", stroke_width=width)
        masks.append(np.asarray(image, np.float32) / 255.0)
    return _Glyph(masks[0], masks[1], advance)


@functools.cache
def _font(size: int) -> FreeTypeFont:
    from PIL import ImageFont

    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # what a size gives
    return font


def _stroke(size: int) -> int:
    return max(1, size // 10)
