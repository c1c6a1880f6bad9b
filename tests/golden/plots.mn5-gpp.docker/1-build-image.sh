#!/usr/bin/env bash
# Builds the Docker image recipe/plots-mn5-gpp:73606fad222c and saves it as plots-mn5-gpp.tar.
# Written by recipe 0.0.0 for 'plots' on mn5-gpp.
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
  --tag recipe/plots-mn5-gpp:73606fad222c \
  --label org.opencontainers.image.base.name=docker.io/library/python:3.12-slim-bookworm \
  --label org.opencontainers.image.title=plots \
  --label recipe.digest=73606fad222c0e791ef121b8f7d908b948247d28cc16d2ae7ea95d36cb875266 \
  --label recipe.name=plots \
  --label recipe.site=mn5-gpp \
  --label 'recipe.tool=recipe 0.0.0' ${RECIPE_FRESH:+--no-cache} \
  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .
docker save recipe/plots-mn5-gpp:73606fad222c --output plots-mn5-gpp.tar.part
put_in_place plots-mn5-gpp.tar.part plots-mn5-gpp.tar
