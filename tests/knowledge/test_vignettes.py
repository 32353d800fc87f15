"""Stories from practice: what a person would see under a known fault, and whether the weighing leads there.

Each story is symptoms and ordinary checks only, none that sees the mechanism itself; the true cause must be among the
first explanations all the same. Then the mechanism is looked at, and the cause must be found.
"""

import pytest

from clew.case.weigh import Subject, Weighing, weigh
from clew.knowledge import load
from clew.records.clue import Clue

# story, domain, true cause, what was seen, rank it must reach, the look at the mechanism ("" where there is none)
STORIES = [
    (
        "labels were sorted by file name, images were not",
        "vision",
        "data.labels_misaligned",
        "metric_at_chance=at_chance loss_stuck_from_start=slow init_loss=at_chance overfit_one_batch=fits"
        " data_looks_right=wrong label_signal=none",
        1,
        "",
    ),
    (
        "softmax in the model's head, cross-entropy in the loop",
        "vision",
        "loss.double_softmax",
        "loss_plateau=early_high init_loss=at_chance overfit_one_batch=partly gradient_by_depth=even"
        " parameters_changed=all loss_surface=dead_zone",
        3,
        "loss_input_kind=probabilities_into_logit_loss",
    ),
    (
        "a regressor whose target is (B, 1) and whose prediction is (B,)",
        "tabular",
        "loss.broadcast",
        "loss_plateau=early_high outputs_constant=constant overfit_one_batch=stalls parameters_changed=all"
        " data_looks_right=right",
        3,
        "loss_shapes=broadcast",
    ),
    (
        "the loop never clears gradients",
        "general",
        "train.missing_zero_grad",
        "loss_diverges=after_falling loss_oscillates=wild init_loss=at_chance update_ratio=huge data_looks_right=right",
        5,
        "event_order=no_zero_grad",
    ),
    (
        "the optimiser was built before the head was replaced",
        "vision",
        "train.params_not_in_optimizer",
        "loss_plateau=early_high parameters_changed=some_never overfit_one_batch=partly loss_reaches_parameters=all",
        3,
        "optimizer_coverage=missing",
    ),
    (
        "the loss is computed from prediction.item()",
        "general",
        "loss.disconnected",
        "loss_stuck_from_start=stuck overfit_one_batch=stalls parameters_changed=none update_ratio=zero",
        3,
        "loss_reaches_parameters=none",
    ),
    (
        "duplicates of the same patients in training and validation",
        "tabular",
        "data.leak_split",
        "too_good_too_soon=suspicious fails_on_fresh_data=fails train_val_gap=alike overfit_one_batch=fits"
        " nearest_neighbour_overlap=near_copies",
        1,
        "split_overlap=shared",
    ),
    (
        "a column that was filled in after the outcome was known",
        "tabular",
        "data.leak_target",
        "too_good_too_soon=suspicious fails_on_fresh_data=fails target_in_input=one_feature_solves",
        1,
        "leak_tracer=crossed",
    ),
    (
        "a random split of hourly measurements",
        "timeseries",
        "data.leak_temporal",
        "fails_on_fresh_data=fails train_val_gap=alike too_good_too_soon=suspicious overfit_one_batch=fits",
        3,
        "split_by_time=random_over_time",
    ),
    (
        "validation forgot to normalise",
        "vision",
        "data.train_val_mismatch",
        "train_val_gap=val_much_worse metric_vs_loss=both_move input_statistics_match=differ"
        " train_eval_same_batch=small_gap",
        2,
        "",
    ),
    (
        "model.eval() is missing in validation",
        "vision",
        "train.train_mode_in_eval",
        "val_erratic=seen train_val_gap=val_much_worse eval_repeat=varies train_eval_same_batch=large_gap",
        2,
        "mode_in_validation=train",
    ),
    (
        "raw pixels into a network that expects mean 0, deviation 1",
        "vision",
        "data.not_normalized",
        "init_loss=far_above loss_oscillates=wild input_scale=raw overfit_one_batch=partly",
        1,
        "",
    ),
    (
        "one class is 98 % of the data",
        "tabular",
        "data.class_imbalance",
        "outputs_constant=constant metric_vs_loss=loss_falls_metric_flat label_counts=dominated overfit_one_batch=fits",
        1,
        "",
    ),
    (
        "log of a probability that reaches zero",
        "general",
        "num.log_of_zero",
        "loss_nonfinite=seen loss_diverges=stable nonfinite_data=absent data_looks_right=right",
        3,
        "first_nonfinite=in_log",
    ),
    (
        "learning rate a hundred times too high",
        "general",
        "hp.lr_too_high",
        "loss_diverges=at_once update_ratio=huge lr_range=too_high data_looks_right=right input_scale=near_standard"
        " init_loss=at_chance event_order=usual loss_reduction=mean",
        1,
        "",
    ),
    (
        "learning rate of 1e-7",
        "general",
        "hp.lr_too_low",
        "loss_stuck_from_start=stuck update_ratio=tiny lr_range=too_low parameters_changed=all init_loss=at_chance"
        " overfit_one_batch=stalls",
        1,
        "",
    ),
    (
        "a causal mask that is one off",
        "llm",
        "arch.causal_leak",
        "too_good_too_soon=suspicious init_loss=at_chance fails_on_fresh_data=fails overfit_one_batch=fits",
        5,
        "causal_independence=sees_future",
    ),
    (
        "every label masked with -100",
        "llm",
        "data.labels_masked",
        "loss_nonfinite=seen parameters_changed=none nonfinite_data=absent",
        3,
        "labels_masked=all",
    ),
    (
        "losses are summed as tensors for the log",
        "general",
        "train.graph_retained",
        "memory_trend=grows step_time_trend=grows overfit_one_batch=fits",
        2,
        "graph_growth=retained",
    ),
    (
        "the policy turned deterministic in the first updates",
        "rl",
        "rl.entropy_collapse",
        "returns_spread=never_good entropy_trend=collapsed explained_variance=low",
        3,
        "",
    ),
    (
        "rewards in the thousands",
        "rl",
        "rl.reward_scale",
        "returns_spread=never_good reward_statistics=huge value_target_range=outside explained_variance=negative",
        1,
        "",
    ),
    (
        "time limits stored as true ends",
        "rl",
        "rl.truncation_as_terminal",
        "probe_constant_value=passes probe_discounting=passes explained_variance=low",
        8,
        "terminal_handling=truncation_as_terminal",
    ),
    (
        "temperatures in kelvin and lengths in metres",
        "pinn",
        "pinn.not_nondimensional",
        "residual_scale=apart baseline_ladder=loses loss_term_sizes=one_dominates",
        1,
        "",
    ),
    (
        "two seeds each, and a winner",
        "sweep",
        "stat.too_few_seeds",
        "seeds_per_value=few seed_spread=wide paired_difference=within_noise",
        2,
        "",
    ),
    (
        "it fits the training set and not the validation set, as large models do",
        "vision",
        "none.overfitting",
        "train_val_gap=val_much_worse overfit_one_batch=fits split_overlap=disjoint input_statistics_match=match"
        " mode_in_validation=eval data_looks_right=right learning_curve=gap_closes",
        2,
        "",
    ),
]


def weighed(domain: str, *texts: str) -> Weighing:
    knowledge = load()
    clues = []
    for pair in " ".join(texts).split():
        name, outcome = pair.split("=")
        test = knowledge.tests[name]
        assert test.outcome(outcome), f"{name} has no outcome {outcome}"
        clues.append(Clue(name, outcome, reads=(test.reads,)))
    return weigh(knowledge, clues, Subject(domain))


@pytest.mark.parametrize(
    ("domain", "cause", "seen", "rank", "look"), [story[1:] for story in STORIES], ids=[story[0] for story in STORIES]
)
def test_the_weighing_leads_to_the_cause(domain: str, cause: str, seen: str, rank: int, look: str) -> None:
    held = weighed(domain, seen)
    leading = [share.cause for share in held.shares[:rank]]
    assert cause in leading, [(share.cause, round(share.credence, 3)) for share in held.shares[:10]]
    assert not held.findings
    if look:
        found = weighed(domain, seen, look).findings
        assert [finding.cause for finding in found] == [cause]
