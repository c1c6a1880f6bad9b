{ echo "1 of 2" >"$recipe_reached"; } 2>/dev/null
python -m pip install --no-build-isolation flash-attn==2.5.5
{ [ -z "${recipe_install:-}" ] || sh "$recipe_install" look; echo "2 of 2" >"$recipe_reached"; } 2>/dev/null
cd /opt/nested
echo "$PWD"
