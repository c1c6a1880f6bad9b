"""Asks an image whether it holds the torch it was planned with. Needs no GPU; the standard library and torch alone.

usage: python3 verify.py recipe.json [answer.json]
"""

import json
import re
import sys
from importlib import metadata

SM = re.compile(r"(sm|compute)_([0-9]+)([a-z]?)")


def answer():
    try:
        import torch
    except Exception as error:  # a broken library shows as many kinds of error; all of them are the answer
        return {"error": f"torch cannot be imported: {type(error).__name__}: {error}"}
    version = torch.version
    found = {"torch": torch.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("cuda", "hip", "xpu"):
        value = getattr(version, name, None)
        if value:
            found[name] = str(value)
    if "xpu" not in found and "+xpu" in torch.__version__:
        found["xpu"] = "yes"
    found["architectures"] = architectures(torch)
    return found


def architectures(torch):
    """The GPUs that the build has kernels for, none where it does not say.

    torch.cuda.get_arch_list() is empty on a machine without a GPU; what it reads answers everywhere.
    """
    names = (("_C", "_cuda_getArchFlags"), ("_C", "_xpu_getArchFlags"), ("cuda", "get_arch_list"))
    for module, name in names:
        try:
            answer = getattr(getattr(torch, module), name)()
            found = re.split(r"[\s,;]+", answer.strip()) if isinstance(answer, str) else [str(item) for item in answer]
        except Exception:  # what a release does not have fails in its own way
            continue
        if any(found):
            return sorted(set(filter(None, found)))
    return []


def serves(built, target):
    """Whether kernels for one GPU run on another: gfx90a:xnack- on gfx90a, sm_80 on sm_86, compute_80 on all newer."""
    built = built.partition(":")[0]
    ours, theirs = SM.fullmatch(target), SM.fullmatch(built)
    if not ours or not theirs or ours[3] or theirs[3]:  # sm_90a runs on that GPU and on no later one
        return built == target
    (major, minor), (built_major, built_minor) = (divmod(int(item[2]), 10) for item in (ours, theirs))
    if theirs[1] == "compute":
        return (built_major, built_minor) <= (major, minor)
    return built_major == major and built_minor <= minor


def faults(expected, found):
    if "error" in found:
        return [found["error"]]
    wrong = []
    vendor = expected.get("vendor", "")
    key = {"amd": "hip", "nvidia": "cuda", "intel": "xpu"}.get(vendor)
    if key and key not in found:
        wrong.append(f"torch {found['torch']} is not built for {vendor} GPUs")
    others = [name for name in ("cuda", "hip", "xpu") if name != key and name in found]
    if vendor == "cpu" and others and not expected.get("any_build"):
        wrong.append(f"torch {found['torch']} is built for a GPU ({', '.join(others)}), a CPU build was planned")
    wanted = expected.get("torch", "")
    public = found["torch"].partition("+")[0]
    if wanted and "+" in wanted and found["torch"] != wanted:
        wrong.append(f"torch is {found['torch']}, planned was {wanted}")
    # NGC's torch is a pre-release of the version it is named after: 2.8.0a0 for 2.8.0.
    elif wanted and "+" not in wanted and public.split("a0")[0] != wanted.split("a0")[0]:
        wrong.append(f"torch is {found['torch']}, planned was {wanted}")
    target, built = expected.get("architecture"), found.get("architectures")
    if not wrong and target and built and not any(serves(item, target) for item in built):
        wrong.append(f"torch {found['torch']} has no kernels for {target}, it was built for {', '.join(built)}")
    return wrong


def has_torch():
    """A package that was not known to require torch may have brought the default index's."""
    try:
        metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    return True


def main():
    with open(sys.argv[1], encoding="utf-8") as stream:
        expected = json.load(stream).get("expect", {})
    # On a site without GPUs a build for them does no harm.
    unplanned = "torch" not in expected and expected.get("vendor", "cpu") != "cpu" and has_torch()
    if "torch" not in expected and not unplanned:
        print("verify: the recipe has no torch, nothing to ask")
        found, wrong = {}, []
    else:
        found = answer()
        wrong = faults(expected, found)
        print("verify: " + json.dumps(found, sort_keys=True))
        if expected.get("architecture") and "torch" in found and not found["architectures"]:
            print(f"verify: this torch does not say whether it has kernels for {expected['architecture']}")
        if unplanned and wrong:
            wrong.append(
                "a package has brought torch: write torch among the dependencies, and the right build is chosen"
            )
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as stream:
            json.dump({"expected": expected, "found": found, "faults": wrong}, stream, indent=2, sort_keys=True)
            stream.write("\n")
    for fault in wrong:
        print(f"verify: error: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
