#!/usr/bin/env bash
# Asks the image for its torch; needs no GPU.
# Written by recipe 0.0.0 for 'climate' on lumi-g.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

. run/container.sh
inside() { (image_variables && exec "$runtime" exec "${options[@]}" --bind "$PWD:/mnt" --pwd /mnt "$image" "$@"); }
rm -f proof.json
# A wrong answer is in the log; the file is there only when the image is what was planned.
inside python3 -B verify.py recipe.json proof.json || {
    rm -f proof.json
    exit 1
}
