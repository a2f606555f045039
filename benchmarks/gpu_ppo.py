"""A PPO iteration without physics on a GPU, in every mode and precision, against rsl_rl.

    python benchmarks/gpu_ppo.py --out benchmarks/results/gpu_ppo.json

4096 instances x 24 steps, 48 observations, 12 actions, networks 512-256-128 (ELU), 5 passes of 4 minibatches, learning
rate adapted to the KL divergence. Both libraries run their own code on the same rewards and ends. Gates before timing:
gradients of both libraries agree on the same rollout; every mode ends at the parameters of the eager program; a
captured update never waits for the device. `products` is the arithmetic alone, measured in the same rounds.
"""

from __future__ import annotations

from _gpu import options
from _ppo_iteration import Sizes, main

if __name__ == "__main__":
    main("gpu_ppo", Sizes(), options(__doc__))
