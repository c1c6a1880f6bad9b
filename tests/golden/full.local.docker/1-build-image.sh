#!/usr/bin/env bash
# Builds the Docker image recipe/full-of-everything-local:93aa2da04914, checks it and saves it as full-of-everything-local.tar.
# Written by recipe 0.0.0 for 'Full_of.everything' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

export DOCKER_BUILDKIT=1 BUILDKIT_PROGRESS=plain
temporary_folder "" ""
# The build context is what Docker can see: local wheel folders are linked into it during the build.
rm -rf inputs.recipe
inputs=$PWD/inputs.recipe
copy_inputs=yes
package_settings
docker build \
  --platform=linux/amd64 \
  --tag recipe/full-of-everything-local:93aa2da04914 \
  --label org.opencontainers.image.base.name=docker.io/library/python:3.12-slim-bookworm \
  --label 'org.opencontainers.image.title=Full of $(everything)' \
  --label recipe.digest=93aa2da04914417f3fc3529d69e781530b1789d084ea4aaf30381f75bdf639c0 \
  --label recipe.name=Full_of.everything \
  --label recipe.site=local \
  --label 'recipe.tool=recipe 0.0.0' \
  --label version=1.10 ${RECIPE_FRESH:+--no-cache} \
  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .
docker_answer recipe/full-of-everything-local:93aa2da04914
# As a container of Docker, with the image's own variables, before anything is saved or copied.
docker run \
  --rm \
  --network=none \
  --entrypoint=python3 \
  --platform=linux/amd64 \
  recipe/full-of-everything-local:93aa2da04914 /opt/recipe/verify.py /opt/recipe/recipe.json ||
    fail "the image does not hold what was planned when docker run starts it"
docker save recipe/full-of-everything-local:93aa2da04914 --output full-of-everything-local.tar.part
put_in_place full-of-everything-local.tar.part full-of-everything-local.tar
