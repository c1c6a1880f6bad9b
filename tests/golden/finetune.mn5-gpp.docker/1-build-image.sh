#!/usr/bin/env bash
# Builds the Docker image recipe/finetune-mn5-gpp:a383d5f070a1 and saves it as finetune-mn5-gpp.tar.
# Written by recipe 0.0.0 for 'finetune' on mn5-gpp.
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
  --tag recipe/finetune-mn5-gpp:a383d5f070a1 \
  --label org.opencontainers.image.base.name=docker.io/library/python:3.12-slim-bookworm \
  --label recipe.digest=a383d5f070a1ce8d64669e0a15fe694ae44b397cc5a7c983412b27c761b59b7f \
  --label recipe.name=finetune \
  --label recipe.site=mn5-gpp \
  --label 'recipe.tool=recipe 0.0.0' ${RECIPE_FRESH:+--no-cache} \
  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .
docker save recipe/finetune-mn5-gpp:a383d5f070a1 --output finetune-mn5-gpp.tar.part
put_in_place finetune-mn5-gpp.tar.part finetune-mn5-gpp.tar
