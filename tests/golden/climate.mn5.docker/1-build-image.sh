#!/usr/bin/env bash
# Builds the Docker image recipe/climate-mn5:6eb6600e1965 and saves it as climate-mn5.tar.
# Written by recipe 0.0.0 for 'climate' on mn5.
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
  --tag recipe/climate-mn5:6eb6600e1965 \
  --label org.opencontainers.image.base.name=docker.io/library/python:3.12-slim-bookworm \
  --label recipe.digest=6eb6600e1965294125667fdea99a008c0e3d426b88ff3655f4b384205966d2b3 \
  --label recipe.name=climate \
  --label recipe.site=mn5 \
  --label 'recipe.tool=recipe 0.0.0' ${RECIPE_FRESH:+--no-cache} \
  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .
docker save recipe/climate-mn5:6eb6600e1965 --output climate-mn5.tar.part
put_in_place climate-mn5.tar.part climate-mn5.tar
