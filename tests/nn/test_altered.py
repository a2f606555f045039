"""Whether modules run as their classes say."""

import pytest
import torch
from torch import nn

from gaitway.nn.altered import is_altered
from gaitway.nn.dense import DenseStack
from gaitway.nn.ensemble import Ensemble, EnsembleLinear
from gaitway.nn.ensemble_stack import EnsembleStack
from gaitway.nn.memory import Memory
from gaitway.nn.mlp import MLP
from gaitway.nn.normalise import RunningNorm
from gaitway.nn.trunks import StackedTrunk

ALTERATIONS = {
    "forward hook": lambda layer: layer.register_forward_hook(lambda *_: None),
    "forward pre-hook": lambda layer: layer.register_forward_pre_hook(lambda *_: None),
    "backward hook": lambda layer: layer.register_full_backward_hook(lambda *_: None),
    "backward pre-hook": lambda layer: layer.register_full_backward_pre_hook(lambda *_: None),
    "hook on a gradient": lambda layer: layer.weight.register_hook(lambda gradient: gradient),
    "method": lambda layer: setattr(layer, "forward", lambda x: x),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_everything_that_changes_or_watches_a_layer_is_seen(name):
    network = MLP(3, (4,), 2)
    assert not is_altered(network)
    assert DenseStack.of(network.layers) is not None
    handle = ALTERATIONS[name](network.layers[0])
    assert is_altered(network)
    assert DenseStack.of(network.layers) is None
    if handle is None:
        del network.layers[0].forward
    else:
        handle.remove()
    assert not is_altered(network)


def test_what_modules_keep_for_themselves_is_no_alteration():
    for module in (Memory("lstm", 3, 4), RunningNorm((3,)), Ensemble(2, 3, (4,), 1), nn.GRU(2, 2), nn.LayerNorm(2)):
        module.note, module.table = "anything", {"a": torch.zeros(1)}
        assert not is_altered(module)


def test_stacks_are_made_of_our_own_layers_alone():
    class Louder(nn.Sequential):
        def forward(self, x):
            return 2 * super().forward(x)

    assert DenseStack.of(Louder(*MLP(3, (4,), 2).layers)) is None

    class Other(EnsembleLinear):
        def forward(self, x):
            return -super().forward(x)

    class Trunk(StackedTrunk):
        def forward(self, x):
            return -super().forward(x)

    ensemble = Ensemble(2, 3, (4,), 1)
    ensemble.requires_grad_(False)
    assert EnsembleStack.of(ensemble) is not None
    ensemble.network.last.__class__ = Other
    assert EnsembleStack.of(ensemble) is None
    ensemble.network.last.__class__ = EnsembleLinear
    ensemble.network.trunk.__class__ = Trunk
    assert EnsembleStack.of(ensemble) is None
    ensemble.network = nn.Linear(3, 1)
    assert EnsembleStack.of(ensemble) is None
