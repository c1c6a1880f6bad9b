#!/usr/bin/env bash
# Builds the Docker image recipe/mnist-mn5:c68c5517eca4 and saves it as mnist-mn5.tar.
# Written by recipe 0.0.0 for 'mnist' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

export DOCKER_BUILDKIT=1 BUILDKIT_PROGRESS=plain
temporary_folder "" ""
# The build context is what Docker can see: local wheel folders are linked into it and leave with the build.
rm -rf inputs.recipe
inputs=$PWD/inputs.recipe
copy_inputs=yes
package_settings
docker build \
  --tag recipe/mnist-mn5:c68c5517eca4 \
  --label org.opencontainers.image.base.name=nvcr.io/nvidia/pytorch:25.06-py3 \
  --label recipe.digest=c68c5517eca4dfe9b29d19e7e4591e27dcc9a85ff08b2c59b9fda1c93ece5de7 \
  --label recipe.name=mnist \
  --label recipe.site=mn5 \
  --label 'recipe.tool=recipe 0.0.0' ${RECIPE_FRESH:+--no-cache} \
  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .
docker save recipe/mnist-mn5:c68c5517eca4 --output mnist-mn5.tar.part
put_in_place mnist-mn5.tar.part mnist-mn5.tar
