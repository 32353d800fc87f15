#!/bin/sh
# A case by hand, from symptom to close: a ten-class image classifier that stays at 10 % accuracy.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

clew_() {
  printf '\n$ clew'
  for word in "$@"; do case $word in *[!a-z0-9_.:=-]*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac; done
  printf '\n'
  clew "$@" || [ $? -eq 1 ] # 1 means: something was found
}

clew_ case new "val accuracy stuck at 10 %, 10 classes" --domain vision
clew_ case clue metric_at_chance at_chance
clew_ case clue loss_stuck_from_start stuck
clew_ case next -n 3
clew_ case clue init_loss --measured loss_over_chance=1.0
clew_ case clue overfit_one_batch --measured final_over_initial=0.68
clew_ case clue loss_input_kind probabilities_into_logit_loss --at train.py:41
clew_ case show
clew_ case close --cause loss.double_softmax --clue 3 --evidence "softmax removed from the head: loss falls from 2.30 to 0.41 in one epoch"
