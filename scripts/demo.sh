#!/usr/bin/env bash
# Train the Walker, measure it, draw its learning curves and film it. Arguments are handed on to `gaitway train`.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

run=runs/demo
number=1
while [ -e "$run" ]; do
  number=$((number + 1))
  run="runs/demo-$number"
done

gaitway train experiment=ppo_walker_run run_dir="$run" "$@"
echo
gaitway eval "$run" --episodes 10
video="$run/videos/demo.mp4"
if ! gaitway play "$run" --video "$video"; then
  video="not written, see above; then: gaitway play $run"
fi

cat <<EOF

The run is in $run
  learning curves   $run/plots/learning_curve.png
  video             $video
  numbers           $run/metrics.jsonl, $run/summary.json

Next, after \`. .venv/bin/activate\`:
EOF
printf '  %-48s %s\n' \
  "gaitway info $run" "what the folder holds" \
  "gaitway resume $run more=1e6" "train on, from where it stopped" \
  "gaitway train experiment=ppo_walker_run seed=1" "another seed, in a folder of its own under runs/" \
  "gaitway train experiment=ppo_halfcheetah" "another robot; \`gaitway list experiments\` has more" \
  "gaitway plot runs" "draw and compare all runs under runs/"
