"""What the numbers of a style discriminator say about a run, in words."""

from __future__ import annotations

from gaitway.analysis.runs import Run

NUMBERS = ("style/accuracy_expert", "style/accuracy_policy", "style/saturation")


def style_of(run: Run) -> str | None:
    """The verdict on the last numbers of a run's discriminator; None where it has none."""
    if NUMBERS[0] not in run.metrics:
        return None
    last = run.metrics.reindex(columns=list(NUMBERS)).loc[run.series(NUMBERS[0]).index[-1]].fillna(0.0)
    return verdict(*(float(last[name]) for name in NUMBERS))


def verdict(accuracy_expert: float, accuracy_policy: float, saturated: float) -> str:
    """What the numbers of a discriminator say about a run, in words."""
    if not all(0.0 <= value <= 1.0 for value in (accuracy_expert, accuracy_policy, saturated)):
        return "the discriminator's numbers are not finite; lower its learning_rate"
    if accuracy_expert < 0.2 and accuracy_policy < 0.2:
        return (
            "the discriminator calls the expert the policy and the reverse; it has collapsed, lower its learning_rate"
        )
    if min(accuracy_expert, accuracy_policy) > 0.9:
        if saturated > 0.5:
            return (
                "the discriminator has won: it tells almost every pair apart and most rewards are at an edge; raise "
                "gradient_penalty, or lower learning_rate or updates"
            )
        return "the policy does not move like the clips yet: almost every pair is told apart, and rewards still differ"
    if max(accuracy_expert, accuracy_policy) > 0.9:
        which = "the policy" if accuracy_expert > 0.9 else "the expert"
        return f"the discriminator leans to one side: it takes much of {which} for the other one"
    if (accuracy_expert + accuracy_policy) / 2 < 0.65:
        return "the policy moves like the clips: the discriminator can hardly tell them apart"
    return "the policy moves more and more like the clips: the discriminator tells some of it apart"
