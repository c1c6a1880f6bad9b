python -m pip install --no-build-isolation flash-attn==2.5.5
cd /opt/nested
echo "$PWD"
