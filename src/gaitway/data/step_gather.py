"""Reading transitions out of StepRows: the step, and the observation after its n steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gaitway.data.ring import WORD, RowLayout
from gaitway.data.step_rows import OBSERVATION, REWARD, TRUNCATED, StepRows


@dataclass(slots=True)
class TransitionBatch:
    """Memory for n transitions, which `gather` can fill again and again."""

    fields: dict[str, Tensor]
    """What `gather` returns, [n, *shape]: views of the words."""
    words: Tensor
    """The rows, [n, words]; for one-step transitions with the observations that follow."""
    after: Tensor
    """The observations after n steps, [n, words]; of one-step transitions a part of `words`."""
    arrays: tuple[np.ndarray, np.ndarray] | None = None
    """On the CPU: entries of final observations [n], and the words of the observations after n steps."""


class TransitionReader:
    """`gather` of a StepReplay. What does not depend on the index is worked out here: making a view costs as much as
    reading twenty rows. It holds until the rows move to another device."""

    def __init__(self, rows: StepRows) -> None:
        layout, flat = rows.layout, rows.ring.flat
        self._finals = rows.finals
        self._may_look = flat.device.type == "cpu"
        self._front = layout.front_words
        self._one_step = rows.n_step == 1
        self._steps_word: int | None = None
        """Where a row says how many steps its window has, if that differs from row to row."""
        if self._one_step:  # the step and the observations of the row behind it are one piece
            self._width, self._skip = layout.words + self._front, layout.words
            self._here = flat.as_strided((len(flat) - 1, self._width), (layout.words, 1))
            self._after, entry, replaced = flat, "final", TRUNCATED
        else:
            self._width, self._skip = layout.words, 0
            self._here = flat
            if rows.decisions is not None:
                self._steps_word = layout.fields["return/steps"].offset
            ahead = rows.n_step if rows.decisions is None else 0
            self._after, entry, replaced = flat[ahead:, : self._front], "return/final", "return/truncated"
        self._entry_word, self._replaced_byte = layout.fields[entry].offset, layout.fields[replaced].offset
        recipes = _recipes(layout, _step_fields(rows), self._width)
        following = {f"next_obs/{group}": OBSERVATION + group for group in rows.groups}
        if self._one_step:
            self._parts = [_merged(recipes, _recipes(layout, following, self._width, self._skip)), {}]
        else:
            self._parts = [recipes, _recipes(layout, following, self._front)]

    def batch(self, n: int) -> TransitionBatch:
        """Memory for n transitions."""
        words = torch.empty((n, self._width), dtype=WORD, device=self._here.device)
        after = words if self._one_step else torch.empty((n, self._front), dtype=WORD, device=words.device)
        fields: dict[str, Tensor] = {}
        for memory, recipes in zip((words, after), self._parts, strict=True):
            for dtype, parts in recipes.items():
                typed = memory.view(dtype)
                for name, shape, stride, offset in parts:
                    fields[name] = typed.as_strided((n, *shape), stride, offset)
        return TransitionBatch(fields, words, after)

    def __call__(self, index: Tensor, out: TransitionBatch | None = None) -> dict[str, Tensor]:
        """Fields `[n, *shape]` of the slots `index` [n], in the memory of `out` or in fresh memory."""
        batch = self.batch(len(index)) if out is None else out
        torch.index_select(self._here, 0, index, out=batch.words)
        if not self._one_step:
            after = index if self._steps_word is None else index + batch.words[:, self._steps_word]
            torch.index_select(self._after, 0, after, out=batch.after)
        if not self._may_look or torch.compiler.is_compiling():
            self._replace(batch)
        elif len(self._finals):
            self._look_and_replace(batch)
        return batch.fields

    def _replace(self, batch: TransitionBatch) -> None:
        """Put final observations where there are any, by the same operations whether there are or not: asking would
        make the program wait for the device."""
        final = self._finals.words.index_select(0, batch.words[:, self._entry_word])
        replaced = batch.words.view(torch.bool)[:, self._replaced_byte, None]
        following = batch.after[:, self._skip :]
        if torch.compiler.is_compiling():  # cannot write to a part of a tensor
            following.copy_(torch.where(replaced, final, following))
        else:
            torch.where(replaced, final, following, out=following)

    def _look_and_replace(self, batch: TransitionBatch) -> None:
        """The same on the CPU, where looking is cheap and most batches have few or none. In NumPy, whose calls take a
        third of the time for so few numbers."""
        if batch.arrays is None:
            batch.arrays = (batch.words.numpy()[:, self._entry_word], batch.after.numpy()[:, self._skip :])
        entry, following = batch.arrays
        rows = entry.nonzero()[0]
        if len(rows):
            following[rows] = self._finals.words.numpy()[entry[rows]]


_Recipes = dict[torch.dtype, list[tuple[str, tuple[int, ...], tuple[int, ...], int]]]
"""By dtype, how fields are cut out of rows: name, shape, stride, offset."""


def _step_fields(rows: StepRows) -> dict[str, str]:
    """Name of each field of a transition -> the variable of its row, all but the next observations."""
    names = {f"obs/{group}": OBSERVATION + group for group in rows.groups}
    names |= {"action": "action"} if "action" in rows.stored else {}
    names |= {"reward": REWARD if rows.n_step == 1 else "return", "discount": "discount"}
    names["truncated"] = TRUNCATED if rows.n_step == 1 else "return/truncated"
    names |= {"steps": "return/steps"} if "return/steps" in rows.layout.fields else {}
    return names | {name: name for name in rows.extras}


def _recipes(layout: RowLayout, fields: Mapping[str, str], width: int, skip: int = 0) -> _Recipes:
    """Fields in rows of `width` words, behind `skip` words; each is a variable of the layout."""
    recipes: _Recipes = {}
    for name, source in fields.items():
        field = layout.fields[source]
        per_word = WORD.itemsize / field.dtype.itemsize
        stride, offset = (int(width * per_word), *field.stride), field.offset + int(skip * per_word)
        recipes.setdefault(field.dtype, []).append((name, field.shape, stride, offset))
    return recipes


def _merged(one: _Recipes, other: _Recipes) -> _Recipes:
    return {dtype: one.get(dtype, []) + other.get(dtype, []) for dtype in one | other}
