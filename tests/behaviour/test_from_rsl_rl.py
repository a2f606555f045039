"""The page for people who come from rsl_rl, st_rl and parkour names what they have, and nothing that is not here."""

import re
from pathlib import Path

import pytest

import gaitway
from gaitway.algorithms.terms import TERMS
from gaitway.cli.train_config import TrainConfig
from gaitway.core.config import flatten, to_config
from gaitway.rewards import SOURCES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "from_rsl_rl.md").read_text()
ROWS = [[part.strip() for part in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| ")]

THEIRS = """
PPO compute_losses inter_vars init_obs_norm empirical_normalization Transition APPOAlgoMixin APPO mimic_loss dagger_loss
TPPO GET_PROB_FUNC ATPPO EstimatorMixin EstimatorPPO EstimatorTPPO collect_transition_from_dataset
hidden_state_resample_prob buffer_dilation_ratio ActorCritic ActorCriticRecurrent Memory ActorCriticHiddenState
LstmHiddenState EstimatorActorHiddenState AdaptorActorHiddenState namedarraytuple NamedTupleSchema AttrDict
buffer_from_example EncoderActorCriticMixin VisualActorCriticMixin VisualDeterministicAC AmpMixin AmpActorCritic
DeterministicPolicyMixin AMPDiscriminator StateAc PrivilegeEstimatorMixin PrivilegeStateAcRecurrent
load_misaligned_state_dict ckpt_manipulator replace_encoder0 ActorCriticMutex ActorCriticFieldMutex
ActorCriticClimbMutex MlpModel Conv2dModel Conv2dHeadModel conv2d_output_shape get_activation_Cls resolve_nn_activation
EmpiricalNormalization RunningMeanStd Normalizer obs_segments get_obs_slice get_subobs_size get_subobs_by_components
substitute_estimated_state RolloutStorage QueueRolloutStorage ActionLabelRollout SarsaRolloutStorage AmpRolloutStorage
split_and_pad_trajectories unpad_trajectories ReplayBuffer RolloutFileBase RolloutDataset compress_normalized_image
decompress_normalized_image AMPLoader RefMotionLoader OnPolicyRunner AmpPolicyRunner DistillationRunner TwoStageRunner
DemonstrationSaver DaggerSaver build_runner build_actor_critic init_writter store_code_state add_git_repo_to_log
evaluation metrics_velrmsd metrics_CoT trial get_inference_policy buffer_expand buffer_swap buffer_method buffer_func
buffer_to torchify_buffer numpify_buffer np_mp_array build_array get_leading_dims wrap_to_pi quat_to_rotmat
num_learning_epochs num_mini_batches clip_param value_loss_coef use_clipped_value_loss clip_min_std desired_kl
normalize_advantage_per_mini_batch share_cnn_encoders rnd_cfg symmetry_cfg multi_gpu_cfg obs_groups num_steps_per_env
save_interval teacher_act_prob update_times_scale distill_target using_ppo task_reward_lerp style_reward_coef
discriminator_grad_pen replace_state_prob use_actor_rnn cmd_vel_mapping reset_non_selected success_traj_only
min_timesteps min_episodes dataset_loops keep_latest_n_trajs starting_frame_range lr_scheduler_class_name
""".split()  # noqa: SIM905


def test_every_name_of_theirs_is_on_the_page():
    words = {word for left, *_ in ROWS for word in re.findall(r"\w+", left)}
    assert [name for name in THEIRS if name not in words] == []


def test_every_row_has_two_columns():
    assert {len(row) for row in ROWS} == {2}
    assert len(ROWS) > 60


def test_keys_parts_and_pages_on_the_right_exist():
    ours = " ".join(right for _, right in ROWS)
    keys = set(flatten(to_config(TrainConfig())))
    sections = {key.rpartition(".")[0] for key in keys}
    # what only other algorithms have, and what are no keys of a run
    elsewhere = {"algorithm.dilation"}
    named = set(re.findall(r"`((?:agent|algorithm|pretrain|checkpoints|execution|evaluation)\.[a-z_.]+)", ours))
    assert len(named) > 20
    assert named - keys - sections - elsewhere == set()
    assert {"symmetry", "imitation", "latent_imitation", "estimation"} <= set(TERMS)
    assert {"style", "tracking", "rnd"} <= set(SOURCES)
    pages = set(re.findall(r"\]\((\w+\.md)", PAGE))
    assert [name for name in pages if not (ROOT / "docs" / name).exists()] == []


@pytest.mark.parametrize("name", ["OnPolicyRunner", "ActorCritic", "PPO", "load"])
def test_public_names(name):
    assert hasattr(gaitway, name)
