#!/bin/bash
# The three recipes of this study at a size that two CPU cores finish in a quarter of an hour: 100 test
# images per task (20 under corruption), and few, larger steps for the methods that adapt.
# POOL=FOLDER takes the models from there instead of from the zoo. ENGINE=serial uses one core.
IMAGES=${IMAGES:-100}
CORRUPTED=${CORRUPTED:-20}
set -eu
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
models() {
  for name in "$@"; do
    if [ -n "${POOL:-}" ]; then echo "--set models.clip-$name.load=$POOL/clip-$name"; fi
  done
}
ALL="base cifar10 mnist fashion quickdraw icons"
adapted() {  # method, step size, steps
  echo "--set fuse.$1.steps=$3 --set fuse.$1.lr=$2 --set fuse.$1.batch_size=4"
}

fusion() {
  stockpot run recipes/clip_fusion.yaml --engine "${ENGINE:-processes}" $(models $ALL) \
    --set data.zoo5.limit=$IMAGES \
    $(adapted adamerging-task 0.01 50) $(adapted adamerging-layer 0.01 50) \
    $(adapted adamerging-layer-fast 0.05 50) $(adapted wemoe-fast 0.01 50) \
    $(adapted concrete-ta 0.05 20) $(adapted concrete-task 0.05 15) \
    $(adapted concrete-layer 0.05 15) \
    --set fuse.concrete-task.adapt_steps=15 --set fuse.concrete-task.adapt_lr=0.01 \
    --set fuse.concrete-layer.adapt_steps=15 --set fuse.concrete-layer.adapt_lr=0.01 \
    $(adapted surgery 0.01 30) --set fuse.surgery.examples=200 \
    $(adapted wemoe 0.003 50) $(adapted wemoe-sparse 0.003 50) \
    --set fuse.fisher.examples=64
}
generalisation() {
  stockpot run recipes/clip_generalisation.yaml $(models base cifar10 mnist quickdraw) \
    $(for data in seen-cifar10 seen-mnist seen-quickdraw unseen-fashion unseen-icons; do
        echo "--set data.$data.limit=$IMAGES"; done) \
    $(adapted adamerging-task 0.01 50) $(adapted adamerging-layer 0.01 50) \
    $(adapted wemoe 0.003 50) --set fuse.fisher.examples=64
}
robustness() {
  stockpot run recipes/clip_robustness.yaml $(models $ALL) \
    --set data.tasks.limit=$CORRUPTED --set fuse.fisher.examples=64 \
    $(adapted adamerging-layer 0.01 50) $(adapted wemoe 0.003 50)
}
for part in "${@:-fusion generalisation robustness}"; do
  for step in $part; do $step; done
done
