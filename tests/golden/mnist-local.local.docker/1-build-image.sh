#!/usr/bin/env bash
# Builds the Docker image recipe/digits-local:621a9c4ada3a and saves it as digits-local.tar.
# Written by recipe 0.0.0 for 'digits' on local.
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
  --tag recipe/digits-local:621a9c4ada3a \
  --label org.opencontainers.image.base.name=docker.io/library/python:3.12-slim-bookworm \
  --label recipe.digest=621a9c4ada3a7f9f6d84830594186ab6b70575c48626ca2e474a4e5cb348b5c5 \
  --label recipe.name=digits \
  --label recipe.site=local \
  --label 'recipe.tool=recipe 0.0.0' ${RECIPE_FRESH:+--no-cache} \
  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .
docker save recipe/digits-local:621a9c4ada3a --output digits-local.tar.part
put_in_place digits-local.tar.part digits-local.tar
